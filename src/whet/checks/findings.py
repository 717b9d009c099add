"""What a check says: one sentence with what to do, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check."""

    level: Level
    """`fail`: the run would end early, or be worth nothing."""
    area: str
    """Such as `data`, `tokenizer` or `reward`."""
    text: str


def by_share(count: int, total: int, most: float) -> Level:
    """`fail` where a share of at least `most` is wrong, else `warning`."""
    return "fail" if count >= most * total else "warning"


def listed(names: list[str], most: int = 3) -> str:
    """The first names, quoted, and how many more there are."""
    shown = ", ".join(repr(name[:60]) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
