"""From settings to terms: the losses, the bounds that they clip to, the KL to a reference, and who looks on.

What an update does to balance, clipping and entropy: an observer of the learner's updates.

It takes the pushes of the update's first term (minus its derivative by each token's logprob) and holds them against
PPO's bounds and the Entropy-Clip Rule (BAPO, arXiv:2510.18927); now and then it measures what the update did to the
entropy of its own rows, which takes one more pass without gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from whet.config.losses import (
    BalancedBounds,
    BoundRange,
    CispoLoss,
    ClipBounds,
    ClipLoss,
    CorrectionConfig,
    DppoLoss,
    FixedBounds,
    GspoLoss,
    KLConfig,
    M2poLoss,
    PolicyLoss,
    ReinforceLoss,
    SapoLoss,
    ToprLoss,
)
from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, token_logprobs
from whet.objectives import (
    Aggregation,
    BoundsRule,
    Range,
    cispo_loss,
    clipped_policy_loss,
    contributions,
    dppo_loss,
    entropy_loss,
    gspo_loss,
    importance_weights,
    kl_loss,
    m2po_loss,
    pairwise_loss,
    reach,
    reinforce_loss,
    sapo_loss,
    search,
    second_moment_limit,
    topr_loss,
    update_diagnostics,
    value_loss,
    weighted_nll,
)
from whet.trainer.flat import Tokens, joined, pushes
from whet.trainer.terms import (
    Choose,
    Correct,
    Loss,
    Observer,
    Term,
    Update,
    on_entropy,
    on_likelihood,
    on_pairs,
    on_tokens,
    to_reference,
)
from whet.trainer.user_losses import PolicyLossFunction, UserLoss


def policy_term(settings: PolicyLoss, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """The policy loss that these settings name.

    Args:
        length: tokens; what aggregation `constant` divides by.
        more: other fields of the term.
    """
    loss, choose = loss_of(settings)
    constant = length if aggregation == "constant" else None
    return Term(loss=loss, choose=choose, aggregation=aggregation, constant_length=constant, **more)


def policy_terms(
    settings: PolicyLoss, kl: KLConfig, aggregation: Aggregation, *, length: int | None = None, entropy: float = 0.0
) -> tuple[Term, ...]:
    """The policy loss, and beside it the KL to the reference where that is a term of the loss, and an entropy bonus.

    Args:
        length: tokens; what aggregation `constant` divides by.
        entropy: the bonus's coefficient. 0: none.
    """
    terms = [policy_term(settings, aggregation, length=length)]
    if kl.coef > 0 and kl.where == "loss":
        terms.append(kl_term(kl, aggregation, length=length))
    if entropy > 0:
        terms.append(entropy_term(entropy, aggregation, length=length))
    return tuple(terms)


def value_term(clip: float | None) -> Term:
    """How a value model learns, from rows with returns as credit and the old values as logprobs.

    Args:
        clip: how far a value may move from the old one, in units of the reward. None: freely.
    """
    return Term(on_tokens(value_loss, clip=clip), needs_credit=False)


def preference_term() -> Term:
    """How a reward model learns from pairs (Bradley and Terry): a row's reward is the sum of its values, and its
    reference is 0."""
    loss = on_pairs(pairwise_loss, kind="logistic", beta=1.0)
    return Term(loss, needs_old=False, needs_reference=True, of_bundles=True)


def nll_term(aggregation: Aggregation = "token_mean", **more: Any) -> Term:
    """The likelihood of given texts, weighted by the rows' credit."""
    return Term(loss=on_likelihood(weighted_nll), aggregation=aggregation, needs_old=False, **more)


