"""Losses that clip the ratio: PPO, and with other bounds clip-higher (DAPO) and BAPO; dual clip; the likelihood.

Every loss of this folder returns a sum over trained tokens, weighted by `token_weight`, and metrics that are sums too.
`aggregation_weights` takes the weights over the whole minibatch. With them the micro-batches' losses, gradients and
metrics add up to the minibatch's. Only metrics ending in `_max` combine by maximum.

Bounds are bounds on the ratio itself (0.8 and 1.2), never distances from 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.objectives.ratio import log_ratios, masked_credit, ratio_metrics, summed


def clipped_policy_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    low: float,
    high: float,
    dual: float | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped surrogate (arXiv:1707.06347, eq. 7): `-min(r A, clip(r, low, high) A)`. All inputs are [B, T].

    0.8 and 1.2 are PPO's bounds, 0.8 and 1.28 DAPO's (clip-higher, arXiv:2503.14476); BAPO's are found by
    `balanced_bounds` before every update.

    Args:
        policy_logprobs: the sampled tokens under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy this update started from. Taken as numbers, like `advantages`.
        advantages: credit per token.
        loss_mask: bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: multiplies each token's loss. [B, 1] if one weight a row, as `aggregation_weights` gives.
        low, high: bounds on the ratio. With A > 0 only the upper one acts, with A < 0 only the lower one.
        dual: more than 1, usually 3. A bad token's loss is at most `-dual * A`, so that one that grew much likelier
            cannot dominate (dual clip, arXiv:1912.09729). None: no such bound.
    Returns: the loss (a weighted sum) and detached, unweighted metrics over trained tokens. `num_clipped_low` and
        `num_clipped_high` count tokens whose push a bound stopped; `num_dual` those that the dual clip did;
        `approx_kl_sum` is KL(old || policy) by k3.
    """
    if dual is not None and dual <= 1:
        raise ValueError(f"the dual clip has to be more than 1, got {dual}: at 1 it would stop tokens on policy")
    log_ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask)
    ratio = log_ratio.exp()
    credit = masked_credit(advantages, loss_mask)
    plain = ratio * credit
    clipped = ratio.clamp(low, high) * credit
    gain = torch.minimum(plain, clipped)
    too_likely = torch.zeros_like(loss_mask)
    if dual is not None:
        too_likely = loss_mask & (credit < 0) & (gain < dual * credit)
        gain = torch.where(too_likely, dual * credit, gain)
    metrics = ratio_metrics(log_ratio, loss_mask, clipped < plain)
    return summed(-gain, loss_mask, token_weight), metrics | ({} if dual is None else {"num_dual": too_likely.sum()})


def weighted_nll(
    policy_logprobs: Tensor, weights: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log likelihood times a weight: SFT (weights 1), filtered imitation (0 or 1), REINFORCE (an advantage).

    Args:
        policy_logprobs: [B, T]. The row's tokens under the policy being trained; carries the gradient.
        weights: [B, T]. Taken as numbers; a negative one pushes its token down, without bound.
        loss_mask: [B, T] bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: [B, T] or [B, 1], see `clipped_policy_loss`.
    Returns: the loss (a weighted sum) and detached metrics over trained tokens: `num_tokens`, `nll_sum` (neither
        `weights` nor `token_weight` in it), `weight_sum`.
    """
    nll = -torch.where(loss_mask, policy_logprobs, 0.0)
    weights = masked_credit(weights, loss_mask)
    loss = summed(nll * weights, loss_mask, token_weight)
    return loss, {"num_tokens": loss_mask.sum(), "nll_sum": nll.detach().sum(), "weight_sum": weights.sum()}
