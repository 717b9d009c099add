"""Estimators of KL(policy || ref) from the logprobs of tokens sampled from the policy, one number a token.

After J. Schulman, "Approximating KL divergence" (joschu.net/blog/kl-approx.html), with `r = ref / policy`. All three
take and give tensors of any one shape; masking and summing is the caller's.

As a *penalty inside the reward* (no gradient through it) k1 is the unbiased choice, and the one of the Critique-RL
code. As a *loss term* k1 is useless: its gradient is the score function, whose expectation is 0; k2's gradient is, in
expectation, that of KL(policy || ref), while k3's is that of KL(ref || policy).
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`-log r`: unbiased, either sign, high variance."""
    return policy_logprobs - ref_logprobs


def k2(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`(log r)^2 / 2`: biased, never negative, low variance."""
    return (policy_logprobs - ref_logprobs).square() / 2


def k3(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`r - 1 - log r`: unbiased, never negative, low variance while `r` is near 1; grows like `r` when it is not."""
    log_r = ref_logprobs - policy_logprobs
    # expm1 keeps the digits that `exp(x) - 1` loses near 0; its last bit may still fall on the wrong side.
    return (torch.expm1(log_r) - log_r).clamp(min=0.0)
