"""The policy losses, and the likelihood: from logprobs and credit to a sum over trained tokens.

`clipped_policy_loss` (PPO) states the arguments and the result that all of them share. Each loss multiplies a token's
loss by `token_weight`, which `aggregation_weights` takes over the whole minibatch. So the micro-batches' losses,
gradients and metrics add up to the minibatch's. Only metrics that end in `_max` combine by maximum.

Bounds are bounds on the ratio itself (0.8 and 1.2), never distances from 1. Past a bound, a clip or a mask takes
the token's gradient away. A ratio that only weighs the gradient leaves it some.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.ratio import (
    MAX_LOG_RATIO,
    log_ratios,
    masked_credit,
    ratio_metrics,
    sequence_log_ratios,
    summed,
    unbounded_log_ratios,
)

Divergence = Literal["tv", "kl"]
"""How `dppo_loss` measures how far a probability has moved: total variation or KL."""
Level = Literal["token", "sequence"]
"""Whose ratio `topr_loss` weighs a token by."""

# --- clipped ratios: PPO, GSPO ----------------------------------------------------------------------------------------


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

    0.8 and 1.2 are PPO's bounds, 0.8 and 1.28 DAPO's (clip-higher, arXiv:2503.14476).
    `balanced_bounds` searches for BAPO's before every update.

    Args:
        policy_logprobs: the sampled tokens under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy this update started from. Taken as numbers, like `advantages`.
        advantages: credit per token.
        loss_mask: bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: multiplies each token's loss. [B, 1] if one weight a row, as `aggregation_weights` gives.
        low, high: bounds on the ratio. With A > 0 only the upper one acts, with A < 0 only the lower one.
        dual: more than 1, usually 3. It bounds a bad token's loss by `-dual * A`, so that a token that grew much
            likelier cannot dominate (dual clip, arXiv:1912.09729). None: no such bound.
    Returns: the loss (a weighted sum, to minimise), and the metrics of `ratio_metrics` (detached, unweighted sums).
        With `dual`, `num_dual` counts the tokens that the dual clip stopped.
    Raises: ValueError where `dual` is at most 1.
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


def gspo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    low: float = 1 - 3e-4,
    high: float = 1 + 4e-4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO (arXiv:2507.18071): PPO's surrogate on `s = exp(mean_t log r_t)` of the row, shared by its tokens.

    Written per token, `s_t = sg(s) * pi_t / sg(pi_t)`, so that credit may differ from token to token. With one credit
    a row and aggregation `sequence_mean`, the gradient is the paper's. Sequence ratios stay close to 1, so the bounds
    are narrow: PPO's 0.8 and 1.2 would hardly ever act.

    Args:
        low, high: bounds on s. The other arguments are those of `clipped_policy_loss`. A row has to be whole.
    """
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask)
    log_s = sequence_log_ratios(log_ratio, loss_mask, mean=True) + (log_ratio - log_ratio.detach())
    s = log_s.exp()
    credit = masked_credit(advantages, loss_mask)
    plain, clipped = s * credit, s.clamp(low, high) * credit
    token_log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    metrics = ratio_metrics(token_log_ratio, loss_mask, clipped < plain, bounded=log_s)
    return summed(-torch.minimum(plain, clipped), loss_mask, token_weight), metrics


