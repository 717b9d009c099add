"""Confidence intervals of shares that were measured on some items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

Z = 1.96
"""Standard deviations on either side that contain 95 % of a normal distribution."""


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The first mean minus the second, over the same items.

    Returns: the difference, and the ends of its 95 % interval, which is `half_width` on either side. Of fewer than two
        items it is [-1, 1].
    Raises: ValueError where the numbers of items differ, or are 0.
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
    """The 95 % interval of the mean of shares, one for each item.

    If every share is 0 or 1 it is Wilson's (1927), which also holds for few items and near the ends. Otherwise it is
    the mean plus or minus 1.96 standard errors over items.
    Returns: its ends, in [0, 1].
    """
    n, mean = len(shares), fmean(shares)
    if all(share in (0, 1) for share in shares):
        return interval_of_share(mean, n)
    if n < 2:
        return 0.0, 1.0  # one item has no spread
    half = half_width(shares)
    return max(0.0, mean - half), min(1.0, mean + half)


def half_width(values: Sequence[float]) -> float:
    """1.96 standard errors of the mean of at least two values.

    Equal values have no spread, which says little if they are few. Then it is the upper end of Wilson's interval of 0
    in n, Z^2 / (n + Z^2). This is the share of other values, each at distance 1, that chance may have left out.
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
