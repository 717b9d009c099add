"""REINFORCE with a weight: the clipped ratio multiplies the gradient as a number, so that no token loses it all.

Where a clipped ratio loss drops a token's gradient past its bound, these keep it, scaled by the bound. Arguments and
results are those of `clipped_policy_loss`.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.kl import MAX_LOG_RATIO
from whet.objectives.ratio import (
    log_ratios,
    masked_credit,
    ratio_metrics,
    sequence_log_ratios,
    summed,
    unbounded_log_ratios,
)

Level = Literal["token", "sequence"]


def reinforce_loss(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE: `-A log pi`. The ratio is reported and not used, so off policy its gradient is biased."""
    log_ratio = log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    loss = -masked_credit(advantages, loss_mask) * torch.where(loss_mask, policy_logprobs, 0.0)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, torch.zeros_like(loss_mask))


def cispo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    low: float = 0.0,
    high: float = 5.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """CISPO (MiniMax-M1, arXiv:2506.13585): `-sg(clip(r, low, high)) A log pi`, for both signs of A.

    The paper sets no lower bound in effect and tunes the upper one; 0 and 5 are what TRL recommends and SkyRL ships.
    With `low=0` and `high=C` it is truncated importance sampling as the main loss.
    """
    log_ratio = log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    ratio = log_ratio.exp()
    weight = ratio.clamp(low, high)
    loss = -weight * masked_credit(advantages, loss_mask) * torch.where(loss_mask, policy_logprobs, 0.0)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, weight != ratio)


def topr_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    level: Level = "sequence",
) -> tuple[Tensor, dict[str, Tensor]]:
    """Tapered off-policy REINFORCE (TOPR, arXiv:2503.14286): `-w A log pi` with w = 1 for good tokens, min(1, r) for
    bad ones.

    Args:
        level: `sequence` (the paper): r is the product of the row's token ratios; `token`: each token's own.
    """
    if level not in get_args(Level):
        raise ValueError(f"unknown level {level!r}: choose one of {', '.join(get_args(Level))}.")
    unbounded = unbounded_log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    log_ratio = weighing = unbounded.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if level == "sequence":
        weighing = sequence_log_ratios(unbounded, loss_mask).expand_as(log_ratio)
    credit = masked_credit(advantages, loss_mask)
    weight = torch.where(credit < 0, weighing.exp().clamp(max=1.0), 1.0)
    loss = -weight * credit * torch.where(loss_mask, policy_logprobs, 0.0)
    metrics = ratio_metrics(log_ratio, loss_mask, (credit < 0) & (weighing > 0), bounded=weighing)
    return summed(loss, loss_mask, token_weight), metrics
