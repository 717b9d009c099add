"""Pairs: groups of scored segments to preferred and rejected rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from whet.credit.rewards import ScoredSegment
from whet.types import Row, as_row


def best_and_worst(
    group: Sequence[ScoredSegment], rng: random.Random, *, margin: float = 0.0
) -> tuple[ScoredSegment, ScoredSegment] | None:
    """Segments with the greatest and the least reward of a group, drawn among equals. None: the rewards are equal, or
    less than `margin` apart."""
    if not group:
        return None
    high, low = max(p.reward for p in group), min(p.reward for p in group)
    if high == low or high - low < margin:
        return None
    best, worst = ([p for p in group if p.reward == reward] for reward in (high, low))
    return rng.choice(best), rng.choice(worst)


def pair_rows(chosen: ScoredSegment, rejected: ScoredSegment, name: str, **fields: Any) -> list[Row]:
    """The preferred row and then the other, as one bundle.

    Args:
        name: of the bundle, unique in its step.
        fields: other fields of the rows (`kind`, ...).
    """
    return [
        as_row(scored.segment, credit, bundle=name, **fields) for scored, credit in ((chosen, 1.0), (rejected, -1.0))
    ]
