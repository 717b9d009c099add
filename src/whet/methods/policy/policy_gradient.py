"""Plain RL of one policy with a verifiable reward: GRPO and its relatives, BAPO among them, on policy or off.

    y_1 .. y_G ~ policy(x);  R_i = score(y_i);  A = advantage(R);  loss = policy loss(r, A),  r = policy / sampler

A step samples replies, whole or in parts (`methods.sampling`). Rewards become credit (`credit`). The settings of the
loss become the terms of the update (`trainer.losses`). Older rows that a step trains on wait in the run's store.

The methods differ in settings alone: each is a preset at the end of this file. Their papers stand in
`methods/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from whet.config import (
    BalancedBounds,
    BoundRange,
    CispoLoss,
    ClipLoss,
    DppoLoss,
    FixedBounds,
    GspoLoss,
    LearningConfig,
    M2poLoss,
    PerStep,
    PolicyRunConfig,
    ReinforceLoss,
    SapoLoss,
    ToprLoss,
)
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
from whet.methods.base import RunContext
from whet.methods.gradient import Gradient, GradientConfig
from whet.methods.registry import Preset
from whet.methods.sampling import Sampled, batches_of, in_parts, whole
from whet.methods.solvers import BY_BEST, POLICY, PolicyAlgorithm, reply_traces, solve_rollout, solver_spec
from whet.report.spec import ReportSpec
from whet.trainer.loop import Batch, Phase
from whet.trainer.value_model import VALUE_MODEL

HEADLINE = ("reward/mean", "reward/correct", "entropy", "group/no_signal")


class PolicyGradientConfig(PolicyRunConfig, GradientConfig):
    """Plain RL with a verifiable reward: a policy samples replies, a grader scores them, groups compare."""

    method: Literal["policy_gradient"] = "policy_gradient"
    signed: PerStep[bool] = False
    """False: a reply's reward is its score, 0 to 1. True: the score, scaled to -1 to 1. Matters where no group mean is
    subtracted, and beside a penalty on length."""
    overlong: PerStep[int] = Field(0, ge=0)
    """Soft penalty on length (DAPO): over the last so many of max_new_tokens, the reward falls linearly by up to 1.
    0: none."""
    resample: PerStep[int] = Field(0, ge=0)
    """Dynamic sampling (DAPO): at most so many more batches, until prompts_per_step groups have scores that differ
    within the group, before any penalty on length. 0: groups without signal stay, and teach nothing."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        for problem in (*_problems(self), *self.problems()):
            raise ValueError(problem)
        return self


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
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        if config.off_policy.kind == "partial":
            queue, budget = self.run.loop.store.episodes("unfinished"), config.off_policy.budget
            return in_parts(rollout, self.run.runtime, tasks, config.group_size, queue=queue, step=step, budget=budget)
        batches = batches_of(tasks, self.run.tasks["train"], config.seed, step, config.resample)
        return whole(rollout, self.run.runtime, batches, config.group_size, resample=config.resample > 0)

    def _assign_credit(self, config: PolicyGradientConfig, groups: list[list[ScoredSegment]]) -> AssignedCredit:
        reference = self.gradient.reference(config)
        if config.advantage == "gae":
            return assign_credit_with_values(groups, config.value, self.run.loop.policies[VALUE_MODEL], reference)
        return assign_credit(groups, self.advantage, reference)


def _problems(config: PolicyGradientConfig) -> Iterator[str]:
    """Settings that do not go together, a sentence each."""
    regime = config.off_policy.kind
    if config.sampling.temperature == 0:
        yield "sampling.temperature = 0 makes all replies to a problem equal; use 0.6 to 1.0"
    if config.overlong >= config.sampling.max_new_tokens:
        yield "overlong has to be less than sampling.max_new_tokens: else every reply is penalised"
    if config.resample and regime == "partial":
        yield "resample does not go with off_policy.kind = partial: unfinished groups cannot be replaced"
    if config.resample and config.group_size < 2:
        yield "resample looks for groups whose scores differ, so group_size has to be 2 at least"
    if regime == "partial" and any(key.partition(".")[0] == "sampling" for key in config.__dict__["schedule"]):
        yield "schedule.sampling does not go with off_policy.kind = partial: a reply would be of two samplings"
    if config.sampling.stop and regime == "partial":
        yield "sampling.stop does not go with off_policy.kind = partial: a string might fall on a seam"


# --- presets ----------------------------------------------------------------------------------------------------------


def _preset(**settings: Any) -> Preset:
    return Preset(PolicyGradient, PolicyGradientConfig(**settings))


GRPO = _preset()
DAPO = _preset(loss=ClipLoss(bounds=FixedBounds(high=1.28)), resample=3, overlong=16, signed=True)
DR_GRPO = _preset(advantage="dr_grpo", aggregation="constant")
CISPO = _preset(loss=CispoLoss())
GSPO = _preset(loss=GspoLoss(), aggregation="sequence_mean")
SAPO = _preset(loss=SapoLoss(), aggregation="sequence_mean")
TOPR = _preset(loss=ToprLoss(), advantage="dr_grpo")
DPPO = _preset(loss=DppoLoss())
M2PO = _preset(loss=M2poLoss())

_SEVERAL_UPDATES = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=32)
"""BAPO is for data older than the weights. As in its published script, there are two epochs of four minibatches. With
one update a batch every ratio is 1, and no bound acts."""
_CODE_BOUNDS = BalancedBounds(
    target=1.0,
    target_as="odds",
    order="low_first",
    low=BoundRange(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=BoundRange(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)
BAPO = _preset(loss=ClipLoss(bounds=BalancedBounds()), learning=_SEVERAL_UPDATES)
BAPO_CODE = _preset(loss=ClipLoss(bounds=_CODE_BOUNDS, dual=3.0), learning=_SEVERAL_UPDATES)
BAPO_GRADIENT = _preset(loss=ClipLoss(bounds=BalancedBounds(contribution="gradient")), learning=_SEVERAL_UPDATES)

RLOO = _preset(advantage="rloo", loss=ReinforceLoss(), aggregation="sequence_mean")
REINFORCE_PP = _preset(advantage="reinforce_pp", signed=True)
REINFORCE_PP_BASELINE = _preset(advantage="reinforce_pp_baseline")
REINFORCE = _preset(advantage="reward", signed=True, loss=ReinforceLoss())
PPO = _preset(advantage="gae")
