"""Whether an update moved the weights, by looking at some of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LOOKED_AT = 256
"""Weights of each tensor, evenly spread: enough to see any update, and next to no work."""


def some_weights(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Copies of at most so many weights of each tensor."""
    flat = [parameter.detach().reshape(-1) for parameter in parameters]
    return [each[:: max(1, -(-len(each) // LOOKED_AT))].clone() for each in flat]


def moved_share(before: Sequence[Tensor], parameters: Sequence[Tensor]) -> float:
    """Share of the weights looked at that are others now, in [0, 1].

    Args:
        before: what `some_weights` gave of the same parameters.
    """
    after = some_weights(parameters)
    counts = [(was != now).sum() for was, now in zip(before, after, strict=True)]
    return float(torch.stack([count.cpu() for count in counts]).sum()) / max(1, sum(map(len, before)))
