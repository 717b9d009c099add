"""From settings to terms: the policy losses with their bounds, the terms beside them, and the diagnostics observer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

# --- terms ------------------------------------------------------------------------------------------------------------


def policy_terms(
    settings: PolicyLoss, kl: KLConfig, aggregation: Aggregation, *, length: int | None = None, entropy: float = 0.0
) -> tuple[Term, ...]:
    """The policy loss; beside it the KL to the reference where the settings put it into the loss, and an entropy bonus.

    Args:
        length: tokens; the divisor of aggregation `constant`. Others ignore it.
        entropy: the bonus's coefficient, at least 0. 0: no bonus.
    Returns: the policy loss's term first.
    """
    terms = [policy_term(settings, aggregation, length=length)]
    if kl.coef > 0 and kl.where == "loss":
        terms.append(kl_term(kl, aggregation, length=length))
    if entropy > 0:
        terms.append(entropy_term(entropy, aggregation, length=length))
    return tuple(terms)


def policy_term(settings: PolicyLoss, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """The term of the policy loss that these settings name.

    Args:
        length: tokens; the divisor of aggregation `constant`. Others ignore it.
        more: other fields of the term.
    """
    loss, choose = loss_of(settings)
    constant = length if aggregation == "constant" else None
    return Term(loss=loss, choose=choose, aggregation=aggregation, constant_length=constant, **more)


def kl_term(settings: KLConfig, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """The KL to the rows' reference, beside a policy loss. Arguments are those of `policy_term`."""
    constant = length if aggregation == "constant" else None
    return Term(
        loss=to_reference(kl_loss, estimator=settings.estimator),
        weight=settings.coef,
        aggregation=aggregation,
        constant_length=constant,
        needs_old=False,
        needs_reference=True,
        needs_credit=False,
        corrected=False,
        **more,
    )


def entropy_term(coef: float, aggregation: Aggregation, *, length: int | None = None, **more: Any) -> Term:
    """A bonus for the policy's entropy, averaged like the policy loss. Arguments are those of `policy_term`."""
    constant = length if aggregation == "constant" else None
    return Term(
        loss=on_entropy(entropy_loss),
        weight=coef,
        aggregation=aggregation,
        constant_length=constant,
        needs_old=False,
        needs_entropy=True,
        needs_credit=False,
        corrected=False,
        **more,
    )


def nll_term(aggregation: Aggregation = "token_mean", **more: Any) -> Term:
    """The negative log likelihood of the rows' texts, weighted by their credit."""
    return Term(loss=on_likelihood(weighted_nll), aggregation=aggregation, needs_old=False, **more)


def imitation(learning: LearningConfig, num_updates: int) -> Update:
    """Supervised learning of the rows' texts.

    Args:
        num_updates: optimiser updates in the whole phase.
    """
    return Update((nll_term(),), learning, num_updates)


def value_term(clip: float | None) -> Term:
    """The loss of a value model, on rows with returns as credit and the old values as logprobs.

    Args:
        clip: the most that a value may move from the old one, in units of the reward. None: no bound.
    """
    return Term(on_tokens(value_loss, clip=clip), needs_credit=False)


def preference_term() -> Term:
    """The loss of a reward model on pairs (Bradley and Terry).

    A row's reward is the sum of its values, and its reference logprobs are 0.
    """
    loss = on_pairs(pairwise_loss, kind="logistic", beta=1.0)
    return Term(loss, needs_old=False, needs_reference=True, of_bundles=True)


def correction_of(settings: CorrectionConfig | None) -> Correct | None:
    """The importance weights for `Update.correct`. None: no correction."""
    if settings is None:
        return None
    return partial(
        importance_weights, low=settings.low, high=settings.high, outside=settings.outside, scope=settings.scope
    )


