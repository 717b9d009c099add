"""Settings of policy losses, of their clip bounds, and of correction, KL and value model beside them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from whet.config.acts import ActsWhen
from whet.config.base import Config, Registered
from whet.config.inputs import ModelPlace
from whet.config.parts import LearningConfig
from whet.registry import Registry

# --- clip bounds ------------------------------------------------------------------------------------------------------


class FixedBounds(Config):
    """Fixed bounds on the ratio."""

    kind: Literal["fixed"] = "fixed"
    low: float = Field(0.8, ge=0, le=1)
    """Lower bound on the ratio itself; acts on bad tokens."""
    high: float = Field(1.2, ge=1)
    """Upper bound; acts on good tokens. 1.28: DAPO's clip-higher."""


class BoundRange(Config):
    """The range in which one bound moves."""

    start: float = Field(ge=0)
    """Where each search starts."""
    ceiling: float = Field(ge=0)
    """The highest it may reach."""
    step: float = Field(ge=0)
    """Size of one move. 0: the bound stays at its start."""
    onto_ceiling: Annotated[bool, ActsWhen("step")] = False
    """True (authors' code): the last move is shortened to end on the ceiling. False (paper): it is not made."""


class BalancedBounds(Config):
    """BAPO (arXiv:2510.18927): bounds searched anew before every update, until good tokens contribute their share."""

    kind: Literal["bapo"] = "bapo"
    target: float = Field(0.4, gt=0)
    """What good tokens are to contribute, in the unit of target_as."""
    target_as: Literal["share", "odds"] = "share"
    """share: P / (P + N) (paper); odds: P / N (authors' code). 0.4 as a share is 0.667 as odds."""
    order: Literal["high_first", "low_first"] = "high_first"
    """The bound that moves first, to its end: the upper one (paper) or the lower one (authors' code)."""
    contribution: Literal["value", "gradient"] = "value"
    """What a token past a bound counts: its clipped value (both sources), or nothing, as it does in the gradient."""
    token_weight: Literal["none", "old"] = "none"
    """none: tokens count alike (authors' code); old: by their probability under the old weights, as in the paper's eq.
    8. We read that as the expectation that a sample stands for."""
    low: BoundRange = BoundRange(start=0.6, ceiling=0.9, step=0.02)
    """The lower bound's range."""
    high: BoundRange = BoundRange(start=1.2, ceiling=3.0, step=0.05)
    """The upper bound's range."""

    @model_validator(mode="after")
    def check_ranges(self) -> Self:
        for name, bound in (("low", self.low), ("high", self.high)):
            if bound.start > bound.ceiling:
                raise ValueError(f"{name}.start = {bound.start} is above {name}.ceiling = {bound.ceiling}")
            if bound.step and (bound.ceiling - bound.start) / bound.step > 10_000:
                raise ValueError(f"{name}.step = {bound.step} makes more than 10,000 steps: raise it")
        if not self.low.ceiling <= 1 <= self.high.start:
            raise ValueError(
                "the lower bound stays at or below 1, the upper one at or above it: a ratio of 1 is no drift"
            )
        if self.target_as == "share" and self.target >= 1:
            raise ValueError(f"target = {self.target} is no share: give one below 1, or target_as = odds")
        return self


ClipBounds = Annotated[FixedBounds | BalancedBounds, Field(discriminator="kind")]

# --- policy losses ----------------------------------------------------------------------------------------------------


LOSSES: Registry[type[PolicyLoss]] = Registry("policy loss")
"""The settings of policy losses, by `loss.kind`."""


class PolicyLoss(Registered):
    """Base of the settings of a policy loss."""

    kinds: ClassVar[Registry[type[PolicyLoss]]] = LOSSES
    kind: str
    """Which loss."""


@LOSSES.register("clip")
class ClipLoss(PolicyLoss):
    """PPO's clipped surrogate; with other bounds clip-higher or BAPO."""

    kind: Literal["clip"] = "clip"
    bounds: ClipBounds = FixedBounds()
    """Where the ratio is clipped."""
    dual: float | None = Field(None, gt=1)
    """Dual clip: a bad token's loss is at most this times its credit (usually 3). None: off."""


@LOSSES.register("cispo")
class CispoLoss(PolicyLoss):
    """CISPO: the clipped ratio weighs the gradient and never cuts it off."""

    kind: Literal["cispo"] = "cispo"
    bounds: ClipBounds = FixedBounds(low=0.0, high=5.0)
    """Bounds on the weight. BAPO's search balances the clipped surrogate, which is not quite CISPO's loss."""

    @model_validator(mode="after")
    def check_contribution(self) -> Self:
        if isinstance(self.bounds, BalancedBounds) and self.bounds.contribution == "gradient":
            raise ValueError("CISPO leaves every token its gradient, so bounds.contribution = gradient has no meaning")
        return self