def kl_term(settings: KLConfig, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """A KL to the rows' reference beside the policy loss."""
    constant = length if aggregation == "constant" else None
    return Term(
        loss=to_reference(kl_loss, estimator=settings.estimator), weight=settings.coef, aggregation=aggregation,
        constant_length=constant, needs_old=False, needs_reference=True, needs_credit=False, corrected=False, **more,
    )  # fmt: skip


def entropy_term(coef: float, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """A bonus for the policy's entropy, averaged as the policy loss is."""
    constant = length if aggregation == "constant" else None
    return Term(
        loss=on_entropy(entropy_loss), weight=coef, aggregation=aggregation, constant_length=constant, needs_old=False,
        needs_entropy=True, needs_credit=False, corrected=False, **more,
    )  # fmt: skip


def correction_of(settings: CorrectionConfig | None) -> Correct | None:
    """What weighs tokens by how the weights that a step starts from differ from those that sampled."""
    if settings is None:
        return None
    return partial(
        importance_weights, low=settings.low, high=settings.high, outside=settings.outside, scope=settings.scope
    )


def entropy_clip(settings: PolicyLoss, probe_every: int) -> Callable[[], Observer]:
    """The diagnostics of a policy loss, held against its bounds where it clips the surrogate."""
    bounds: dict[str, float | None] = {}
    if isinstance(settings, ClipLoss):
        bounds["dual"] = settings.dual
        if isinstance(settings.bounds, FixedBounds):
            bounds |= {"low": settings.bounds.low, "high": settings.bounds.high}
    return partial(EntropyClip, bounds, has_bounds=isinstance(settings, ClipLoss), probe_every=probe_every)


def imitation(learning: LearningConfig, num_updates: int) -> Update:
    """Supervised learning of given texts."""
    return Update((nll_term(),), learning, num_updates)


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


FUNCTIONS: Mapping[type[PolicyLoss], PolicyLossFunction] = {
    DppoLoss: dppo_loss, GspoLoss: gspo_loss, ReinforceLoss: reinforce_loss, SapoLoss: sapo_loss, ToprLoss: topr_loss,
}  # fmt: skip
"""The losses whose settings are their keyword arguments."""


def loss_of(settings: PolicyLoss) -> tuple[Loss, Choose | None]:
    """The loss, and what has to be chosen before it."""
    if isinstance(settings, ClipLoss):
        return _bounded(clipped_policy_loss, settings.bounds, dual=settings.dual)
    if isinstance(settings, CispoLoss):
        return _bounded(cispo_loss, settings.bounds)
    if isinstance(settings, M2poLoss):
        return on_tokens(m2po_loss), partial(_choose_limit, settings.budget)
    arguments = {name: getattr(settings, name) for name in type(settings).model_fields if name != "kind"}
    if isinstance(settings, UserLoss):
        return on_tokens(settings.checked, **arguments), None
    return on_tokens(FUNCTIONS[type(settings)], **arguments), None


def _bounded(loss: Callable[..., Any], bounds: ClipBounds, **settings: Any) -> tuple[Loss, Choose | None]:
    if isinstance(bounds, BalancedBounds):
        return on_tokens(loss, **settings), partial(_choose_bounds, bounds_rule(bounds), bounds.token_weight)
    return on_tokens(loss, **settings, low=bounds.low, high=bounds.high), None


def _choose_bounds(
    rule: BoundsRule, token_weight: str, policy_N: Tensor, old_N: Tensor, credit_N: Tensor
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    weight_N = old_N.exp() if token_weight == "old" else None
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    sums = contributions(policy_N, old_N, credit_N, everywhere, rule, token_weight=weight_N)
    found, within = search(sums, rule), reach(sums, rule)
    ratio_N = (policy_N - old_N).exp()
    good_N, bad_N = ratio_N[credit_N > 0], ratio_N[credit_N < 0]
    metrics = {
        "bounds/in_reach": 1.0,
        "bounds/reach_start": within.start,
        "bounds/reach_end": within.end,
        "bounds/reach_most": within.most,
        "bounds/low": found.low,
        "bounds/high": found.high,
        "bounds/moves": float(found.num_moves),
        "bounds/settled": float(found.met and found.num_moves > 0),
        "bounds/exhausted": float(not found.met),
        "bounds/start_share": found.start_share,
        "bounds/share": found.share,
    }
    if not bool((good_N >= rule.high.start).any() or (bad_N <= rule.low.ceiling).any()):
        # No bound that the search may choose reaches a token: its choice is idle, and says nothing.
        metrics = {name: value for name, value in metrics.items() if name.startswith("bounds/reach_")}
        metrics["bounds/in_reach"] = 0.0
    return {"low": found.low, "high": found.high}, {n: v for n, v in metrics.items() if math.isfinite(v)}


def _choose_limit(
    budget: float, policy_N: Tensor, old_N: Tensor, credit_N: Tensor
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    limit = second_moment_limit(policy_N, old_N, credit_N, everywhere, budget=budget)
    return {"limit": limit}, {"bounds/limit": max(limit, 0.0)} if math.isfinite(limit) else {}


# --- diagnostics ------------------------------------------------------------------------------------------------------


@dataclass
class EntropyClip:
    """See the module's docstring.

    Args:
        bounds: `low`, `high`, `dual` of a clipped loss, as far as they are fixed; those chosen before an update win.
        has_bounds: whether bounds that were chosen are those of a clipped surrogate.
        probe_every: updates between two measurements. 0: none.
    """

    bounds: Mapping[str, float | None] = field(default_factory=dict)
    has_bounds: bool = True
    probe_every: int = 0
    seen: list[tuple[MicroBatch, Tensor, Tokens]] = field(default_factory=list)
    predicted: dict[str, float] = field(default_factory=dict)

    def saw(self, tokens: Tokens, batch: MicroBatch, loss: Tensor, logprobs_N: Tensor, weights_B: Tensor) -> None:
        push_N = pushes(loss, logprobs_N, batch, weights_B)
        mask_BT = batch.mask_BT[:, 1:]
        taken_N = (weights_B != 0)[batch.index, None].expand(mask_BT.shape)[mask_BT]  # the others are of other terms
        if not taken_N.any():
            return
        everything = (tokens.policy_N, tokens.old_N, tokens.credit_N, tokens.entropy_N, push_N)
        self.seen.append((batch, taken_N, Tokens(*(values[taken_N] for values in everything))))

    def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
        if not self.seen:
            return {}
        pushes_N = torch.cat([tokens.push_N for _, _, tokens in self.seen if tokens.push_N is not None])
        known = {**self.bounds, **chosen} if self.has_bounds else {}
        policy_N, old_N, credit_N, entropy_N = joined([tokens for _, _, tokens in self.seen])
        found = update_diagnostics(
            policy_N, old_N, credit_N, entropy_N, pushes_N,
            low=known.get("low"), high=known.get("high"), dual=known.get("dual"),
        )  # fmt: skip
        if self.probe_every and "entropy/predicted" in found:
            # A prediction stands beside the measurement of the same update, or nowhere.
            self.predicted = {"entropy/predicted": found.pop("entropy/predicted")}
        return found

    def after(self, policy: Policy, num_updates: int) -> Mapping[str, float]:
        if not self.probe_every or not self.seen or num_updates % self.probe_every:
            return {}
        with torch.no_grad():
            passes = [(token_logprobs(policy, batch, entropy=True)[1], taken_N) for batch, taken_N, _ in self.seen]
        after = torch.cat([entropy_N[taken_N] for entropy_N, taken_N in passes if entropy_N is not None])
        before_N = joined([tokens for _, _, tokens in self.seen])[3]
        measured = float(after.double().mean() - before_N.double().mean())
        shown = {**self.predicted, "entropy/measured": measured, "entropy/falls": float(measured < 0)}
        if self.predicted:
            shown["entropy/rule_agrees"] = float(self.predicted["entropy/predicted"] * measured > 0)
        return shown
