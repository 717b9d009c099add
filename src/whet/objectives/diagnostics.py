"""Measures balance, clipping and drift of one update's tokens, as plain numbers to log."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from whet.objectives.entropy import sampled_entropy_change
from whet.objectives.ratio import MAX_LOG_RATIO, log_ratios, unbounded_log_ratios

USUAL = (0.8, 1.2)
"""PPO's bounds, with which other bounds are compared."""
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def effective_sample_size(weights: Tensor) -> float:
    """Kish's effective sample size of importance weights, as a share of their number: `(sum w)^2 / (n sum w^2)`.

    Args:
        weights: any shape, n of them, not negative.
    Returns: from 1 / n (one weight is all) to 1 (all weights are equal); NaN where no weight is above 0.
    """
    weights = weights.double().flatten()
    square = float(weights.square().sum())
    return float(weights.sum().square() / weights.square().sum() / len(weights)) if square > 0 else math.nan


@torch.no_grad()
def ratio_diagnostics(policy_logprobs: Tensor, old_logprobs: Tensor, counts: Sequence[int]) -> dict[str, float]:
    """Effective sample sizes of an update's ratios to the old policy, for any off-policy loss.

    Both levels are reported, as losses weigh by one of them. A loss of token form weighs each token by its ratio. The
    unbiased weight of a whole reply is the product of its tokens' ratios, which spreads with the reply's length.

    Args:
        policy_logprobs, old_logprobs: [N], the trained tokens, row after row.
        counts: tokens of each row; they add up to N.
    Returns: those that have a value.
        `ratio/effective_samples` is of the tokens' ratios.
        `ratio/effective_rows` is of the rows' ratios, each the product of its tokens' (its log within 20 nats).
    """
    everywhere = torch.ones_like(policy_logprobs, dtype=torch.bool)
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, everywhere)
    sizes = torch.tensor(counts, dtype=torch.long, device=log_ratio.device)
    row_of = torch.repeat_interleave(torch.arange(len(counts), device=log_ratio.device), sizes)
    total = torch.zeros(len(counts), dtype=torch.float64, device=log_ratio.device)
    total = total.index_add(0, row_of, log_ratio.double()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    metrics = {
        "ratio/effective_samples": effective_sample_size(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).double().exp()),
        "ratio/effective_rows": effective_sample_size(total[sizes > 0].exp()),
    }
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


@torch.no_grad()
def update_diagnostics(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    entropies: Tensor,
    pushes: Tensor,
    *,
    low: float | None = None,
    high: float | None = None,
    dual: float | None = None,
) -> dict[str, float]:
    """Measures of one update, before it is made. All inputs are [N], the trained tokens.

    Args:
        entropies: of the distributions that the tokens are drawn from, under the policy.
        pushes: minus the derivative of the loss by each token's logprob, with a token weight of 1. For any loss they
            show which tokens keep a gradient, and how much.
        low, high, dual: bounds of a clipped surrogate. None: the loss has none, and its value is its push.
    Returns: those that have a value, by name.

        - `balance/share_raw`, `balance/share`, `balance/share_gradient`: P / (P + N) by the sign of A. They are of
            `r |A|` with ratios as they are, of the clipped surrogate, and of the pushes.
        - `balance/tokens_positive`: share of good tokens among those with credit.
        - `clip/let_in_positive`, `clip/let_in_negative`: share of tokens that keep a gradient and that PPO's bounds
            (0.8, 1.2) would stop. `..._probability` is their mean probability under the old policy.
        - `clip/shut_out`: share of tokens the other way round.
        - `ratio/q01` ... `ratio/q99` (the upper of two middle ones), `ratio/effective_samples` (as a share of all).
        - `entropy/predicted`: the Entropy-Clip Rule's change of entropy, for a step of size 1.
    """
    everywhere = torch.ones_like(policy_logprobs, dtype=torch.bool)
    ratio = log_ratios(policy_logprobs, old_logprobs, everywhere).double().exp()
    credit, pushes = advantages.double(), pushes.double()
    if len(ratio) == 0:
        return {}
    good, bad = credit > 0, credit < 0
    survives = (good | bad) & (pushes != 0)
    usual = (good & (ratio < USUAL[1])) | (bad & (ratio > USUAL[0]))
    value = pushes
    if low is not None and high is not None:
        value = torch.minimum(ratio.clamp(low, high) * credit, ratio * credit)
        value = value if dual is None else torch.where(bad, torch.maximum(value, dual * credit), value)
    metrics = {
        "balance/share_raw": _share(ratio * credit, good, bad),
        "balance/share": _share(value, good, bad),
        "balance/share_gradient": _share(pushes, good, bad),
        "balance/tokens_positive": float(good.sum() / (good | bad).sum()),
        "clip/shut_out": float((usual & ~survives).double().mean()),
        "ratio/effective_samples": effective_sample_size(ratio),
        "entropy/predicted": float(sampled_entropy_change(policy_logprobs.double(), entropies.double(), pushes)),
    }
    for name, sign in (("positive", good), ("negative", bad)):
        let_in = survives & ~usual & sign
        metrics[f"clip/let_in_{name}"] = float(let_in.double().mean())
        if bool(let_in.any()):
            metrics[f"clip/let_in_{name}_probability"] = float(old_logprobs[let_in].double().exp().mean())
    ordered, _ = ratio.sort()
    for name, level in QUANTILES.items():
        metrics[f"ratio/{name}"] = float(ordered[min(int(level * len(ordered)), len(ordered) - 1)])
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _share(gains: Tensor, good: Tensor, bad: Tensor) -> float:
    """P / (P + N) of absolute gains."""
    positive, negative = float(gains[good].abs().sum()), float(gains[bad].abs().sum())
    return positive / (positive + negative) if positive + negative > 0 else math.nan
