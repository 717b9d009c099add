"""How far the logprobs of an engine and of a trainer may lie apart, where both hold the same weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

AGREEMENT = {torch.float32: ("largest", 1e-4), torch.bfloat16: ("mean", 1e-2)}
"""The allowed difference between engine's and trainer's logprobs in nats, by type of the weights. In bf16 the largest
difference of a few hundred tokens is a matter of luck: 0.03 to 0.2 on the tiny model, early or late in a run. Their
mean is not: 0.0005 to 0.0015."""


def apart(one: Sequence[Tensor], other: Sequence[Tensor], dtype: torch.dtype) -> float:
    """The difference of two sides' logprobs in nats: the largest or the mean, as `AGREEMENT` says. 0 of none.

    Args:
        one, other: [N_row] for each row, of the same lengths.
    """
    differences = (torch.cat([*one, torch.empty(0)]) - torch.cat([*other, torch.empty(0)])).abs()
    if not len(differences):
        return 0.0
    which, _ = AGREEMENT[dtype]
    return float(differences.max() if which == "largest" else differences.mean())
