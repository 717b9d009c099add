"""RefCritic: a critic is rewarded for its verdict and for the share of right refinements after its critique.

    R = (R_verdict + lambda R_refine) / (1 + lambda),   R_refine the mean over m refinements

First lambda is 0, later 1. With lambda 0 throughout, this is the verdict's reward alone. Unlike in Critique-RL, nothing
is gated, several refinements are averaged, and the KL keeps its reference. How many refinements the authors took, and
where lambda changes, is not published: both are settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
from whet.methods.base import RunContext
from whet.methods.critic.ref_critic_config import RefCriticConfig
from whet.methods.critics import SFT, CriticAlgorithm, critic_spec, sample_critiques, training_batch, training_phases
from whet.trainer import Update, policy_terms
from whet.trainer.loop import Batch, Phase

BEST = "critic_refined"
"""The critic of the best validation, frozen."""


class RefCritic(CriticAlgorithm[RefCriticConfig]):
    """RefCritic: a critic rewarded for its verdict, later also for the refinements it leads to"""

    spec = critic_spec(RefCriticConfig, {BEST: "ref_critic"})

    def __init__(self, config: RefCriticConfig, run: RunContext) -> None:
        super().__init__(config, run)
        if "refine_weight" in config.schedule and not self.at(config.num_steps).refine_weight:
            middle = config.num_steps // 2 + 1
            setting = f"schedule.refine_weight.at=[{middle}]" if middle > 1 else "schedule.refine_weight=null"
            run.warnings.append(
                f"refine_weight is 0 up to the last of {config.num_steps} steps, so no refinement is rewarded: "
                f"set {setting}"
            )

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
