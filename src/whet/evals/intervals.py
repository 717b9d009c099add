"""How far a share that was measured on some items can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

Z = 1.96
"""Standard deviations on either side that hold 95 % of a normal distribution."""


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
    half = Z * stdev(shares) / math.sqrt(n)
    return max(0.0, mean - half), min(1.0, mean + half)


def interval_of_share(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of items that each have 0 or 1.

    Args:
        share: in [0, 1].
        n: of the items, at least 1.
    Returns: its ends, in [0, 1].
    """
    centre, spread = share + Z * Z / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + Z * Z / n)), min(1.0, (centre + spread) / (1 + Z * Z / n))
