"""From the settings of a loss to the rule that the learner follows: one line a method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from whet.objectives import (
    BoundsRule,
    Range,
    balanced_bounds,
    cispo_loss,
    clipped_policy_loss,
    gspo_loss,
    importance_weights,
    kl_loss,
    m2po_loss,
    reinforce_loss,
    sapo_loss,
    second_moment_limit,
    topr_loss,
    update_diagnostics,
    value_loss,
)
from whet.recipes.loss_config import (
    BalancedBounds,
    BoundRange,
    Bounds,
    CispoLoss,
    ClipLoss,
    FixedBounds,
    GspoLoss,
    Loss,
    M2poLoss,
    SapoLoss,
    ToprLoss,
)
from whet.recipes.solve_config import SolveConfig
from whet.training.rule import Choose, LossTerm, UpdateRule


def policy_rule(config: SolveConfig, num_updates: int) -> UpdateRule:
    """How the policy learns with these settings."""
    loss, choose = _loss_of(config.loss)
    correction, kl = config.correction, config.kl
    correct = None
    if correction is not None:
        correct = partial(
            importance_weights,
            low=correction.low,
            high=correction.high,
            outside=correction.outside,
            scope=correction.scope,
        )
    leashed = kl.coef > 0 and kl.where == "loss"
    return UpdateRule(
        loss=loss,
        aggregation=config.aggregation,
        constant_length=config.sampling.max_new_tokens if config.aggregation == "constant" else None,
        learning=config.learning,
        num_updates=num_updates,
        needs_credit=not leashed,
        leash=partial(_leash, kl.coef, kl.estimator) if leashed else None,
        proximal=config.proximal,
        correct=correct,
        choose=choose,
        observe=partial(_observe, config.loss),
        probe_every=config.probe_every,
    )


def value_rule(config: SolveConfig, num_updates: int) -> UpdateRule:
    """How PPO's value model learns: rows hold returns as credit, and the old values as logprobs."""
    return UpdateRule(
        loss=partial(value_loss, clip=config.value.clip),
        aggregation="token_mean",
        learning=config.value.learning,
        num_updates=num_updates,
        needs_credit=False,
    )


def bounds_rule(bounds: BalancedBounds) -> BoundsRule:
    """The settings as the search takes them."""

    def of(found: BoundRange) -> Range:
        return Range(start=found.start, ceiling=found.ceiling, step=found.step, onto_ceiling=found.onto_ceiling)

    return BoundsRule(
        target=bounds.target,
        target_as=bounds.target_as,
        order=bounds.order,
        contribution=bounds.contribution,
        low=of(bounds.low),
        high=of(bounds.high),
    )


def _loss_of(loss: Loss) -> tuple[LossTerm, Choose | None]:
    """The loss, and what has to be chosen before it."""
    if isinstance(loss, ClipLoss):
        return _bounded(partial(clipped_policy_loss, dual=loss.dual), loss.bounds)
    if isinstance(loss, CispoLoss):
        return _bounded(cispo_loss, loss.bounds)
    if isinstance(loss, GspoLoss):
        return partial(gspo_loss, low=loss.low, high=loss.high), None
    if isinstance(loss, SapoLoss):
        return partial(sapo_loss, tau_positive=loss.tau_positive, tau_negative=loss.tau_negative), None
    if isinstance(loss, ToprLoss):
        return partial(topr_loss, level=loss.level), None
    if isinstance(loss, M2poLoss):
        return m2po_loss, partial(_choose_limit, loss.budget)
    return reinforce_loss, None


def _bounded(term: LossTerm, bounds: Bounds) -> tuple[LossTerm, Choose | None]:
    if isinstance(bounds, BalancedBounds):
        return term, partial(_choose_bounds, bounds_rule(bounds), bounds.token_weight)
    return partial(term, low=bounds.low, high=bounds.high), None


def _choose_bounds(
    rule: BoundsRule, token_weight: str, policy_N: Tensor, old_N: Tensor, credit_N: Tensor
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    weight_N = old_N.exp() if token_weight == "old" else None
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    found = balanced_bounds(policy_N, old_N, credit_N, everywhere, rule, token_weight=weight_N)
    ratio_N = (policy_N - old_N).exp()
    good_N, bad_N = ratio_N[credit_N > 0], ratio_N[credit_N < 0]
    if not bool((good_N >= rule.high.start).any() or (bad_N <= rule.low.ceiling).any()):
        # No bound that the search may choose reaches a token: its choice is idle, and says nothing.
        return {"low": found.low, "high": found.high}, {"bounds/in_reach": 0.0}
    metrics = {
        "bounds/in_reach": 1.0,
        "bounds/low": found.low,
        "bounds/high": found.high,
        "bounds/moves": float(found.num_moves),
        "bounds/settled": float(found.met and found.num_moves > 0),
        "bounds/exhausted": float(not found.met),
        "bounds/start_share": found.start_share,
        "bounds/share": found.share,
    }
    return {"low": found.low, "high": found.high}, {n: v for n, v in metrics.items() if math.isfinite(v)}


def _choose_limit(
    budget: float, policy_N: Tensor, old_N: Tensor, credit_N: Tensor
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    limit = second_moment_limit(policy_N, old_N, credit_N, everywhere, budget=budget)
    return {"limit": limit}, {"bounds/limit": max(limit, 0.0)} if math.isfinite(limit) else {}


def _observe(
    loss: Loss,
    policy_N: Tensor,
    old_N: Tensor,
    credit_N: Tensor,
    entropy_N: Tensor,
    pushes_N: Tensor,
    **chosen: float,
) -> Mapping[str, float]:
    """The update's diagnostics, with the bounds of a clipped loss."""
    found = chosen if isinstance(loss, ClipLoss) else {}
    if isinstance(loss, ClipLoss) and isinstance(loss.bounds, FixedBounds):
        found = {"low": loss.bounds.low, "high": loss.bounds.high}
    dual = loss.dual if isinstance(loss, ClipLoss) else None
    return update_diagnostics(
        policy_N, old_N, credit_N, entropy_N, pushes_N, low=found.get("low"), high=found.get("high"), dual=dual
    )


def _leash(
    coef: float, estimator: str, policy_BT: Tensor, ref_BT: Tensor, mask_BT: Tensor, weight_BT: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    kl, metrics = kl_loss(policy_BT, ref_BT, mask_BT, weight_BT, estimator=estimator)
    return coef * kl, metrics
