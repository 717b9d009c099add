"""The ratio policy / old of each sampled token: bounded, summed over rows, as a KL, and as an importance weight.

Every policy loss is made of these functions. All tensors of a call share one shape, [B, T] where nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Nats. Bounds a log ratio before it is exponentiated, far past any clip. Without it a ratio overflows to inf, and inf
times a gradient of 0 is NaN. Past it a token's ratio gives it no gradient. That loses nothing. A token 20 nats less
likely than it was has a ratio of 2e-9. One 20 nats likelier had a chance of 2e-9 at most when it was sampled. Sums over
a row's tokens are bounded as a whole (`sequence_log_ratios`)."""
IMPOSSIBLE = 1e9
"""Nats. Stands for the log ratio of a token that one of the two policies holds impossible. It is finite, so that sums
stay numbers, and past every bound."""

Outside = Literal["clamp", "drop"]
Scope = Literal["token", "sequence", "geometric"]


# --- ratios, and sums over trained tokens -----------------------------------------------------------------------------


def log_ratios(policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`unbounded_log_ratios`, clamped to `MAX_LOG_RATIO`: ratios of tokens, safe to exponentiate."""
    return unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def unbounded_log_ratios(policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`log(policy / old)` per token, in nats; 0 where masked, whatever stands there. Do not exponentiate it.

    Args:
        policy_logprobs: any shape; carries the gradient.
        old_logprobs: the same tokens under the policy of the ratio's denominator. Taken as numbers.
        loss_mask: bool, True where the token trains.
    """
    log_ratio = torch.where(loss_mask, policy_logprobs - old_logprobs.detach(), 0.0)
    return torch.nan_to_num(log_ratio, nan=math.nan, posinf=IMPOSSIBLE, neginf=-IMPOSSIBLE)


@torch.no_grad()
def sequence_log_ratios(log_ratio: Tensor, loss_mask: Tensor, *, mean: bool = False) -> Tensor:
    """The log of the product of each row's ratios, or of their geometric mean (`mean`), within `MAX_LOG_RATIO`.

    The bound is on the row's sum or mean, so a token far off takes full part in it.

    Args:
        log_ratio: [B, T], from `unbounded_log_ratios`; 0 where masked.
    Returns: [B, 1], without gradient.
    """
    total_B1 = log_ratio.sum(-1, keepdim=True)
    if mean:
        total_B1 = total_B1 / loss_mask.sum(-1, keepdim=True).clamp(min=1)
    return total_B1.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def masked_credit(advantages: Tensor, loss_mask: Tensor) -> Tensor:
    """Advantages as numbers; 0 where masked, whatever stands there."""
    return torch.where(loss_mask, advantages.detach(), 0.0)


def summed(loss: Tensor, loss_mask: Tensor, token_weight: Tensor) -> Tensor:
    """The weighted sum of token losses over trained tokens."""
    return torch.where(loss_mask, loss * token_weight, 0.0).sum()


@torch.no_grad()
def ratio_metrics(
    log_ratio: Tensor, loss_mask: Tensor, stopped: Tensor, *, bounded: Tensor | None = None
) -> dict[str, Tensor]:
    """The metrics of a ratio loss: unweighted sums over trained tokens (`_max`: the largest).

    Args:
        log_ratio: from `log_ratios`.
        stopped: bool, True where a bound of the loss replaces the token's ratio or takes its push away.
        bounded: the log ratio that the bounds act on, where it is the sequence's. None: the token's.
    Returns: scalars: `num_tokens`, `ratio_sum`, `ratio_max`, and `approx_kl_sum` (KL(old || policy) by k3, nats).
        `num_clipped_low` and `num_clipped_high` count the stopped tokens below and above a ratio of 1.
    """
    stopped = loss_mask & stopped
    bounded = log_ratio if bounded is None else bounded
    ratio = torch.where(loss_mask, log_ratio.exp(), 0.0)
    return {
        "num_tokens": loss_mask.sum(),
        "num_clipped_low": (stopped & (bounded < 0)).sum(),
        "num_clipped_high": (stopped & (bounded > 0)).sum(),
        "approx_kl_sum": k3(torch.zeros_like(log_ratio), log_ratio).sum(),  # 0 where masked: log_ratio is 0 there
        "ratio_sum": ratio.sum(),
        "ratio_max": ratio.amax(),
    }


# --- KL from sampled tokens -------------------------------------------------------------------------------------------


def k1(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """KL(policy || ref) as `-log r` with `r = ref / policy`, one number a token: unbiased, either sign, high variance.

    `k1`, `k2` and `k3` are J. Schulman's estimators ("Approximating KL divergence", joschu.net/blog/kl-approx.html),
    for tokens sampled from the policy. They take logprobs of any one shape, and the caller masks and sums.

    As a *penalty inside the reward* (no gradient through it) k1 is the unbiased choice, and Critique-RL's code makes
    it. As a *loss term* k1 is useless: its gradient is the score function, whose expectation is 0. In expectation k2's
    gradient is that of KL(policy || ref), and k3's that of KL(ref || policy).
    """
    return policy_logprobs - ref_logprobs


def k2(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`(log r)^2 / 2`: biased, never negative, low variance. See `k1`."""
    return (policy_logprobs - ref_logprobs).square() / 2


def k3(policy_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """`r - 1 - log r`: unbiased, never negative, low variance while `r` is near 1, and large with `r`. See `k1`.

    Past `MAX_LOG_RATIO` it continues along its tangent: it does not overflow, and its gradient stays.
    """
    log_r = ref_logprobs - policy_logprobs
    bounded, beyond = log_r.clamp(max=MAX_LOG_RATIO), (log_r - MAX_LOG_RATIO).clamp(min=0.0)
    # expm1 keeps the digits that `exp(x) - 1` loses near 0; its last bit may still fall on the wrong side.
    return (torch.expm1(bounded) - bounded).clamp(min=0.0) + math.expm1(MAX_LOG_RATIO) * beyond


ESTIMATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""KL estimators by name."""


def kl_loss(
    policy_logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor, token_weight: Tensor, *, estimator: str = "k2"
) -> tuple[Tensor, dict[str, Tensor]]:
    """KL(policy || ref) as a term of the loss, to add to a policy loss times a coefficient. All inputs are [B, T].

    Args:
        policy_logprobs: the sampled tokens under the policy being trained; carries the gradient.
        ref_logprobs: the same tokens under the reference. Taken as numbers.
        loss_mask: bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: as in `clipped_policy_loss`.
        estimator: a name of `ESTIMATORS`; GRPO's is k3.
    Returns: the weighted sum, and `kl_ref_sum` in nats, unweighted and detached.
    Raises: ValueError where there is no estimator of that name.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown KL estimator {estimator!r}: choose one of {', '.join(ESTIMATORS)}.")
    policy_logprobs = torch.where(loss_mask, policy_logprobs, 0.0)
    kl = ESTIMATORS[estimator](policy_logprobs, torch.where(loss_mask, ref_logprobs.detach(), 0.0))
    return summed(kl, loss_mask, token_weight), {"kl_ref_sum": torch.where(loss_mask, kl.detach(), 0.0).sum()}


# --- weights of off-policy tokens -------------------------------------------------------------------------------------


@torch.no_grad()
def importance_weights(
    proximal_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    loss_mask: Tensor,
    *,
    low: float = 0.0,
    high: float = 2.0,
    outside: Outside = "clamp",
    scope: Scope = "token",
) -> Tensor:
    """`proximal / behaviour` per token, held to [low, high]: weighs tokens that an older policy wrote.

    Three policies meet here. The behaviour policy sampled the tokens, in another engine or with older weights. The
    proximal policy is the trainer's weights before this update, the centre of the clip. The third is the policy. A
    clipped loss takes policy / proximal; this weight is proximal / behaviour and multiplies its `token_weight`. A loss
    whose old logprobs are the behaviour policy's needs no such weight: it would count the difference twice.

    `clamp` to [0, 2]: truncated importance sampling (TIS). `drop` outside [0.5, 2]: IcePop, masked importance sampling.
    `high=inf`: decoupled PPO (AReaL, arXiv:2505.24298) as it stands in the paper.

    Args:
        proximal_logprobs, behaviour_logprobs: [B, T], the same tokens under the two policies, nats.
        loss_mask: [B, T] bool, True where the token trains.
        low, high: bounds on the weight, `0 <= low <= high`.
        outside: `clamp` moves a weight past a bound to the bound. `drop` drops the token (weight 0).
        scope: `token`; `sequence` (the product over the row's trained tokens); `geometric` (its mean per token).
    Returns: [B, T] without gradient; 0 where masked.
    Raises: ValueError where `outside` or `scope` is none of these.
    """
    for name, value, allowed in (("outside", outside, get_args(Outside)), ("scope", scope, get_args(Scope))):
        if value not in allowed:
            raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(allowed)}.")
    log_weight = unbounded_log_ratios(proximal_logprobs, behaviour_logprobs, loss_mask)
    if scope != "token":
        log_weight = sequence_log_ratios(log_weight, loss_mask, mean=scope == "geometric").expand_as(log_weight)
    weight = log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if outside == "clamp":
        weight = weight.clamp(low, high if math.isfinite(high) else None)
    else:
        weight = torch.where((weight < low) | (weight > high), 0.0, weight)
    return torch.where(loss_mask, weight, 0.0)
