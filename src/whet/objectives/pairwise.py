"""Losses on preference pairs: two answers to one task, of which one is preferred (DPO, conservative DPO, IPO).

A loss compares how far each answer has moved from the reference: `log(policy / ref)` of its tokens, summed over the row
by `row_sums`, or averaged. The method chooses the reference. It is a frozen model (DPO), the policy that this round
started from (iterated DPO, DNO arXiv:2404.03715, RLAC), or nothing (zeros: CPO, SimPO).

As everywhere here a loss is a weighted sum: weights of `1 / P`, P the pairs of the whole minibatch, make it their mean.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

PairKind = Literal["logistic", "ipo"]


def pairwise_loss(
    chosen_P: Tensor,
    rejected_P: Tensor,
    weight_P: Tensor,
    *,
    kind: PairKind,
    beta: float,
    margin: float = 0.0,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of P pairs, a weighted sum. With `gap = chosen - rejected`:

    `logistic`: `-log sigmoid(beta gap - margin)`, DPO (arXiv:2305.18290, eq. 7). Its pull fades once a pair is right by
    some multiples of `1 / beta`, but never ends.
    `ipo`: `(gap - 1 / (2 beta))^2` (arXiv:2310.12036, eq. 17; beta is its tau). Ends at a gap of `1 / (2 beta)`, so
    that a preference that is certain in the data does not drive the policy off the reference. Its authors, and TRL,
    take the mean of a row's log ratios (`row_sums(mean=True)`). Without it the target depends on the rows' lengths.

    Args:
        chosen_P, rejected_P: [P], log(policy / ref) of the preferred row and of the other; carry the gradient.
        weight_P: [P], multiplies each pair's loss. Taken as numbers.
        beta: more than 0. How close to the reference the policy is to stay. 0.1 is usual with sums.
        margin: of `logistic` only, in the units of `beta gap`. By so much a pair has to be right to count as even.
        label_smoothing: of `logistic` only, in [0, 0.5). The chance that a pair is the wrong way round. Its loss would
            then be that of `-(beta gap - margin)` (conservative DPO, ericmitchell.ai/cdpo.pdf).
    Returns: the loss, and detached, unweighted metrics over pairs. `num_pairs` counts them. `pair_right_sum` counts
        those with chosen above rejected, ties by half. `pair_margin_sum` sums `beta gap`; `chosen_sum` and
        `rejected_sum` sum the log ratios.
    """
    _check(kind, beta, margin, label_smoothing)
    gap_P = chosen_P - rejected_P
    if kind == "ipo":
        loss_P = (gap_P - 1 / (2 * beta)).square()
    else:
        x_P = beta * gap_P - margin
        loss_P = -(1 - label_smoothing) * logsigmoid(x_P) - label_smoothing * logsigmoid(-x_P)
    return (loss_P * weight_P.detach()).sum(), _pair_metrics(chosen_P, rejected_P, beta)


def row_sums(values_BT: Tensor, mask_BT: Tensor, *, mean: bool = False) -> Tensor:
    """A number a row: the sum of its unmasked values, or their mean. `policy_logprobs - ref_logprobs` makes the log
    ratios that `pairwise_loss` compares.

    Args:
        values_BT: [B, T]; carries the gradient. Ignored where masked, even if NaN.
        mask_BT: [B, T] bool.
    Returns: [B]. A row that is masked throughout gets 0.
    """
    sums_B = torch.where(mask_BT, values_BT, 0.0).sum(-1)
    return sums_B / mask_BT.sum(-1).clamp(min=1) if mean else sums_B


@torch.no_grad()
def _pair_metrics(chosen_P: Tensor, rejected_P: Tensor, beta: float) -> dict[str, Tensor]:
    gap_P = chosen_P - rejected_P
    return {
        "num_pairs": torch.ones_like(gap_P, dtype=torch.long).sum(),
        "pair_right_sum": ((gap_P.sign() + 1) / 2).sum(),
        "pair_margin_sum": beta * gap_P.sum(),
        "chosen_sum": chosen_P.sum(),
        "rejected_sum": rejected_P.sum(),
    }


def _check(kind: str, beta: float, margin: float, label_smoothing: float) -> None:
    if kind not in get_args(PairKind):
        raise ValueError(f"unknown kind of pairwise loss {kind!r}: choose one of {', '.join(get_args(PairKind))}.")
    if beta <= 0:
        raise ValueError(f"beta has to be more than 0, got {beta}: at 0 a pair has no gradient, or (ipo) no target.")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(
            f"label_smoothing has to be in [0, 0.5), got {label_smoothing}: it is the chance that a pair is the wrong "
            "way round, and from one half on the pairs say nothing, or the opposite."
        )
    if kind == "ipo" and (margin != 0 or label_smoothing != 0):
        raise ValueError(
            f"ipo takes no margin and no label_smoothing, got {margin} and {label_smoothing}: its target gap is "
            "1 / (2 beta). For a larger gap lower beta, or choose kind 'logistic'."
        )