# --- a soft gate, and masks: SAPO, M2PO, DPPO -------------------------------------------------------------------------


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

    On policy its gradient is REINFORCE's, thanks to the 4. The paper averages over tokens, then over rows.

    Args:
        tau_positive, tau_negative: above 0; how fast the gate closes, by the sign of A. The other arguments are those
            of `clipped_policy_loss`.
    """
    log_ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    tau = tau_negative + (tau_positive - tau_negative) * (credit > 0).to(credit.dtype)
    loss = -4 / tau * torch.sigmoid(tau * (log_ratio.exp() - 1)) * credit
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, torch.zeros_like(loss_mask))


def m2po_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    limit: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """M2PO (arXiv:2510.01161): `-M r A` without a clip; M masks the tokens past the limit.

    The divisors in `token_weight` still count the dropped tokens.

    Args:
        limit: squared nats, from `second_moment_limit` of the whole batch. The other arguments are those of
            `clipped_policy_loss`.
    """
    # The limit is a limit on unbounded ratios.
    unbounded = unbounded_log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    log_ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    dropped = _could_stop(unbounded, credit) & (unbounded.double().square() > limit)
    loss = torch.where(dropped, 0.0, -log_ratio.exp() * credit)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, dropped)


@torch.no_grad()
def second_moment_limit(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, *, budget: float = 0.04
) -> float:
    """M2PO's mask (arXiv:2510.01161), as a limit on `(log r)^2`, from all tokens of an update.

    A clip could stop tokens with A > 0 and r > 1, or with A < 0 and r < 1. The mask drops the one with the largest
    `(log r)^2` among these, until the mean of the others is at most the budget. Equal squares go together.

    Args:
        policy_logprobs, old_logprobs, advantages, loss_mask: of any one shape, and of the whole batch
            (of all ranks).
        budget: the paper's tau, in squared nats.
    Returns: the largest square that stays, in squared nats; -1 where none stays, inf where all do.
    """
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask)
    could_stop = _could_stop(log_ratio, masked_credit(advantages, loss_mask))
    squares, _ = log_ratio[could_stop].double().square().sort()
    means = squares.cumsum(0) / torch.arange(1, len(squares) + 1, device=squares.device)
    num_within = int((means <= budget).sum())  # means of a sorted list never fall
    if num_within == len(squares):
        return math.inf
    # What equals the first square past the budget goes with it.
    below = squares[squares < squares[num_within]]
    return float(below[-1]) if len(below) else -1.0


def _could_stop(log_ratio: Tensor, credit: Tensor) -> Tensor:
    """True where the ratio has moved in the direction in which the credit pushes."""
    return ((credit > 0) & (log_ratio > 0)) | ((credit < 0) & (log_ratio < 0))


def dppo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    divergence: Divergence = "tv",
    low: float = 0.2,
    high: float = 0.2,
    max_ratio: float = 20.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """DPPO (arXiv:2602.04879, eq. 12 and 14): `-sg(min(r, max_ratio)) A log pi`, on the tokens that stay.

    The trust region bounds how far a token's probability moves, and not its ratio. The loss drops a token that has
    moved past the bound and whose credit pushes it further. It takes a token as a coin: this one, or any other.
    With p its probability now and q its old one, the distance is `|p - q|` (`tv`, total variation) or
    `q log(q / p) + (1 - q) log((1 - q) / (1 - p))` (`kl`). So a rare token may change by a large ratio, and a likely
    one may not.

    Args:
        old_logprobs: under the policy that sampled. The paper anchors the trust region there.
        low: at least 0, and at most 1 for `tv`. Bounds the distance of bad tokens (A < 0) that became less likely.
        high: the same range. Bounds the distance of good tokens (A > 0) that became more likely.
        max_ratio: at least 1. The ratio weighs the gradient by no more than this. The other arguments are those of
            `clipped_policy_loss`.
    Raises: ValueError where `divergence` is neither.
    """
    if divergence not in get_args(Divergence):
        raise ValueError(f"unknown divergence {divergence!r}: choose one of {', '.join(get_args(Divergence))}.")
    log_ratio = log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    distance = _distance(divergence, policy_logprobs.detach(), old_logprobs.detach(), loss_mask)
    dropped = ((credit > 0) & (log_ratio > 0) & (distance > high)) | ((credit < 0) & (log_ratio < 0) & (distance > low))
    weight = log_ratio.exp().clamp(max=max_ratio)
    token_loss = -weight * credit * torch.where(loss_mask, policy_logprobs, 0.0)
    loss = torch.where(dropped, 0.0, token_loss)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, dropped)


@torch.no_grad()
def _distance(divergence: Divergence, policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """How far each sampled token's probability has moved: [0, 1] for `tv`, nats for `kl`; 0 where masked."""
    log_p = torch.where(loss_mask, policy_logprobs, -1.0).double()
    log_q = torch.where(loss_mask, old_logprobs, -1.0).double()
    # Logprobs of different kernels may be a rounding error above 0.
    p, q = log_p.exp().clamp(max=1.0), log_q.exp().clamp(max=1.0)
    if divergence == "tv":
        return torch.where(loss_mask, (p - q).abs(), 0.0)
    tiny = torch.finfo(torch.float64).tiny  # impossible now, possible before: far, not infinitely far
    sampled = torch.xlogy(q, q) - torch.xlogy(q, p.clamp(min=tiny))
    other = torch.xlogy(1 - q, 1 - q) - torch.xlogy(1 - q, (1 - p).clamp(min=tiny))
    return torch.where(loss_mask, (sampled + other).clamp(min=0.0), 0.0)


