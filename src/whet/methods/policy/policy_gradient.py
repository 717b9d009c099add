"""Plain RL of one policy with a verifiable reward: GRPO and its relatives, BAPO among them, on policy or off.

    y_1 .. y_G ~ policy(x);  R_i = score(y_i);  A = advantage(R);  loss = policy loss(r, A),  r = policy / sampler

A step samples replies, whole or in parts (`methods.sampling`). Rewards become credit (`credit`). The settings of the
loss become the terms of the update (`trainer.losses`). Older rows that a step trains on wait in the run's store.

The methods differ in settings alone: each is one of `presets`. Their papers stand in `methods/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from whet.config.losses import VALUE_MODEL
from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
    RewardTerm,
    ScoredSegment,
    assign_credit,
    assign_credit_with_values,
    differ,
    groups_of,
    outcome,
    overlong,
    reply_metrics,
    reply_signs,
    reward_metrics,
    rewarded,
)
from whet.methods.ahead import ahead_of
from whet.methods.base import RunContext
from whet.methods.gradient import Gradient
from whet.methods.gradient_config import GradientConfig
from whet.methods.names import POLICY
from whet.methods.policy.policy_gradient_config import PolicyGradientConfig
from whet.methods.sampling import Sampled, batches_of, in_parts, sampled_of, whole
from whet.methods.solvers import BY_BEST, PolicyAlgorithm, reply_traces, solve_rollout, solver_spec
from whet.report.spec import ReportSpec
from whet.rollout.runtime import Call
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Task

HEADLINE = ("reward/mean", "reward/correct", "entropy", "group/no_signal")


def compared(report: ReportSpec, config: GradientConfig) -> ReportSpec:
    """The report spec, by whether the run compares the rewards of a group."""
    return replace(report, is_compared=ADVANTAGES.get(config.advantage).baseline == "group")


class PolicyGradient(PolicyAlgorithm[PolicyGradientConfig]):
    """Plain RL with a verifiable reward, by its settings; grpo, bapo, ppo and others are presets of it"""

    spec = solver_spec(PolicyGradientConfig, report_by=compared, plan=lambda algorithm: algorithm.gradient.plan())

    def __init__(self, config: PolicyGradientConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.gradient = Gradient(config, self.run.loop, length=config.sampling.max_new_tokens)
        self.advantage = self.gradient.advantage
        self.ahead = ahead_of(config, run, self._tasks, self._calls)

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
        yield self.gradient.phase(self.at, self._collect, self.evaluator.validate, BY_BEST, headline=HEADLINE)
        yield self.evaluator.after()

    # --- a step -------------------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Batch:
        """Rolls out, rewards and assigns credit, then takes the rows that train now."""
        config = self.at(step)
        sampled = self._sampled(config, step)
        terms: dict[str, RewardTerm] = {"outcome": outcome(signed=config.signed)}
        if config.overlong:
            terms["overlong"] = overlong(config.sampling.max_new_tokens, config.overlong)
        episodes = [rewarded(group, "solver", terms, added=config.rewards) for group in sampled.groups]
        groups = [groups_of(group, "solver", "task")[0] if group else [] for group in episodes]
        metrics = reward_metrics(groups) | reply_metrics(groups, config.sampling) | sampled.metrics
        signs = reply_signs(groups, self.advantage, sampled.num_failed)
        if config.resample:
            groups = [group for group in groups if differ([scored.segment for scored in group])]
            groups = groups[: config.prompts_per_step]
        assigned = self._assign_credit(config, groups)
        rows = self.gradient.due(config, step, assigned.rows)
        metrics |= self.gradient.buffer_metrics() | assigned.metrics
        return Batch(rows, metrics, reply_traces(self.config, step, groups, assigned), signs=[signs])

    def _sampled(self, config: PolicyGradientConfig, step: int) -> Sampled:
        """The step's replies, by the off-policy regime."""
        rollout = solve_rollout(self, POLICY, "train", step, sampling=config.sampling)
        tasks = self._tasks(step)
        if config.off_policy.kind == "partial":
            queue, budget = self.run.loop.store.episodes("unfinished"), config.off_policy.budget
            return in_parts(rollout, self.run.runtime, tasks, config.group_size, queue=queue, step=step, budget=budget)
        if self.ahead is not None:
            return sampled_of(*self.ahead.groups(step))
        batches = batches_of(tasks, self.run.tasks["train"], config.seed, step, config.resample)
        teaches = differ if config.resample else None
        return whole(rollout, self.run.runtime, batches, config.group_size, teaches=teaches)

    def _tasks(self, step: int) -> list[Task]:
        return self.run.next_tasks(step, self.config.prompts_per_step)

    def _calls(self, step: int, tasks: Sequence[Task]) -> list[Call[Episode]]:
        """The replies to some of a step's tasks, for asynchronous training."""
        config = self.at(step)
        rollout = solve_rollout(self, POLICY, "train", step, sampling=config.sampling)
        return self.run.runtime.calls_by_task(rollout, tasks, num_samples=config.group_size)

    def _assign_credit(self, config: PolicyGradientConfig, groups: list[list[ScoredSegment]]) -> AssignedCredit:
        reference = self.gradient.reference(config)
        if config.advantage == "gae":
            return assign_credit_with_values(groups, config.value, self.run.loop.policies[VALUE_MODEL], reference)
        return assign_credit(groups, self.advantage, reference)
