"""No hard bound on the ratio: a soft gate (SAPO), and a mask that holds the second moment to a budget (M2PO)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whet.objectives.ratio import log_ratios, masked_credit, ratio_metrics, summed, unbounded_log_ratios


def sapo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> tuple[Tensor, dict[str, Tensor]]:
    """SAPO (arXiv:2511.20347): `-(4 / tau) sigmoid(tau (r - 1)) A`, a gate that closes smoothly on both sides.

    On policy its gradient is REINFORCE's (the 4 is there for that). Its paper averages over tokens, then over rows.

    Args:
        tau_positive, tau_negative: how fast the gate closes, by the sign of A. The others are those of
            `clipped_policy_loss`.
    """
    log_ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    tau = tau_negative + (tau_positive - tau_negative) * (credit > 0).to(credit.dtype)
    loss = -4 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1)) * credit
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, torch.zeros_like(loss_mask))


@torch.no_grad()
def second_moment_limit(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, *, budget: float = 0.04
) -> float:
    """M2PO's mask (arXiv:2510.01161), as a limit on `(log r)^2`, from all tokens of an update.

    A clip could stop tokens with A > 0 and r > 1, or with A < 0 and r < 1. Of these the one with the largest
    `(log r)^2` is masked, until the mean of the others is at most the budget. Equal squares go together.

    Args:
        policy_logprobs, old_logprobs, advantages, loss_mask: any one shape, of the whole batch (of all ranks).
        budget: tau, in squared nats.
    Returns: the largest square that stays; -1 where none does, inf where all do.
    """
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask)
    could_stop = _could_stop(log_ratio, masked_credit(advantages, loss_mask))
    squares, _ = log_ratio[could_stop].double().square().sort()
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1, device=squares.device)
    num_kept = int((means <= budget).sum())  # means of a sorted list never fall
    if num_kept == len(squares):
        return math.inf
    # The first one masked: what equals it goes with it.
    below = squares[squares < squares[num_kept]]
    return float(below[-1]) if len(below) else -1.0


def m2po_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    limit: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """M2PO (arXiv:2510.01161): `-M r A` without a clip; M drops the tokens past the limit of `second_moment_limit`.

    The divisors in `token_weight` still count the dropped tokens.
    """
    unbounded = unbounded_log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)  # as the limit was found
    log_ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    dropped = _could_stop(unbounded, credit) & (unbounded.double().square() > limit)
    loss = torch.where(dropped, 0.0, -log_ratio.exp() * credit)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, dropped)


def _could_stop(log_ratio: Tensor, credit: Tensor) -> Tensor:
    """Where the ratio has gone the way that the credit pushes."""
    return ((credit > 0) & (log_ratio > 0)) | ((credit < 0) & (log_ratio < 0))
