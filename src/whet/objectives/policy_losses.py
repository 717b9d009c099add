"""Losses on sampled tokens: PPO's clipped surrogate, and the weighted likelihood of imitation.

Each returns a sum over trained tokens, weighted by `token_weight`, and metrics that are sums too. With the weights of
`aggregation_weights` (taken over the whole minibatch) the micro-batches' losses, gradients and metrics add up to the
minibatch's; of the metrics only those ending in `_max` combine by maximum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.objectives.kl import k3

MAX_LOG_RATIO = 20.0
"""Bound on |log ratio|, far past any clip. Without it a ratio overflows to inf, and inf times a gradient of 0 is NaN.
Past it a token gets no gradient."""


def clipped_policy_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate (arXiv:1707.06347, eq. 7): `-min(ratio * A, clip(ratio) * A)`. All inputs are [B, T].

    Args:
        policy_logprobs: the sampled tokens under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy this update started from. Taken as numbers, like `advantages`.
        advantages: credit per token.
        loss_mask: bool, True where the token trains; other positions are ignored, even if NaN.
        token_weight: multiplies each token's loss; [B, 1] if one weight a row, as `aggregation_weights` gives.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high]; 0.2 and 0.2 in the paper.
    Returns: the loss (a weighted sum) and detached, unweighted metrics over trained tokens. `num_clipped_low` and
        `num_clipped_high` count tokens whose push a clip stopped; `approx_kl_sum` is KL(old || policy) by k3.
    """
    log_ratio = (policy_logprobs - old_logprobs.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    log_ratio = torch.where(loss_mask, log_ratio, 0.0)
    ratio = log_ratio.exp()
    credit = torch.where(loss_mask, advantages.detach(), 0.0)
    plain = ratio * credit
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * credit
    loss = torch.where(loss_mask, -torch.minimum(plain, clipped) * token_weight, 0.0).sum()
    with torch.no_grad():
        stopped = loss_mask & (clipped < plain)
        metrics = {
            "num_tokens": loss_mask.sum(),
            "num_clipped_low": (stopped & (ratio < 1)).sum(),
            "num_clipped_high": (stopped & (ratio > 1)).sum(),
            "approx_kl_sum": k3(torch.zeros_like(log_ratio), log_ratio).sum(),  # 0 where masked: log_ratio is 0 there
            "ratio_sum": torch.where(loss_mask, ratio, 0.0).sum(),
            "ratio_max": torch.where(loss_mask, ratio, 0.0).amax(),
        }
    return loss, metrics


def weighted_nll(
    policy_logprobs: Tensor, weights: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log likelihood times a weight: SFT (weights 1), filtered imitation (0 or 1), REINFORCE (an advantage).

    Args:
        policy_logprobs: [B, T], the row's tokens under the policy being trained; carries the gradient.
        weights: [B, T], taken as numbers; a negative one pushes its token down, without bound.
        loss_mask: [B, T] bool, True where the token trains; other positions are ignored, even if NaN.
        token_weight: [B, T] or [B, 1], see `clipped_policy_loss`.
    Returns: the loss (a weighted sum) and detached metrics over trained tokens: `num_tokens`, `nll_sum` (neither
        `weights` nor `token_weight` in it), `weight_sum`.
    """
    nll = -torch.where(loss_mask, policy_logprobs, 0.0)
    weights = torch.where(loss_mask, weights.detach(), 0.0)
    loss = torch.where(loss_mask, nll * weights * token_weight, 0.0).sum()
    return loss, {"num_tokens": loss_mask.sum(), "nll_sum": nll.detach().sum(), "weight_sum": weights.sum()}
