"""How far a share that was measured on some items can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

Z = 1.96
"""Standard deviations on either side that hold 95 % of a normal distribution."""


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """How much greater the first mean is than the second, over the same items.

    Returns: the difference, and the ends of its 95 % interval: 1.96 standard errors of the items' differences on either
        side, and where all items differ alike what chance may have left out. Of fewer than two items it is [-1, 1].
    Raises: ValueError where the two are not of equally many items, or of none.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not differences:
        raise ValueError("there is no item to compare")
    mean = fmean(differences)
    if len(differences) < 2:
        return mean, -1.0, 1.0
    half = half_width(differences)
    return mean, max(-1.0, mean - half), min(1.0, mean + half)


def interval(shares: Sequence[float]) -> tuple[float, float]:
    """95 %, of the mean of as many shares as there are items.

    Where every item has 0 or 1 it is Wilson's (1927), which is right for few items and near the ends, too; else the
    mean give or take 1.96 standard errors, as items are what chance has drawn.
    Returns: its ends, in [0, 1].
    """
    n, mean = len(shares), fmean(shares)
    if all(share in (0, 1) for share in shares):
        return interval_of_share(mean, n)
    if n < 2:
        return 0.0, 1.0  # one item says nothing of others
    half = half_width(shares)
    return max(0.0, mean - half), min(1.0, mean + half)


def half_width(values: Sequence[float]) -> float:
    """1.96 standard errors of the mean of two values or more.

    Where all are alike they have no spread, which says little of few: as many others may be left out by chance as
    Wilson's interval of none in n has at its upper end, Z^2 / (n + Z^2), each of them 1 away.
    """
    n = len(values)
    return Z * stdev(values) / math.sqrt(n) if len(set(values)) > 1 else Z * Z / (n + Z * Z)


def interval_of_share(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of items that each have 0 or 1.

    Args:
        share: in [0, 1].
        n: of the items, at least 1.
    Returns: its ends, in [0, 1].
    """
    centre, spread = share + Z * Z / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + Z * Z / n)), min(1.0, (centre + spread) / (1 + Z * Z / n))
