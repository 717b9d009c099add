"""The two stages of Critique-RL (arXiv:2510.24320): their settings, rewards and phases, and how the critic learns.

Every method that trains a critic in these stages shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from whet.config import ClipLoss, Config, FixedBounds, KLConfig, LearningConfig, PerStep, counted
from whet.config.acts import ActsWhen
from whet.config.runs import RunConfig
from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
    IndirectName,
    Reference,
    RewardTerm,
    ScoredSegment,
    Total,
    assign_credit,
    gated,
    only,
    refine_outcome,
    verdict_match,
)
from whet.methods.base import Algorithm
from whet.methods.critics import ACC_REFINE, SFT
from whet.models.policy import Policy
from whet.trainer import Update, policy_term
from whet.trainer.loop import Batch, Phase, Selection

STAGES: dict[str, str] = {"stage1": "validation/acc_dis", "stage2": "validation/acc_refine"}
"""By stage, the validation metric that chooses its best checkpoint."""


def critic_of(phase: str) -> str:
    """The policy that holds the best critic of a phase, frozen."""
    return f"critic_{phase}"


class Stage(Config):
    """What the two stages share: the update of section 3.1 in the spec.

    The sizes of a stage that is left out may be set without effect, as they are often set for both stages at once.
    """

    num_steps: int = Field(40, ge=0, le=10**9)
    """Steps of the stage. 0: the stage is left out."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: PerStep[int] = Field(4, ge=2)
    """Critiques of each answer; the others of the group are each one's baseline."""
    kl_coef: Annotated[PerStep[float], ActsWhen("num_steps")] = Field(0.01, ge=0, le=1e6)
    """Weight of the KL to the stage's reference in the reward. 0: no reference is scored."""
    sequence_level: Annotated[bool, ActsWhen("num_steps")] = False
    """False (authors' code): leave-one-out on the bare reward, KL per token as reward-to-go, whitening over tokens.
    True (textbook RLOO): KL summed into the reward before the baseline, one credit a sequence, no whitening."""
    clip: Annotated[PerStep[float], ActsWhen("num_steps")] = Field(0.2, gt=0)
    """PPO's clip of the ratio, on both sides."""
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the stage's result is the best validated checkpoint."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)

    @property
    def terms(self) -> tuple[dict[str, RewardTerm], Total]:
        """The reward terms of a critique, and how they add up."""
        raise NotImplementedError

    def reaches(self, scored: ScoredSegment) -> bool:
        """Whether a critique does what its stage rewards."""
        return verdict_match()(scored.episode, scored.index) == 1.0


class Stage1(Stage):
    """Stage I: the critic learns to judge."""

    scale: Annotated[PerStep[Literal["signed", "unit"]], ActsWhen("num_steps")] = "signed"
    """Reward of the verdict: signed is +1 right, -1 wrong or unparsed (authors' code); unit: 1 and 0 (paper, eq. 7)."""

    @property
    def terms(self) -> tuple[dict[str, RewardTerm], Total]:
        return {"direct": verdict_match(self.scale)}, only("direct")


class Stage2(Stage):
    """Stage II: the critic learns to help, held to its judgment."""

    indirect: Annotated[PerStep[IndirectName], ActsWhen("num_steps")] = "refine"
    """What the refinement is worth: eq. 4, 5 or 6."""
    discrimination: Annotated[PerStep[bool], ActsWhen("num_steps")] = True
    """True: the verdict is rewarded too. False: the indirect reward alone."""
    combine: Annotated[PerStep[Literal["gated", "additive"]], ActsWhen("discrimination")] = "gated"
    """gated (authors' code): a wrong verdict is rewarded -1, whatever the refinement.
    additive (paper, eq. 9): a bonus."""
    weight: Annotated[PerStep[float], ActsWhen("discrimination")] = Field(0.2, ge=0)
    """Of the verdict's bonus: beta_1."""

    @property
    def terms(self) -> tuple[dict[str, RewardTerm], Total]:
        total = gated(self.combine, self.weight) if self.discrimination else only("indirect")
        return {"indirect": refine_outcome(self.indirect), "judged_right": verdict_match()}, total

    def reaches(self, scored: ScoredSegment) -> bool:
        """Whether the refinement is right and, with `discrimination`, the verdict too."""
        helps = refine_outcome()(scored.episode, scored.index) == 1.0
        return helps and (super().reaches(scored) or not self.discrimination)


def stage_phase(
    algorithm: Algorithm[Any], key: str, reference: str, collect: Callable[[int], Batch], *, name: str = ""
) -> Phase:
    """The phase of a stage. The critic starts from a frozen critic, and its KL is to that one.

    Args:
        key: of the stage's settings.
        reference: the frozen critic.
        collect: a step of the stage.
        name: of the phase. Empty: the key.
    """
    loop, name = algorithm.run.loop, name or key

    def at(step: int) -> Stage:
        stage: Stage = getattr(algorithm.at(step), key)
        return stage

    def begin() -> None:
        loop.freeze("critic", SFT)
        loop.restart("critic", reference)

    stage = at(1)
    return Phase(
        name=name,
        num_steps=stage.num_steps,
        collect=collect,
        updates=updates_of(algorithm.config, key, at, len(algorithm.run.tasks["train"])),
        begin=begin,
        validate=partial(algorithm.evaluator.validate, phase=name),
        validate_every=stage.validate_every,
        select=Selection("critic", critic_of(name), STAGES[key]),
        # Stage I has no refinements.
        headline=("reward/mean", "critique/acc_dis", ACC_REFINE if key == "stage2" else "group/no_signal"),
    )


def updates_of(
    config: RunConfig, key: str, at: Callable[[int], Stage], num_train: int
) -> Callable[[int], Mapping[str, Update]]:
    """How the critic learns at each step of a stage: a clipped policy loss, the mean over critiques.

    Args:
        key: of the stage's settings in `config`.
        at: the stage's settings at a step.
        num_train: number of training problems; a step takes no more.
    """
    stage = at(1)
    prompts = min(stage.prompts_per_step, num_train)
    sizes = counted(config, f"{key}.group_size", stage.num_steps)
    num_updates = sum(count * stage.learning.updates_a_step(prompts * size) for size, count in sizes)

    def updates(step: int) -> Mapping[str, Update]:
        stage = at(step)
        loss = ClipLoss(bounds=FixedBounds(low=max(0.0, 1 - stage.clip), high=1 + stage.clip))
        return {"critic": Update((policy_term(loss, "sequence_mean"),), stage.learning, num_updates)}

    return updates


def assign_stage_credit(stage: Stage, groups: Sequence[Sequence[ScoredSegment]], reference: Policy) -> AssignedCredit:
    """The credit of critiques: each against the others of its group, with the KL to the reference in the reward."""
    advantage = ADVANTAGES.get("rloo" if stage.sequence_level else "rloo_whitened")
    kl = KLConfig(coef=stage.kl_coef, estimator="k1", where="reward")
    return assign_credit(groups, advantage, Reference(reference, kl, stage.learning.token_budget))