def corrected(update: Update, engine_products: str = "float32") -> Update:
    """An update whose rows were sampled in other products than it computes logprobs in: it corrects for the difference.

    Ratios compare with the weights that the step starts from, and tokens are weighed by these and the sampler:
    truncated importance sampling with `CorrectionConfig`'s defaults. An update stays as it is where engine and update
    both multiply in float32, where it has no ratios, and where these compare with such weights already, or with an
    anchor.
    """
    is_narrow = engine_products != "float32" or update.learning.products != "float32"
    has_ratios = update.from_sampler and any(term.needs_old for term in update.terms)
    if update.proximal or not is_narrow or not has_ratios:
        return update
    return replace(update, proximal=True, correct=correction_of(CorrectionConfig()), scored_in_pass=True)


# --- a policy loss, and what it chooses before an update --------------------------------------------------------------

FUNCTIONS: Mapping[type[PolicyLoss], PolicyLossFunction] = {
    DppoLoss: dppo_loss,
    GspoLoss: gspo_loss,
    ReinforceLoss: reinforce_loss,
    SapoLoss: sapo_loss,
    ToprLoss: topr_loss,
}
"""By their settings, the losses whose settings are their keyword arguments."""


def loss_of(settings: PolicyLoss) -> tuple[Loss, Choose | None]:
    """The loss that the settings name, and how its bounds are chosen before an update. None: they are fixed."""
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
    """BAPO's bounds for an update, and metrics of the search that are finite.

    Args:
        policy_N, old_N, credit_N: as `Choose` has them.
    """
    weight_N = old_N.exp() if token_weight == "old" else None
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    sums = contributions(policy_N, old_N, credit_N, everywhere, rule, token_weight=weight_N)
    bounds, within = search(sums, rule), reach(sums, rule)
    ratio_N = (policy_N - old_N).exp()
    good_N, bad_N = ratio_N[credit_N > 0], ratio_N[credit_N < 0]
    metrics = {
        "bounds/in_reach": 1.0,
        "bounds/reach_start": within.start,
        "bounds/reach_end": within.end,
        "bounds/reach_most": within.most,
        "bounds/low": bounds.low,
        "bounds/high": bounds.high,
        "bounds/moves": float(bounds.num_moves),
        "bounds/settled": float(bounds.met and bounds.num_moves > 0),
        "bounds/exhausted": float(not bounds.met),
        "bounds/start_share": bounds.start_share,
        "bounds/share": bounds.share,
    }
    if not bool((good_N >= rule.high.start).any() or (bad_N <= rule.low.ceiling).any()):
        # No bound in the search's ranges reaches a token, so the chosen bounds change nothing and say nothing.
        metrics = {name: value for name, value in metrics.items() if name.startswith("bounds/reach_")}
        metrics["bounds/in_reach"] = 0.0
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return {"low": bounds.low, "high": bounds.high}, finite


def bounds_rule(bounds: BalancedBounds) -> BoundsRule:
    """The settings of BAPO's bounds, as the search takes them."""

    def range_of(bound: BoundRange) -> Range:
        return Range(start=bound.start, ceiling=bound.ceiling, step=bound.step, onto_ceiling=bound.onto_ceiling)

    return BoundsRule(
        target=bounds.target,
        target_as=bounds.target_as,
        order=bounds.order,
        contribution=bounds.contribution,
        low=range_of(bounds.low),
        high=range_of(bounds.high),
    )


