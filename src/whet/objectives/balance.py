"""BAPO (arXiv:2510.18927): clip bounds found anew before every update, so that good and bad tokens stay balanced.

The contribution of good tokens to the surrogate `sum min(r A, clip(r, low, high) A)` depends on the upper bound alone,
that of bad ones on the lower bound alone:

    P(high) = sum_{A > 0} w min(r, high) A          share = P / (P + N)
    N(low)  = sum_{A < 0} w max(r, low) |A|         odds  = P / N

So both are computed once at every bound of their range (`contributions`), added up over shards or ranks, and searched
as plain numbers (`search`). The result equals that of the paper's loop, which adds up all tokens again for every
candidate. The bounds serve any loss of token form with bounds on the ratio. They balance the clipped surrogate
(`clipped_policy_loss`). `cispo_loss` clips both signs on both sides, so its pushes are balanced in part only.

Paper and published code disagree on order, target, ranges and token weight, which are settings here. Both count
contributions by `value`. Then raising the lower bound *raises* N: a floored token keeps its value and loses its
gradient. So it never helps to reach the target, and is moved to its end once the upper bound is exhausted. Counted by
`gradient`, as in the paper's prose, a token that a bound stops contributes nothing, and both bounds help.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.ratio import log_ratios, masked_credit

Order = Literal["high_first", "low_first"]
Contribution = Literal["value", "gradient"]
Target = Literal["share", "odds"]
ODDS_EPS = 1e-8
"""In the published code's denominator."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """A bound's candidates: start, start + step, ..."""

    start: float
    ceiling: float
    step: float
    onto_ceiling: bool = False
    """True (published code): the last step is shortened so that it ends on the ceiling. False (paper): a step that
    would pass the ceiling is not taken."""

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.ceiling and self.step >= 0 and math.isfinite(self.ceiling)):
            raise ValueError(
                f"a bound goes from its start up to its ceiling in steps that are not negative, got start "
                f"{self.start}, ceiling {self.ceiling}, step {self.step}"
            )

    @property
    def values(self) -> tuple[float, ...]:
        """Start first. Multiples of the step, not repeated additions: those drift, and lose the last of the paper's
        steps of 0.02 from 0.6 to 0.9. One value where the step is 0 or there is no room: the bound is frozen."""
        if self.step == 0:
            return (self.start,)
        count = math.floor((self.ceiling - self.start) / self.step + 1e-9)
        grid = [self.start + k * self.step for k in range(count + 1)]
        if self.ceiling - grid[-1] <= 1e-9 * self.step:  # there, but for rounding, to either side
            grid[-1] = self.ceiling
        elif self.onto_ceiling:
            grid.append(self.ceiling)
        return tuple(grid)


@dataclass(frozen=True, kw_only=True)
class BoundsRule:
    """How bounds are searched. The defaults are the paper's; `CODE_RULE` and `GRADIENT_RULE` are the other presets."""

    target: float = 0.4
    target_as: Target = "share"
    """Unit of the target: a share P / (P + N) (paper), or odds P / N (published code). Share s is odds s / (1 - s)."""
    order: Order = "high_first"
    """Which bound moves first, to its end (paper: the upper one; published code: the lower one)."""
    contribution: Contribution = "value"
    """What a stopped token contributes: its clipped value (both sources), or nothing, as to the gradient."""
    low: Range = Range(start=0.6, ceiling=0.9, step=0.02)
    high: Range = Range(start=1.2, ceiling=3.0, step=0.05)

    def __post_init__(self) -> None:
        for name, allowed in (("target_as", Target), ("order", Order), ("contribution", Contribution)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(
                    f"unknown {name} {getattr(self, name)!r}: choose one of {', '.join(get_args(allowed))}."
                )
        if not self.target > 0 or (self.target_as == "share" and self.target >= 1):
            allowed_range = "between 0 and 1" if self.target_as == "share" else "more than 0"
            raise ValueError(f"the target {self.target_as} has to be {allowed_range}, got {self.target}")
        if self.low.ceiling > self.high.start:
            raise ValueError(f"the bounds' ranges meet: low up to {self.low.ceiling}, high from {self.high.start}")


PAPER_RULE = BoundsRule()
CODE_RULE = BoundsRule(
    target=1.0,
    target_as="odds",
    order="low_first",
    low=Range(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=Range(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)
"""The published configuration file's; its loss also has a dual clip at 3."""
GRADIENT_RULE = BoundsRule(contribution="gradient")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The result of a search."""

    low: float
    high: float
    positive: float
    """P at these bounds."""
    negative: float
    """N at these bounds."""
    start_share: float
    """P / (P + N) at the start of both ranges; NaN where neither good nor bad tokens are there."""
    num_moves: int
    """Steps taken by both bounds together."""
    met: bool
    """Whether the target was reached. False: both ranges are exhausted."""

    @property
    def share(self) -> float:
        """P / (P + N) at these bounds."""
        return _share(self.positive, self.negative)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The range of the share P / (P + N) of one update within which a search can choose. NaN without credit."""

    start: float
    """At the start of both ranges."""
    end: float
    """At the ceiling of both ranges."""
    most: float
    """The largest share at any pair of bounds on the search's way from start to end."""
    target: float
    """As a share, in whichever unit the rule has it."""

    @property
    def is_short(self) -> bool:
        """Whether the search ends short of its target wherever it stops."""
        return self.most < self.target


def balanced_bounds(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    rule: BoundsRule = PAPER_RULE,
    *,
    token_weight: Tensor | None = None,
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> Bounds:
    """BAPO's bounds for one update, from all of its tokens. Carries no gradient.

    Args:
        policy_logprobs, old_logprobs, advantages, loss_mask: any one shape, as for the loss.
        token_weight: w of each token, as in the paper's eq. 8 (the sampler's probability). None: 1, as in the
            published code.
        reduce: returns a small vector's sum over ranks, e.g. by `torch.distributed.all_reduce`. Then all ranks find
            the bounds of the whole batch. One call an update. None: one process.
    """
    sums = contributions(policy_logprobs, old_logprobs, advantages, loss_mask, rule, token_weight=token_weight)
    return search(sums if reduce is None else reduce(sums), rule)


@torch.no_grad()
def contributions(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    rule: BoundsRule,
    *,
    token_weight: Tensor | None = None,
) -> Tensor:
    """P at every upper bound, then N at every lower one. Sums over tokens: those of shards add up.

    Each token goes into the bin between the two neighbouring bounds around its ratio. Prefix sums over the bins give
    the amounts below and above every bound.

    Returns: [number of upper + number of lower bounds], float64; all NaN if any trained token is not finite.
    """
    # Before ratios are clamped, which would hide an infinite logprob.
    drift = torch.where(loss_mask, policy_logprobs.detach() - old_logprobs.detach(), 0.0).double().sum()
    ratio = log_ratios(policy_logprobs, old_logprobs, loss_mask).double().exp().flatten()
    credit = masked_credit(advantages, loss_mask).double().flatten()
    if token_weight is not None:
        credit = credit * masked_credit(token_weight.expand(loss_mask.shape), loss_mask).double().flatten()
    high_K, low_L = (torch.tensor(r.values, dtype=torch.float64, device=ratio.device) for r in (rule.high, rule.low))
    good, bad = credit > 0, credit < 0
    # On which side a ratio that equals a bound lies matters to the gradient alone: a bound stops what reaches it.
    value_bins, mass_bins = _binned(ratio[good], credit[good], high_K, right=True)
    positive_K = _up_to(value_bins)[:-1]
    if rule.contribution == "value":
        positive_K = positive_K + high_K * _from(mass_bins)[1:]
    value_bins, mass_bins = _binned(ratio[bad], -credit[bad], low_L, right=False)
    negative_L = _from(value_bins)[1:]
    if rule.contribution == "value":
        negative_L = negative_L + low_L * _up_to(mass_bins)[:-1]
    poison = 0.0 * (drift + credit.sum())  # NaN if any token is not finite, also one that is in no sum
    return torch.cat([positive_K, negative_L]) + poison


def search(sums: Tensor, rule: BoundsRule) -> Bounds:
    """Moves the first bound step by step to its end, then the other one, until the target is met.

    N = 0 beside a P above 0 meets every target: there is no bad token, or by `gradient` the lower bound stops all.
    Without good tokens no target is met, so both bounds run to their ends. Without any credit both stay at their
    starts. A frozen bound does not keep the other one from moving (in the paper's loop a frozen lower bound would stop
    the upper one too).

    Args:
        sums: from `contributions` with the same rule, added up over all shards.
    Raises: ValueError where a sum is not finite.
    """
    if not bool(sums.isfinite().all()):
        raise ValueError("the contributions are not finite: a logprob or an advantage of a trained token is NaN or inf")
    high, low = rule.high.values, rule.low.values
    positive_K, negative_L = sums[: len(high)].tolist(), sums[len(high) :].tolist()
    at = {"high": 0, "low": 0}
    is_empty = not any(positive_K) and not any(negative_L)

    def met() -> bool:
        positive, negative = positive_K[at["high"]], negative_L[at["low"]]
        if negative == 0:
            return positive > 0 or is_empty
        if rule.target_as == "odds":
            return positive / (negative + ODDS_EPS) >= rule.target
        return _share(positive, negative) >= rule.target

    for name in ("high", "low") if rule.order == "high_first" else ("low", "high"):
        while not met() and at[name] + 1 < len(high if name == "high" else low):
            at[name] += 1
    return Bounds(
        low=low[at["low"]],
        high=high[at["high"]],
        positive=positive_K[at["high"]],
        negative=negative_L[at["low"]],
        start_share=_share(positive_K[0], negative_L[0]),
        num_moves=at["high"] + at["low"],
        met=met(),
    )


def reach(sums: Tensor, rule: BoundsRule) -> Reach:
    """The shares between which a search can choose: they show before it moves whether it can change anything.

    Counted by `value`, a good token counts at most its ratio, and sampled ratios have a mean near 1. So the share stays
    near that of the credit alone, `sum_{A > 0} A / sum |A|`, which lengths and numbers of replies fix.

    Args:
        sums: from `contributions` with the same rule, added up over all shards.
    """
    high, low = rule.high.values, rule.low.values
    positive_K, negative_L = sums[: len(high)].tolist(), sums[len(high) :].tolist()
    raised = [(k, 0 if rule.order == "high_first" else len(low) - 1) for k in range(len(high))]
    lifted = [(len(high) - 1 if rule.order == "high_first" else 0, k) for k in range(len(low))]
    shares = [_share(positive_K[k], negative_L[n]) for k, n in (*raised, *lifted)]
    finite = [share for share in shares if math.isfinite(share)]
    return Reach(
        start=_share(positive_K[0], negative_L[0]),
        end=_share(positive_K[-1], negative_L[-1]),
        most=max(finite, default=math.nan),
        target=target_share(rule),
    )


def target_share(rule: BoundsRule) -> float:
    """The target as a share P / (P + N)."""
    return rule.target if rule.target_as == "share" else rule.target / (1 + rule.target)


def least_start_share(rule: BoundsRule) -> float:
    """The share at the starts of both ranges below which no ratios let the search meet its target.

    By `value`, the upper bound multiplies P by at most `high.ceiling / high.start`, and the lower one never lowers N.
    By `gradient`, a bound can let in any part of P and take away any part of N: 0.
    """
    if rule.contribution == "gradient":
        return 0.0
    target, gain = target_share(rule), rule.high.values[-1] / rule.high.start
    odds = target / (1 - target) / gain
    return odds / (1 + odds)


def _binned(ratio: Tensor, weight: Tensor, bounds: Tensor, *, right: bool) -> tuple[Tensor, Tensor]:
    """Sums of `ratio * weight`, and of `weight`, between neighbouring bounds: one bin more than there are bounds."""
    bins = torch.searchsorted(bounds, ratio, right=right)
    empty = torch.zeros(len(bounds) + 1, dtype=torch.float64, device=ratio.device)
    return empty.index_add(0, bins, ratio * weight), empty.index_add(0, bins, weight)


def _up_to(bins: Tensor) -> Tensor:
    return bins.cumsum(0)


def _from(bins: Tensor) -> Tensor:
    # Not the total minus a prefix: that leaves dust where nothing is left.
    return bins.flip(0).cumsum(0).flip(0)


def _share(positive: float, negative: float) -> float:
    return positive / (positive + negative) if positive + negative > 0 else math.nan
