"""RefCritic: a critic is rewarded for its verdict and for the share of right refinements after its critique.

    R = (R_verdict + lambda R_refine) / (1 + lambda),   R_refine the mean over m refinements

First lambda is 0, later 1. With lambda 0 throughout, this is the verdict's reward alone. Unlike in Critique-RL, nothing
is gated, several refinements are averaged, and the KL keeps its reference. How many refinements the authors took, and
where lambda changes, is not published: both are settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from whet.config import (
    ClipLoss,
    CriticRunConfig,
    KLConfig,
    LearningConfig,
    PerStep,
    RolesConfig,
    SamplingConfig,
    Schedule,
    Steps,
    TrainingConfig,
)
from whet.config.acts import ActsWhen
from whet.credit import (
    ADVANTAGES,
    Reference,
    ScoredSegment,
    assign_credit,
    groups_of,
    mixture,
    refine_outcome,
    rewarded,
    verdict_match,
)
from whet.methods.critics import SFT, CriticAlgorithm, critic_spec, sample_critiques, training_batch, training_phases
from whet.trainer import Update, policy_terms
from whet.trainer.loop import Batch, Phase

BEST = "critic_refined"
"""The critic of the best validation, frozen."""


class RefCriticConfig(TrainingConfig, CriticRunConfig):
    """RefCritic: a critic trained with GRPO on its verdict and on refinements after its critique."""

    method: Literal["ref_critic"] = "ref_critic"
    roles: RolesConfig = RolesConfig(refinement=SamplingConfig(temperature=0.7, max_new_tokens=48))
    compared: ClassVar[str] = "roles.critique"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Steps of reinforcement learning."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer, which are compared."""
    num_refinements: Annotated[PerStep[int], ActsWhen("refine_weight")] = Field(4, ge=1)
    """Refinements after each critique (m). Only sampled where they count."""
    refine_weight: PerStep[float] = Field(1.0, ge=0)
    """Lambda. 0: the verdict alone is rewarded."""
    schedule: dict[str, Schedule] = Field({"refine_weight": Steps(values=(0.0, 1.0), at=(41,))})
    loss: PerStep[ClipLoss] = ClipLoss()
    """Of the critic."""
    kl: PerStep[KLConfig] = KLConfig()
    """To the critic of the warm start."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)


class RefCritic(CriticAlgorithm[RefCriticConfig]):
    """RefCritic: a critic rewarded for its verdict, later also for the refinements it leads to"""

    spec = critic_spec(RefCriticConfig, {BEST: "ref_critic"})

    def phases(self) -> Iterator[Phase]:
        yield from training_phases(self, self.config, self._collect, self._updates, into=BEST)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        terms = policy_terms(config.loss, config.kl, "token_mean")
        rows = config.prompts_per_step * config.group_size
        return {"critic": Update(terms, config.learning, config.num_updates(rows))}

    def _collect(self, step: int) -> Batch:
        config, refines = self.at(step), self.at(step).refine_weight > 0
        episodes = sample_critiques(
            self,
            ("train", step),
            self.run.next_tasks(step, config.prompts_per_step),
            num_critiques=config.group_size,
            refine=refines,
            num_refinements=config.num_refinements,
        )
        terms = {"verdict": verdict_match()} | ({"refine": refine_outcome()} if refines else {})
        total = mixture({"verdict": 1.0} | ({"refine": config.refine_weight} if refines else {}))
        episodes = rewarded(episodes, "critic", terms, total, added=config.rewards)
        groups = groups_of(episodes, "critic", "answer")
        reference = Reference(self.run.loop.policies[SFT], config.kl, config.learning.token_budget)
        assigned = assign_credit(groups, ADVANTAGES.get("grpo"), reference)
        return training_batch(self.config, "train", step, episodes, groups, assigned, reaches)


def reaches(scored: ScoredSegment) -> bool:
    """Whether the verdict is right, whatever came after it."""
    return scored.segment.rewards["verdict"] == 1.0