@LOSSES.register("gspo")
class GspoLoss(PolicyLoss):
    """GSPO: one ratio for the whole reply."""

    kind: Literal["gspo"] = "gspo"
    low: float = Field(1 - 3e-4, ge=0, le=1)
    """Lower bound on the sequence's ratio."""
    high: float = Field(1 + 4e-4, ge=1)
    """Upper bound on it."""


@LOSSES.register("sapo")
class SapoLoss(PolicyLoss):
    """SAPO: a soft gate instead of a clip."""

    kind: Literal["sapo"] = "sapo"
    tau_positive: float = Field(1.0, gt=0)
    """How fast the gate closes for good tokens."""
    tau_negative: float = Field(1.05, gt=0)
    """How fast it closes for bad ones."""


@LOSSES.register("topr")
class ToprLoss(PolicyLoss):
    """TOPR: good replies weigh 1, bad ones at most 1 and less the less likely they have become."""

    kind: Literal["topr"] = "topr"
    level: Literal["sequence", "token"] = "sequence"
    """Whose ratio the weight is: the reply's (paper), or each token's own."""


@LOSSES.register("m2po")
class M2poLoss(PolicyLoss):
    """M2PO: drops the tokens with the largest log ratios until the second moment of the others meets a budget."""

    kind: Literal["m2po"] = "m2po"
    budget: float = Field(0.04, gt=0)
    """The most that the mean squared log ratio may be, in squared nats."""


@LOSSES.register("dppo")
class DppoLoss(PolicyLoss):
    """DPPO: bounds how far a token's probability moves from the sampler's, and not its ratio."""

    kind: Literal["dppo"] = "dppo"
    divergence: Literal["tv", "kl"] = "tv"
    """How the move is measured: tv, the change of the sampled token's probability; kl, the KL of that token against all
    others, in nats."""
    low: float = Field(0.2, ge=0)
    """A bad token that has become less likely by more than this is dropped."""
    high: float = Field(0.2, ge=0)
    """A good token that has become more likely by more than this is dropped."""
    max_ratio: float = Field(20.0, ge=1)
    """The ratio weighs the gradient by no more than this."""


@LOSSES.register("reinforce")
class ReinforceLoss(PolicyLoss):
    """REINFORCE: without the ratio."""

    kind: Literal["reinforce"] = "reinforce"


Aggregation = Literal["token_mean", "sequence_mean", "constant"]

# --- beside the loss --------------------------------------------------------------------------------------------------


class CorrectionConfig(Config):
    """Weighs tokens by how the weights that a step starts from differ from those that sampled (needs proximal)."""

    low: float = Field(0.0, ge=0)
    """Lower bound on the weight."""
    high: float = Field(2.0, gt=0)
    """Upper bound on it. TIS: 0 to 2, clamped. Decoupled PPO: 0 to a high one, say 1000."""
    outside: Literal["clamp", "drop"] = "clamp"
    """What happens past a bound: the weight is clamped to it, or the token is dropped (IcePop)."""
    scope: Literal["token", "sequence", "geometric"] = "token"
    """Whose ratio: each token's, the reply's product, or its geometric mean."""


class KLConfig(Config):
    """A KL to the model that the run starts from."""

    coef: float = Field(0.0, ge=0, le=1e6)
    """Weight of the KL. 0: none, and no reference is kept."""
    estimator: Annotated[Literal["k1", "k2", "k3"], ActsWhen("coef")] = "k3"
    """k1 is the one for the reward; in the loss, k2 has the gradient of KL(policy || reference)."""
    where: Annotated[Literal["reward", "loss"], ActsWhen("coef")] = "loss"
    """reward: a penalty on each token's reward, summed to the end; loss: a term of its own."""


VALUE_MODEL = "value_model"
"""The policy of a run that is its value model."""


class ValueConfig(Config):
    """The value model of PPO (advantage = gae)."""

    path: ModelPlace | None = None
    """A folder with a value model that a run saved. None: the policy's model with a new head, which gives 0."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per token."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """1: returns minus values. 0: one-step differences."""
    clip: float | None = Field(0.5, gt=0)
    """A value may move this far from the old one in a step, in units of the reward. None: freely."""
    warmup_updates: int = Field(5, ge=0, le=10**9)
    """Updates that the value model makes alone, before the policy learns."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3, minibatch_rows=128)

    def warmup_problem(self, num_rows: int, num_steps: int) -> str | None:
        """A sentence that says why the policy would never learn. None: it does.

        Args:
            num_rows: of a step.
            num_steps: of the phase.
        """
        num_updates = num_steps * self.learning.updates_a_step(num_rows)
        if self.warmup_updates < num_updates:
            return None
        return (
            f"value.warmup_updates = {self.warmup_updates} has to be less than the {num_updates} updates that "
            f"num_steps = {num_steps} make of the value model, or the policy never learns"
        )