# --- ratios as weights of the gradient: REINFORCE, CISPO, TOPR --------------------------------------------------------


def reinforce_loss(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """REINFORCE: `-A log pi`. Arguments and results are those of `clipped_policy_loss`.

    The metrics report the ratio, but the loss does not use it. So off policy its gradient is biased.
    """
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

    In effect the paper sets no lower bound and tunes the upper one. TRL recommends 0 and 5, and SkyRL ships them.
    With `low=0` and `high=C` it is truncated importance sampling as the main loss. No token loses all its gradient.

    Args:
        low, high: bounds on the ratio. The other arguments are those of `clipped_policy_loss`.
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
    """Tapered off-policy REINFORCE (TOPR, arXiv:2503.14286): `-w A log pi`.

    w is 1 for good tokens (A > 0), and min(1, r) for bad ones.

    Args:
        level: `sequence` (the paper): r is the product of the row's token ratios. `token`: r is the token's ratio. The
            other arguments are those of `clipped_policy_loss`.
    Raises: ValueError where `level` is neither.
    """
    if level not in get_args(Level):
        raise ValueError(f"unknown level {level!r}: choose one of {', '.join(get_args(Level))}.")
    unbounded = unbounded_log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    log_ratio = log_weight = unbounded.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if level == "sequence":
        log_weight = sequence_log_ratios(unbounded, loss_mask).expand_as(log_ratio)
    credit = masked_credit(advantages, loss_mask)
    weight = torch.where(credit < 0, log_weight.exp().clamp(max=1.0), 1.0)
    loss = -weight * credit * torch.where(loss_mask, policy_logprobs, 0.0)
    metrics = ratio_metrics(log_ratio, loss_mask, (credit < 0) & (log_weight > 0), bounded=log_weight)
    return summed(loss, loss_mask, token_weight), metrics


# --- the likelihood ---------------------------------------------------------------------------------------------------


def weighted_nll(
    policy_logprobs: Tensor, weights: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log likelihood times a weight: 1 for SFT, 0 or 1 for filtered imitation, an advantage for REINFORCE.

    Args:
        policy_logprobs: [B, T], nats. The row's tokens under the policy being trained; carries the gradient.
        weights: [B, T]. Taken as numbers; a negative one pushes its token down, without bound.
        loss_mask: [B, T] bool. True where the token trains; other positions are ignored, even if NaN.
        token_weight: [B, T] or [B, 1], see `clipped_policy_loss`.
    Returns: the loss (a weighted sum), and detached sums over trained tokens: `num_tokens`, `weight_sum`, and
        `nll_sum` without either weight.
    """
    nll = -torch.where(loss_mask, policy_logprobs, 0.0)
    weights = masked_credit(weights, loss_mask)
    loss = summed(nll * weights, loss_mask, token_weight)
    return loss, {"num_tokens": loss_mask.sum(), "nll_sum": nll.detach().sum(), "weight_sum": weights.sum()}