def _choose_limit(
    budget: float, policy_N: Tensor, old_N: Tensor, credit_N: Tensor
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """M2PO's limit for an update, and its metric where it is finite."""
    everywhere = torch.ones_like(policy_N, dtype=torch.bool)
    limit = second_moment_limit(policy_N, old_N, credit_N, everywhere, budget=budget)
    return {"limit": limit}, {"bounds/limit": max(limit, 0.0)} if math.isfinite(limit) else {}


# --- diagnostics ------------------------------------------------------------------------------------------------------


def entropy_clip(settings: PolicyLoss, probe_every: int) -> Callable[[], Observer]:
    """Makes observers that measure a policy loss, against its bounds where it clips the surrogate.

    Args:
        probe_every: updates between two measurements of the entropy. 0: none.
    """
    bounds: dict[str, float | None] = {}
    if isinstance(settings, ClipLoss):
        bounds["dual"] = settings.dual
        if isinstance(settings.bounds, FixedBounds):
            bounds |= {"low": settings.bounds.low, "high": settings.bounds.high}
    return partial(EntropyClip, bounds, has_bounds=isinstance(settings, ClipLoss), probe_every=probe_every)


@dataclass
class EntropyClip:
    """Measures the balance, the clipping and the entropy of an update.

    It compares the pushes of the update's first term with PPO's bounds and with the Entropy-Clip Rule (BAPO,
    arXiv:2510.18927). A push is minus the term's derivative by a token's logprob. Now and then it also measures how the
    update changed the entropy of its rows, which takes one more pass without gradient.

    Args:
        bounds: the fixed ones of a clipped loss: `low`, `high`, `dual`. Those chosen before an update replace them.
        has_bounds: whether the chosen bounds are those of a clipped surrogate.
        probe_every: updates between two measurements of the entropy. 0: none.
    """

    bounds: Mapping[str, float | None] = field(default_factory=dict)
    has_bounds: bool = True
    probe_every: int = 0
    seen: list[tuple[MicroBatch, Tensor, Tokens]] = field(default_factory=list)
    predicted: dict[str, float] = field(default_factory=dict)

    def saw(self, tokens: Tokens, batch: MicroBatch, loss: Tensor, logprobs_N: Tensor, weights_B: Tensor) -> None:
        push_N = pushes(loss, logprobs_N, batch, weights_B)
        mask_BT = batch.mask_BT[:, 1:]
        taken_N = (weights_B != 0)[batch.index, None].expand(mask_BT.shape)[mask_BT]  # the first term's tokens
        if not taken_N.any():
            return
        values = (tokens.policy_N, tokens.old_N, tokens.credit_N, tokens.entropy_N, push_N)
        self.seen.append((batch, taken_N, Tokens(*(values_N[taken_N] for values_N in values))))

    def join(self, parts: Sequence[EntropyClip]) -> None:
        self.seen = [seen for part in parts for seen in part.seen]

    def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
        if not self.seen:
            return {}
        pushes_N = torch.cat([tokens.push_N for _, _, tokens in self.seen if tokens.push_N is not None])
        bounds = {**self.bounds, **chosen} if self.has_bounds else {}
        policy_N, old_N, credit_N, entropy_N = joined([tokens for _, _, tokens in self.seen])
        metrics = update_diagnostics(
            policy_N,
            old_N,
            credit_N,
            entropy_N,
            pushes_N,
            low=bounds.get("low"),
            high=bounds.get("high"),
            dual=bounds.get("dual"),
        )
        if self.probe_every and "entropy/predicted" in metrics:
            # A prediction is logged beside the measurement of the same update, or not at all.
            self.predicted = {"entropy/predicted": metrics.pop("entropy/predicted")}
        return metrics

    def after(self, policy: Policy, num_updates: int) -> Mapping[str, float]:
        if not self.probe_every or not self.seen or num_updates % self.probe_every:
            return {}
        with torch.no_grad():
            passes = [(token_logprobs(policy, batch, entropy=True)[1], taken_N) for batch, taken_N, _ in self.seen]
        after = torch.cat([entropy_N[taken_N] for entropy_N, taken_N in passes if entropy_N is not None])
        before_N = joined([tokens for _, _, tokens in self.seen])[3]
        measured = float(after.double().mean() - before_N.double().mean())
        metrics = {**self.predicted, "entropy/measured": measured, "entropy/falls": float(measured < 0)}
        if self.predicted:
            metrics["entropy/rule_agrees"] = float(self.predicted["entropy/predicted"] * measured > 0)
        return metrics
