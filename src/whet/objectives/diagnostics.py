"""What one update's tokens say about balance, clipping and drift, as plain numbers to log."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whet.objectives.entropy import sampled_entropy_change
from whet.objectives.ratio import log_ratios

USUAL = (0.8, 1.2)
"""PPO's bounds: what others let in is told against them."""
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


@torch.no_grad()
def update_diagnostics(
    policy_logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, entropies: Tensor, *, low: float, high: float
) -> dict[str, float]:
    """Measures of one update, before it is made. All inputs are [N], the trained tokens.

    Args:
        entropies: of the distributions that the tokens come from, under the policy.
        low, high: the bounds on the ratio that the loss uses; 0 and inf where it has none.
    Returns:
        `balance/share_raw`, `balance/share`, `balance/share_gradient`: P / (P + N) of `sum r |A|` by the sign of A,
            with ratios as they are, clipped, and of the tokens alone that keep a gradient;
        `balance/tokens_positive`: share of good tokens among those with credit;
        `clip/let_in_positive`, `clip/let_in_negative`: share of tokens that these bounds let through and those of PPO
            (0.8, 1.2) would stop, and `..._probability`, their mean probability under the old policy;
        `clip/shut_out`: share of tokens the other way round;
        `ratio/q01` ... `ratio/q99`, `ratio/effective_samples` (as a share of all);
        `entropy/predicted`: the Entropy-Clip Rule's change of entropy, for a step of size 1.
        What has no value (no such token) is left out.
    """
    everywhere = torch.ones_like(policy_logprobs, dtype=torch.bool)
    ratio = log_ratios(policy_logprobs, old_logprobs, everywhere).double().exp()
    credit = advantages.double()
    if len(ratio) == 0:
        return {}
    survives = _survives(ratio, credit, low, high)
    usual = _survives(ratio, credit, *USUAL)
    good, bad = credit > 0, credit < 0
    found = {
        "balance/share_raw": _share(ratio * credit),
        "balance/share": _share(ratio.clamp(low, high if math.isfinite(high) else None) * credit, ratio * credit),
        "balance/share_gradient": _share(torch.where(survives, ratio * credit, 0.0)),
        "balance/tokens_positive": float(good.sum() / (good | bad).sum()),
        "clip/shut_out": float((usual & ~survives).double().mean()),
        "ratio/effective_samples": float(ratio.sum().square() / ratio.square().sum() / len(ratio)),
        "entropy/predicted": float(
            sampled_entropy_change(
                policy_logprobs.double(), entropies.double(), torch.where(survives, ratio * credit, 0.0)
            )
        ),
    }
    for name, sign in (("positive", good), ("negative", bad)):
        let_in = survives & ~usual & sign
        found[f"clip/let_in_{name}"] = float(let_in.double().mean())
        if bool(let_in.any()):
            found[f"clip/let_in_{name}_probability"] = float(old_logprobs[let_in].double().exp().mean())
    ordered, _ = ratio.sort()
    for name, level in QUANTILES.items():
        found[f"ratio/{name}"] = float(ordered[min(int(level * len(ordered)), len(ordered) - 1)])
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _survives(ratio: Tensor, credit: Tensor, low: float, high: float) -> Tensor:
    """Where a clipped loss leaves the token its gradient."""
    return ((credit > 0) & (ratio < high)) | ((credit < 0) & (ratio > low))


def _share(gains: Tensor, plain: Tensor | None = None) -> float:
    """P / (P + N). With `plain`, the smaller gain of the two counts, as in the surrogate."""
    if plain is not None:
        gains = torch.minimum(gains, plain)
    positive, negative = float(gains.clamp(min=0).sum()), float(-gains.clamp(max=0).sum())
    return positive / (positive + negative) if positive + negative > 0 else math.nan
