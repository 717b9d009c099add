"""RL of a critic with the indirect reward alone: what its critiques lead to (Critique-RL, eq. 4 to 6).

    y ~ actor(x);  c ~ critic(x, y);  y' ~ actor(x, y, c);  R = r_refine(y'), or r_delta, r_correction

The baselines of Critique-RL's Table 1 are presets. CTRL compares the critiques of an answer (GRPO); one without a
readable verdict is rewarded 0. Retroformer uses a value model (PPO) and rewards the difference of two returns (eq. 5).
Both start from the critic of the warm start. `ctrl` and `retroformer` have the tiny world's sizes and rates, and
`ctrl_published` and `retroformer_published` those of the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from whet.config.losses import VALUE_MODEL
from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
    Reference,
    ScoredSegment,
    assign_credit,
    assign_credit_with_values,
    groups_of,
)
from whet.credit.rewards import only, refine_outcome, rewarded, verdict_match
from whet.methods.base import RunContext
from whet.methods.critic.critic_gradient_config import CriticGradientConfig
from whet.methods.critics import SFT, CriticAlgorithm, critic_spec, sample_critiques, training_batch, training_phases
from whet.methods.report_specs import load_report
from whet.models.value import begin_anew
from whet.report.spec import ReportSpec
from whet.trainer import Update, policy_terms, value_model
from whet.trainer.loop import Batch, Phase
from whet.types import Episode

BEST = "critic_helpful"
"""The critic of the best validation, frozen."""


def compared(report: ReportSpec, config: CriticGradientConfig) -> ReportSpec:
    """The report of a run that may compare the rewards of a group."""
    return replace(report, is_compared=ADVANTAGES.get(config.advantage).baseline == "group")


class CriticGradient(CriticAlgorithm[CriticGradientConfig]):
    """RL of a critic by what its critiques lead to; ctrl and retroformer are presets of it"""

    spec = critic_spec(
        CriticGradientConfig,
        {BEST: "helpful"},
        report=load_report("critic_gradient"),
        report_by=compared,
    )

    def __init__(self, config: CriticGradientConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.advantage = ADVANTAGES.get(config.advantage)
        if config.advantage == "gae":
            value_model.ensure_value_model(self.run.loop.policies, config.value, "critic")

    def phases(self) -> Iterator[Phase]:
        yield from training_phases(self, self.config, self._collect, self._updates, into=BEST, begin=self._begin)

    def _begin(self) -> None:
        self.keep_sft()
        if self.config.advantage == "gae" and self.config.value.path is None:
            begin_anew(self.run.loop.policies[VALUE_MODEL], self.run.loop.policies["critic"])

    def _updates(self, step: int) -> Mapping[str, Update]:
        config, updates = self.at(step), {}
        rows, steps = config.prompts_per_step * config.group_size, config.num_steps
        if config.advantage == "gae":
            updates[VALUE_MODEL] = value_model.update_of(config.value, rows, steps)
            steps = value_model.steps_after_warmup(config.value, rows, steps)
        length, entropy = config.roles.critique.max_new_tokens, config.entropy_coef
        terms = policy_terms(config.loss, config.kl, config.aggregation, length=length, entropy=entropy)
        return {**updates, "critic": Update(terms, config.learning, steps * config.learning.updates_a_step(rows))}

    def _collect(self, step: int) -> Batch:
        config = self.at(step)
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        episodes = sample_critiques(self, ("train", step), tasks, num_critiques=config.group_size)
        terms = {"indirect": refine_outcome(config.indirect), "judged_right": verdict_match(), "readable": readable}
        total = after_verdict if config.requires_verdict else only("indirect")
        episodes = rewarded(episodes, "critic", terms, total, added=config.rewards)
        groups = groups_of(episodes, "critic", "answer")
        return training_batch(
            self.config, "train", step, episodes, groups, self._assign_credit(config, groups), reaches
        )

    def _assign_credit(self, config: CriticGradientConfig, groups: list[list[ScoredSegment]]) -> AssignedCredit:
        policies = self.run.loop.policies
        reference = Reference(policies[SFT], config.kl, config.learning.token_budget)
        if config.advantage != "gae":
            return assign_credit(groups, self.advantage, reference)
        assigned = assign_credit_with_values(groups, config.value, policies[VALUE_MODEL], reference)
        return replace(assigned, rows=value_model.rows_to_train(config.value, policies, assigned.rows))


def readable(episode: Episode, index: int) -> float:
    """1 if the critique has a readable verdict, else 0."""
    return float(episode.segments[index].parsed.get("verdict") is not None)


def after_verdict(rewards: Mapping[str, float]) -> float:
    """CTRL's reward (its code, `reward_revision`): what the refinement is worth, and 0 without a readable verdict."""
    return rewards["indirect"] if rewards["readable"] else 0.0


def reaches(scored: ScoredSegment) -> bool:
    """A right refinement, whatever the verdict."""
    return refine_outcome()(scored.episode, scored.index) == 1.0
