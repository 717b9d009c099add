"""What self-correction does inside a reply: how often it mends, and whether the reply gets better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Mended:
    """A reply with self-correction."""

    num_repairs: int
    first: bool | None
    """Whether its first attempt was right. None: unknown."""
    right: bool
    """Whether its end is."""


def self_talk_metrics(replies: Sequence[Mended]) -> dict[str, float | None]:
    """Metrics of all replies; `first`, `helped` and `harmed` are of those whose first attempt is known, and None where
    there is none.

    Returns: `first` (attempts that are right), `repaired` (replies that mend something), `repairs` (a reply).
        `helped` (the first attempt wrong, a repair, the end right), `harmed` (the first attempt right, a repair, the
        end wrong).
    """
    measured = [reply for reply in replies if reply.first is not None]
    helped = [bool(reply.num_repairs) and not reply.first and reply.right for reply in measured]
    harmed = [bool(reply.num_repairs) and bool(reply.first) and not reply.right for reply in measured]
    return {
        "first": fmean(bool(reply.first) for reply in measured) if measured else None,
        "repaired": fmean(reply.num_repairs > 0 for reply in replies) if replies else None,
        "repairs": fmean(reply.num_repairs for reply in replies) if replies else None,
        "helped": fmean(helped) if measured else None,
        "harmed": fmean(harmed) if measured else None,
    }


NO_TALK: dict[str, float | None] = dict.fromkeys(self_talk_metrics(()))
"""Metrics of replies without self-correction."""
