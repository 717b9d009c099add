"""How far BAPO's search can move the share of good tokens, in sentences: before any rollout, and on a first batch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch

from whet.config.losses import BalancedBounds
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.objectives import contributions, least_start_share, reach, target_share
from whet.training.losses import bounds_rule
from whet.types import Row


def in_advance(bounds: BalancedBounds) -> str:
    """What the settings alone say of the search, a line."""
    rule = bounds_rule(bounds)
    target, least = target_share(rule), least_start_share(rule)
    if not least:
        text = "no start is too low for it in advance, as a stopped token counts nothing"
    else:
        text = f"from a start below {least:.1%} no ratios let it get there"
    aim = f"target {target:.1%} of the weight for good tokens"
    return f"reach of the search: {aim}; {text}; measured on the first batch that is trained on"


def measured(bounds: BalancedBounds, rows: Sequence[Row], policy: Policy, *, at_start: bool, token_budget: int) -> str:
    """What the search can reach on these rows under the policy as it is, and why, in two sentences; "" without credit.

    Args:
        at_start: ratios are to the weights that this step starts from, so all are 1.
        token_budget: of a pass; rows of older weights are scored once.
    """
    rows = [row for row in rows if row.credit.any() and row.logprobs is not None]
    if not rows:
        return ""
    is_fresh = at_start or all(version == policy.version for row in rows for version, _ in row.versions)
    old_N = torch.cat([torch.tensor(row.logprobs) for row in rows])
    policy_N = old_N if is_fresh else torch.cat(score(policy, rows, token_budget=token_budget))
    credit_N = torch.cat([torch.tensor(row.credit) for row in rows])
    rule, everywhere = bounds_rule(bounds), torch.ones_like(old_N, dtype=torch.bool)
    weight_N = old_N.exp() if bounds.token_weight == "old" else None
    found = reach(contributions(policy_N, old_N, credit_N, everywhere, rule, token_weight=weight_N), rule)
    low, high = rule.low.values, rule.high.values
    text = (
        f"reach of the search: good tokens have {found.start:.1%} of the weight at its starts ({low[0]:g}, "
        f"{high[0]:g}), {found.end:.1%} at its ends ({low[-1]:g}, {high[-1]:g}), and at most {found.most:.1%} between; "
        f"target {found.target:.1%}. "
    )
    if found.start >= found.target:
        return text + "The starts meet the target, so this search stays there."
    ratio_N = (policy_N - old_N).exp()
    past = ((credit_N > 0) & (ratio_N > high[0])) | ((credit_N < 0) & (ratio_N < low[-1]))
    why = f"good replies have {_length(rows, 1)} tokens and bad ones {_length(rows, -1)}, and good tokens are " + (
        f"{float((credit_N > 0).sum() / (credit_N != 0).sum()):.1%} of those with credit"
    )
    if is_fresh:
        why += "; before the first update every ratio is 1, and no bound acts"
    else:
        why += f"; {float(past.double().mean()):.1%} of the tokens are past a bound"
    if found.is_short:
        return text + f"The search cannot reach it: {why}."
    return text + f"It is within reach: {why}."


def _length(rows: Sequence[Row], sign: int) -> str:
    """The mean number of trained tokens of rows whose credit adds up to that sign."""
    lengths = [row.num_trained for row in rows if sign * float(row.credit.sum()) > 0]
    return f"{fmean(lengths):.0f}" if lengths else "no"
