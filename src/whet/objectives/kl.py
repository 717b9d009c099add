"""Estimators of KL(policy || ref) from the logprobs of tokens sampled from the policy, one number a token.

After J. Schulman, "Approximating KL divergence" (joschu.net/blog/kl-approx.html), with `r = ref / policy`. All three
take and give tensors of any one shape; masking and summing is the caller's.

As a *penalty inside the reward* (no gradient through it) k1 is the unbiased choice, and the one of the Critique-RL
code. As a *loss term* k1 is useless: its gradient is the score function, whose expectation is 0. In expectation k2's
gradient is that of KL(policy || ref), and k3's that of KL(ref || policy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound on a log ratio before it is exponentiated, far past any clip. Without it a ratio overflows to inf, and inf
times a gradient of 0 is NaN. Past it a token's ratio gives it no gradient. That loses nothing. A token 20 nats less
likely than it was has a ratio of 2e-9. One 20 nats likelier had a chance of 2e-9 at most when it was sampled. Sums over
a row's tokens are bounded as a whole (`ratio.sequence_log_ratios`)."""


def k1(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`-log r`: unbiased, either sign, high variance."""
    return policy_logprobs - ref_logprobs


def k2(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`(log r)^2 / 2`: biased, never negative, low variance."""
    return (policy_logprobs - ref_logprobs).square() / 2


def k3(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`r - 1 - log r`: unbiased, never negative, low variance while `r` is near 1; grows like `r` when it is not.

    Past `MAX_LOG_RATIO` it continues along its tangent instead of overflowing, and keeps a gradient."""
    log_r = ref_logprobs - policy_logprobs
    held, beyond = log_r.clamp(max=MAX_LOG_RATIO), (log_r - MAX_LOG_RATIO).clamp(min=0.0)
    # expm1 keeps the digits that `exp(x) - 1` loses near 0; its last bit may still fall on the wrong side.
    return (torch.expm1(held) - held).clamp(min=0.0) + math.expm1(MAX_LOG_RATIO) * beyond


ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def kl_loss(
    policy_logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor, token_weight: Tensor, *, estimator: str = "k2"
) -> tuple[Tensor, dict[str, Tensor]]:
    """A KL term of the loss, to be added to a policy loss times its coefficient. All inputs are [B, T].

    Args:
        policy_logprobs: the sampled tokens under the policy being trained; carries the gradient.
        ref_logprobs: the same tokens under the reference. Taken as numbers.
        loss_mask: bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: as in `clipped_policy_loss`.
        estimator: a name of `ESTIMATORS`; GRPO's is k3.
    Returns: the weighted sum, and `kl_ref_sum`, unweighted and detached.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown KL estimator {estimator!r}: choose one of {', '.join(ESTIMATORS)}.")
    policy_logprobs = torch.where(loss_mask, policy_logprobs, 0.0)
    kl = ESTIMATORS[estimator](policy_logprobs, torch.where(loss_mask, ref_logprobs.detach(), 0.0))
    loss = torch.where(loss_mask, kl * token_weight, 0.0).sum()
    return loss, {"kl_ref_sum": torch.where(loss_mask, kl.detach(), 0.0).sum()}
