"""How far BAPO's search can move the share of good tokens, as lines of text: before any rollout, and on batches."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch

from whet.config.losses import BalancedBounds
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import contributions, least_start_share, reach, target_share
from whet.trainer.losses import bounds_rule
from whet.types import Row


def in_advance(bounds: BalancedBounds, step: int | None) -> str:
    """The search's target and limits by its settings alone, a line of at most 80 characters.

    Args:
        step: the first step that trains the policy. None: not known in advance.
    """
    rule = bounds_rule(bounds)
    least = least_start_share(rule)
    starts = f"never from below {least:.1%}" if least else "from any start"
    when = "in training" if step is None else f"at step {step}"
    return f"reach of the search: target {target_share(rule):.1%}, {starts}; measured {when}"


def is_fresh(rows: Sequence[Row], policy: Policy) -> bool:
    """Whether the policy's present weights sampled every token, so that all ratios are 1."""
    return all(version == policy.version for row in rows for version, _ in row.versions)


def measured(
    bounds: BalancedBounds, rows: Sequence[Row], policy: Policy, *, at_start: bool, token_budget: int
) -> list[str]:
    """The range of shares that the search can reach on these rows, and why it falls short. [] without credit.

    Args:
        policy: as it is now. Rows that older weights sampled are scored with it once.
        at_start: whether this step's first weights are the ratio's denominator. All ratios are 1 then.
        token_budget: tokens of one pass.
    """
    rows = [row for row in rows if row.credit.any() and row.logprobs is not None]
    if not rows:
        return []
    all_1 = at_start or is_fresh(rows, policy)
    old_N = torch.cat([torch.tensor(row.logprobs) for row in rows])
    policy_N = old_N if all_1 else torch.cat(score(policy, rows, token_budget=token_budget))
    credit_N = torch.cat([torch.tensor(row.credit) for row in rows])
    rule, everywhere = bounds_rule(bounds), torch.ones_like(old_N, dtype=torch.bool)
    weight_N = old_N.exp() if bounds.token_weight == "old" else None
    within = reach(contributions(policy_N, old_N, credit_N, everywhere, rule, token_weight=weight_N), rule)
    stays = within.start >= within.target
    verdict = "it stays" if stays else "out of reach" if within.is_short else "within reach"
    lines = [f"search reaches {within.start:.1%} to {within.most:.1%}, target {within.target:.1%}: {verdict}"]
    if within.is_short and not stays:
        good = float((credit_N > 0).sum() / (credit_N != 0).sum())
        ratio_N, low, high = (policy_N - old_N).exp(), rule.low.values[-1], rule.high.start
        past = ((credit_N > 0) & (ratio_N > high)) | ((credit_N < 0) & (ratio_N < low))
        why = "all ratios are 1" if all_1 else f"past a bound {float(past.double().mean()):.1%}"
        lines.append(f"{why}; good tokens {good:.1%}, {_length(rows, 1)} a reply (bad: {_length(rows, -1)})")
    return lines


def _length(rows: Sequence[Row], sign: int) -> str:
    """The mean number of trained tokens, over rows whose credit adds up to a number of that sign."""
    lengths = [row.num_trained for row in rows if sign * float(row.credit.sum()) > 0]
    return f"{fmean(lengths):.0f}" if lengths else "none"
