"""The two stages of Critique-RL (arXiv:2510.24320): their rewards and phases, and how the critic learns.

Every method that trains a critic in these stages shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from whet.config import ClipLoss, FixedBounds, KLConfig, counted
from whet.config.runs import RunConfig
from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
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
from whet.methods.stages_config import Stage, Stage1, Stage2
from whet.models.policy import Policy
from whet.trainer import Update, policy_term
from whet.trainer.loop import Batch, Phase, Selection

STAGES: dict[str, str] = {"stage1": "validation/acc_dis", "stage2": "validation/acc_refine"}
"""By stage, the validation metric that chooses its best checkpoint."""


def critic_of(phase: str) -> str:
    """The policy that holds the best critic of a phase, frozen."""
    return f"critic_{phase}"


def terms_of(stage: Stage1 | Stage2) -> tuple[dict[str, RewardTerm], Total]:
    """The reward terms of a critique, and how they add up."""
    if isinstance(stage, Stage1):
        return {"direct": verdict_match(stage.scale)}, only("direct")
    total = gated(stage.combine, stage.weight) if stage.discrimination else only("indirect")
    return {"indirect": refine_outcome(stage.indirect), "judged_right": verdict_match()}, total


def reaches_goal(stage: Stage1 | Stage2, scored: ScoredSegment) -> bool:
    """Whether a critique does what its stage rewards.

    In stage II the refinement is right and, with `discrimination`, the verdict too.
    """
    if isinstance(stage, Stage2):
        helps = refine_outcome()(scored.episode, scored.index) == 1.0
        if not helps or not stage.discrimination:
            return helps
    return verdict_match()(scored.episode, scored.index) == 1.0


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
