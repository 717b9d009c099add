"""The divisors of token losses: one weight a row, computed from the whole minibatch before it is split.

Multiply row b's token losses by its weight and add them all up. The sum is the minibatch's loss, however its rows were
dealt to micro-batches and ranks.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "constant"]
"""`token_mean`: every trained token counts alike, so long rows count more (DAPO, arXiv:2503.14476).
`sequence_mean`: mean within a row, then over rows: every row counts alike (GRPO; the Critique-RL code).
`constant`: a row's sum over a fixed length, then the mean over rows: no length bias (Dr. GRPO, arXiv:2503.20783)."""


def aggregation_weights(
    num_trained_B: Tensor,
    row_weight_B: Tensor,
    mode: Aggregation,
    *,
    constant_length: int | None = None,
    share_B: Tensor | None = None,
) -> Tensor:
    """The weight of each of a row's tokens, to be broadcast over them as `token_weight = weights[:, None]`.

    n_b is the row's trained tokens, w_b its weight. R is the number of rows that train at least one token. Then
    `token_mean` is w_b / sum n. `sequence_mean` is w_b / (n_b R). `constant` is w_b / (constant_length R). The row
    weight multiplies a row's loss and is in no denominator: halving every weight halves the loss.

    Where an episode is several rows, row b is a share s_b of it, and the episode weighs as much as one row would. R is
    then the sum of the shares, and `sequence_mean` is w_b s_b / (n_b R).

    Args:
        num_trained_B: [B] ints, of *all* rows of the minibatch (of all ranks), not of one micro-batch.
        row_weight_B: [B] floats; sets the result's dtype.
        share_B: [B] floats above 0; those of an episode add up to 1. None: every row is a whole episode.
        constant_length: read in mode `constant` only: tokens, usually the generation limit.
    Returns: [B]. A row with no trained token gets 0 and is as if it were not there.
    """
    trains_B = num_trained_B > 0
    num_rows = trains_B.sum() if share_B is None else torch.where(trains_B, share_B, 0.0).sum()
    if mode == "token_mean":
        divisor_B = num_trained_B.sum().expand_as(num_trained_B)
    elif mode == "sequence_mean":
        divisor_B = num_trained_B * num_rows
    elif mode == "constant":
        if constant_length is None or constant_length < 1:
            raise ValueError(
                f"aggregation 'constant' needs constant_length >= 1, got {constant_length}: set it to the generation "
                "limit (max_new_tokens), or choose 'token_mean' or 'sequence_mean'."
            )
        divisor_B = (constant_length * num_rows).expand_as(num_trained_B)
    else:
        raise ValueError(f"unknown aggregation {mode!r}: choose one of {', '.join(get_args(Aggregation))}.")
    if mode == "sequence_mean" and share_B is not None:
        row_weight_B = row_weight_B * share_B
    return torch.where(trains_B, row_weight_B / torch.where(trains_B, divisor_B, 1), 0.0)
