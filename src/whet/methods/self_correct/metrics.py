"""What self-talk does inside a reply: how often it mends, and whether the reply is the better for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Mended:
    """A reply by self-talk."""

    num_repairs: int
    first: bool | None
    """Whether its first attempt was right. None: nobody can say."""
    right: bool
    """Whether its end is."""


def self_talk_metrics(replies: Sequence[Mended]) -> dict[str, float | None]:
    """Of all replies, but `first`, `helped` and `harmed`, which are of those whose first attempt is known; None where
    there is none.

    Returns: `first` (attempts that are right), `repaired` (replies that mend something), `repairs` (a reply), `helped`
        (the first attempt wrong, a repair, the end right), `harmed` (the first attempt right, a repair, the end wrong).
    """
    known = [each for each in replies if each.first is not None]
    helped = [bool(each.num_repairs) and not each.first and each.right for each in known]
    harmed = [bool(each.num_repairs) and bool(each.first) and not each.right for each in known]
    return {
        "first": fmean(bool(each.first) for each in known) if known else None,
        "repaired": fmean(each.num_repairs > 0 for each in replies) if replies else None,
        "repairs": fmean(each.num_repairs for each in replies) if replies else None,
        "helped": fmean(helped) if known else None,
        "harmed": fmean(harmed) if known else None,
    }


NO_TALK: dict[str, float | None] = dict.fromkeys(self_talk_metrics(()))
"""Of replies that do not talk."""
