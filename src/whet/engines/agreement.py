"""How far the logprobs of an engine and of a trainer may lie apart, where both hold the same weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

Which = Literal["largest", "mean"]
Bound = tuple[Which, float]
AGREEMENT: Mapping[torch.dtype, Bound] = {torch.float32: ("largest", 1e-4), torch.bfloat16: ("mean", 0.07)}
"""Which difference counts, and the most that is allowed in nats, by type of the weights. In bf16 the largest difference
of a few hundred tokens is a matter of luck: 0.03 to 0.2 on the tiny model, early or late in a run. Their mean is not:
0.0005 to 0.0015 on the tiny model, and 0.036 to 0.038 on SmolLM2-135M at temperature 1, on a CPU as on an H200. There
the bf16 logprobs of either side are 0.034 off those of float32: it is rounding, and no fault of the two."""
REPEATED: Mapping[torch.dtype, Bound] = {torch.float32: ("mean", 5e-5), torch.bfloat16: AGREEMENT[torch.bfloat16]}
"""The same for checks that a run makes again and again, where the largest difference would pass 1e-4 some day by luck.
In 400 probes of the tiny model the largest of 256 tokens was up to 5e-5 at temperature 1 and up to 1.4e-4 at 0.3, and
the mean up to 7e-6. On SmolLM2-135M the mean is 1e-5. One update at a rate of 5e-7 moves it by 1.5e-4 and more."""
FEWEST = 16
"""Tokens over which a mean is taken at least, as if the others were equal: that of one token is luck again."""
PRODUCTS_AGREEMENT: Mapping[str, Bound] = {"bfloat16": ("mean", 0.07), "int8": ("mean", 0.2)}
"""The same where an engine multiplies in another type than the trainer, by `engine.products`. Means of sampled replies:
0.005 to 0.023 and 0.008 to 0.068, the more of them the larger the model (the tiny ones and SmolLM2-135M)."""


def agreement_of(dtype: torch.dtype, products: str = "float32") -> Bound:
    """Which difference counts at a run's start, `largest` or `mean`, and the most nats that are allowed.

    Args:
        dtype: of the weights.
        products: what the engine multiplies in.
    """
    return PRODUCTS_AGREEMENT.get(products) or AGREEMENT[dtype]


def apart(one: Sequence[Tensor], other: Sequence[Tensor], which: Which) -> float:
    """The difference of two sides' logprobs in nats: the largest, or the mean of `FEWEST` tokens or more. 0 of none.

    Args:
        one, other: [N_row] for each row, of the same lengths.
    """
    differences = (torch.cat([*one, torch.empty(0)]) - torch.cat([*other, torch.empty(0)])).abs()
    if not len(differences):
        return 0.0
    return float(differences.max() if which == "largest" else differences.sum() / max(len(differences), FEWEST))
