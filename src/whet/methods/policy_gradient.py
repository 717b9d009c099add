"""Plain RL of one policy with a verifiable reward: GRPO and its relatives, BAPO among them, on policy or off.

    y_1 .. y_G ~ policy(x);  R_i = score(y_i);  A = advantage(R);  loss = policy loss(r, A),  r = policy / sampler

The methods are in the settings: `presets/` names them. A step samples replies, whole or in parts (`runs.rollouts`);
rewards become credit (`credit`), and the settings of the loss the terms of the update (`training.losses`). The run's
store is what makes a step train on older rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from whet.config import (
    Aggregation,
    ClipLoss,
    Config,
    ConfigError,
    CorrectionConfig,
    FreshData,
    KLConfig,
    LearningConfig,
    NameOf,
    OffPolicy,
    PerStep,
    PolicyLoss,
    PolicyRunConfig,
    ReinforceLoss,
    ValueConfig,
    counted,
    possible,
)
from whet.credit import (
    ADVANTAGES,
    Earned,
    Paid,
    Reference,
    RewardTerm,
    differ,
    earn,
    earn_with_values,
    groups_of,
    outcome,
    overlong,
    reply_metrics,
    reply_signs,
    reward_metrics,
    rewarded,
    with_reference,
)
from whet.runs import values
from whet.runs.loop import Batch, Phase
from whet.runs.method import Bench
from whet.runs.rollouts import Sampled, batches_of, in_parts, whole
from whet.runs.sheet import Sheet
from whet.runs.sheets import SOLVE
from whet.runs.solvers import BY_BEST, POLICY, PolicyMethod
from whet.runs.values import VALUE_MODEL
from whet.training import Update, correction_of, entropy_clip, policy_terms
from whet.types import Row

REFERENCE = "policy_ref"


class PolicyGradientConfig(PolicyRunConfig):
    """Plain RL with a verifiable reward: a policy samples replies to a problem, a grader pays them, groups compare."""

    method: Literal["policy_gradient"] = "policy_gradient"
    num_steps: int = Field(60, ge=1, le=10**9)
    """Steps: sample, grade, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems begun in a step."""
    group_size: PerStep[int] = Field(8, ge=1)
    """Replies to each."""
    signed: PerStep[bool] = False
    """False: a reply is paid its score, 0 to 1. True: from -1 to 1. Matters where no group's mean is taken off, and
    beside a penalty on length."""
    overlong: PerStep[int] = Field(0, ge=0)
    """Soft penalty on length (DAPO): the reward falls linearly by up to 1 over the last so many of max_new_tokens.
    0: none."""
    resample: PerStep[int] = Field(0, ge=0)
    """Dynamic sampling (DAPO): so many more batches of problems at most, until prompts_per_step groups have scores
    that differ within the group (whatever their lengths cost). 0: groups without signal stay, and teach nothing."""
    advantage: Annotated[str, NameOf("advantage")] = "grpo"
    """grpo: centred in the group, divided by its std; dr_grpo: centred; rloo: leave-one-out; reinforce_pp: whitened
    over the batch's tokens; reinforce_pp_baseline: centred in the group, then whitened; reward: as paid; gae: PPO's,
    with a value model; or one that a plug-in registers."""
    value: ValueConfig = ValueConfig()
    loss: PerStep[PolicyLoss] = ClipLoss()
    """Of the policy."""
    aggregation: Aggregation = "token_mean"
    """How token losses are averaged: over all tokens (DAPO), within replies first (GRPO's paper), or over a constant
    length, max_new_tokens (Dr. GRPO)."""
    proximal: bool = False
    """What ratios are taken to. False: the weights that sampled the token. True: those that the step starts from."""
    correction: CorrectionConfig | None = None
    """With proximal. None: no correction."""
    kl: PerStep[KLConfig] = KLConfig()
    off_policy: OffPolicy = FreshData()
    """How data come to be older than the weights, beside several updates a batch (learning.num_epochs and
    learning.minibatch_rows)."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=128)
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the best validated weights are kept."""
    probe_every: int = Field(10, ge=0)
    """Updates between two measurements of what an update does to the entropy, beside what the Entropy-Clip Rule
    predicts: one more pass without gradient. 0: none."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        for problem in _problems(self):
            raise ValueError(problem)
        return self

    def idle(self) -> set[str]:
        value = set() if self.advantage == "gae" else {"value"}
        return super().idle() | value | (set() if _has_kl(self) else {"kl.estimator", "kl.where"})


class PolicyGradient(PolicyMethod[PolicyGradientConfig]):
    """Plain RL with a verifiable reward, by its settings; grpo, bapo, ppo and others are presets of it"""

    config_class = PolicyGradientConfig
    sheet: ClassVar[Sheet] = SOLVE

    def __init__(self, config: PolicyGradientConfig, bench: Bench) -> None:
        super().__init__(config, bench)
        self.advantage = ADVANTAGES.get(config.advantage)
        if self.advantage.baseline == "group" and min(possible(config, "group_size")) < 2:
            raise ConfigError(
                f"advantage = {config.advantage!r} compares the replies of a group, so group_size has to be 2 at "
                "least; single replies go with reinforce_pp, reward or gae"
            )
        if config.advantage == "gae":
            values.take_seat(self.loop.policies, config.value, POLICY)
        if _has_kl(config) and REFERENCE not in self.loop.policies:
            self.loop.fork(POLICY, REFERENCE)

    @property
    def own_sheet(self) -> Sheet:
        return replace(self.sheet, is_compared=self.advantage.baseline == "group")

    def phases(self) -> Iterator[Phase]:
        yield self.before()
        yield Phase(
            name="train",
            num_steps=self.config.num_steps,
            collect=self._collect,
            updates=self._updates,
            validate=self.validate,
            validate_every=self.config.validate_every,
            select=BY_BEST,
            main=POLICY,
            headline=("reward/mean", "reward/correct", "entropy", "group/no_signal"),
        )
        yield self.after()

    def _updates(self, step: int) -> Mapping[str, Update]:
        """How the policy learns, and the value model where there is one."""
        config = self.at(step)
        found: dict[str, Update] = {}
        num_rows, steps = config.prompts_per_step * config.group_size, config.num_steps
        sizes = partial(counted, self.config, "group_size", gates=self.loop.gates)
        if config.off_policy.kind == "replay":
            steps -= config.off_policy.staleness
        if config.advantage == "gae":
            found[VALUE_MODEL] = values.update_of(config.value, num_rows, steps)
            steps = values.steps_after_warmup(config.value, num_rows, steps)
        found[POLICY] = Update(
            policy_terms(config.loss, config.kl, config.aggregation, length=config.sampling.max_new_tokens),
            config.learning,
            sum(n * config.learning.updates_a_step(config.prompts_per_step * size) for size, n in sizes(steps)),
            proximal=config.proximal,
            correct=correction_of(config.correction),
            observers=(entropy_clip(config.loss, config.probe_every),),
        )
        return found

    # --- a step -------------------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Batch:
        """Play, reward, turn rewards into credit; then what is trained on now."""
        config = self.at(step)
        sampled = self._sampled(config, step)
        terms: dict[str, RewardTerm] = {"outcome": outcome(signed=config.signed)}
        if config.overlong:
            terms["overlong"] = overlong(config.sampling.max_new_tokens, config.overlong)
        played = [rewarded(group, "solver", terms, added=config.rewards) for group in sampled.groups]
        groups = [groups_of(group, "solver", "task")[0] if group else [] for group in played]
        metrics: dict[str, float | None] = {
            **reward_metrics(groups), **reply_metrics(groups, config.sampling), **sampled.metrics,
        }  # fmt: skip
        signs = reply_signs(groups, self.advantage, sampled.num_failed)
        if config.resample:
            groups = [group for group in groups if differ([paid.segment for paid in group])][: config.prompts_per_step]
        earned = self._earned(config, groups)
        rows = self._due(config, step, earned.rows)
        if config.off_policy.kind == "replay":
            metrics["buffer/batches"] = float(len(self.loop.store.rows("replay")))
        traces = self.traces(step, groups, earned)
        return Batch(rows, metrics | earned.metrics, traces, signs=[signs])

    def _sampled(self, config: PolicyGradientConfig, step: int) -> Sampled:
        """The step's replies, by the regime."""
        flow = self.flow(POLICY, "train", step, sampling=config.sampling)
        tasks = self.next_tasks(step, config.prompts_per_step)
        if config.off_policy.kind == "partial":
            queue, budget = self.loop.store.episodes("unfinished"), config.off_policy.budget
            return in_parts(flow, self.desk, tasks, config.group_size, queue=queue, step=step, budget=budget)
        batches = batches_of(tasks, self.tasks["train"], config.seed, step, config.resample)
        return whole(flow, self.desk, batches, config.group_size, resample=config.resample > 0)

    def _earned(self, config: PolicyGradientConfig, groups: list[list[Paid]]) -> Earned:
        policies, reference = self.loop.policies, None
        if config.kl.coef:
            reference = Reference(policies[REFERENCE], config.kl, config.learning.token_budget)
        if config.advantage == "gae":
            return earn_with_values(groups, config.value, policies[VALUE_MODEL], reference)
        return earn(groups, self.advantage, reference)

    def _due(self, config: PolicyGradientConfig, step: int, rows: list[Row]) -> list[Row]:
        """What is trained on now: with replay the rows of `staleness` steps ago; while the value model warms up, its
        own alone."""
        if config.off_policy.kind == "replay":
            queue = self.loop.store.rows("replay")
            queue.put(str(step), rows)
            rows = queue.take() if len(queue) > config.off_policy.staleness else []
            if config.kl.coef and config.kl.where == "loss":  # it may have been 0 when they were sampled
                rows = with_reference(rows, self.loop.policies[REFERENCE], token_budget=config.learning.token_budget)
        return values.due(config.value, self.loop.policies, rows) if config.advantage == "gae" else rows

    def plan(self) -> list[str]:
        config, learning = self.config, self.config.learning
        rows = config.prompts_per_step * config.group_size
        updates = learning.updates_a_step(rows)
        lines = [
            f"loss: {in_words(config.loss)}; advantage {config.advantage}, averaged by {config.aggregation}",
            f"off-policy regime: {in_words(config.off_policy)}",
            f"each step: {config.prompts_per_step} problems x {config.group_size} replies = {rows} rows, {updates} "
            f"{'update' if updates == 1 else 'updates'} of {min(rows, learning.minibatch_rows)} rows; learning rate "
            f"{learning.learning_rate:g}, down to {learning.final_share:g} of it",
        ]
        is_on_policy = updates == 1 and (config.proximal or config.off_policy.kind == "none")
        if is_on_policy and not isinstance(config.loss, ReinforceLoss):
            why = "to the weights that the step starts from" if config.proximal else "on fresh data"
            lines.append(
                f"note: with one update a step every ratio {why} is 1, and no bound, gate or weight of the loss acts; "
                "lower learning.minibatch_rows or raise learning.num_epochs for more updates"
                f"{'' if config.proximal else ', or set off_policy.kind'}"
            )
        return lines


def in_words(settings: Config) -> str:
    """A loss or a regime in a line: its kind, and its settings."""
    fields = {name: getattr(settings, name) for name in type(settings).model_fields if name != "kind"}
    parts = [f"{n} {in_words(v) if isinstance(v, Config) else v}" for n, v in fields.items() if v is not None]
    kind = getattr(settings, "kind", "")
    return f"{kind} ({', '.join(parts)})".strip() if parts else kind


def _has_kl(config: PolicyGradientConfig) -> bool:
    """Whether there may be a KL at some step."""
    return any(possible(config, "kl.coef"))


def _problems(config: PolicyGradientConfig) -> Iterator[str]:
    """What does not go together."""
    regime = config.off_policy.kind
    num_rows = config.prompts_per_step * config.group_size
    if config.sampling.temperature == 0:
        yield "sampling.temperature = 0 makes all replies to a problem equal; use 0.6 to 1.0"
    if config.overlong >= config.sampling.max_new_tokens:
        yield "overlong has to be less than sampling.max_new_tokens: else every reply is penalised"
    if config.correction is not None and not config.proximal:
        yield "correction needs proximal = true: with ratios to the sampler it would count twice"
    if config.correction is not None and config.correction.low >= config.correction.high:
        yield "correction.low has to be less than correction.high"
    if config.resample and regime == "partial":
        yield "resample does not go with off_policy.kind = partial: unfinished groups cannot be replaced"
    if config.resample and config.group_size < 2:
        yield "resample looks for groups whose scores differ, so group_size has to be 2 at least"
    if config.advantage == "gae" and (problem := values.warmup_problem(config.value, num_rows, config.num_steps)):
        yield problem
    if regime == "partial" and any(key.partition(".")[0] == "sampling" for key in config.__dict__["schedule"]):
        yield "schedule.sampling does not go with off_policy.kind = partial: a reply would be of two samplings"
    if config.sampling.stop and regime == "partial":
        yield "sampling.stop does not go with off_policy.kind = partial: a string might fall on a seam"
    if config.off_policy.kind == "replay" and config.off_policy.staleness >= config.num_steps:
        yield "off_policy.staleness has to be less than num_steps, or nothing would ever be trained on"
