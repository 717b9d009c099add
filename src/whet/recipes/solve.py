"""Plain RL with a verifiable reward: GRPO and its relatives, BAPO among them, on policy or off.

    y_1 .. y_G ~ policy(x);  R_i = score(y_i);  A = advantage(R);  loss = policy loss(r, A),  r = policy / sampler

The method is in the settings: `solve_config.PRESETS` names them. `solve_rollouts` samples a step's replies, whole or in
parts; `solve_credit` turns rewards into credit; `solve_rule` turns a loss's settings into the rule that the learner
follows. Here they are put together: a step, the phases of a run, and the queue that makes a step train on older rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.config import Config, ConfigError
from whet.models.value import load_value_model, value_model_of
from whet.play.driver import Service
from whet.recipes.loss_config import ReinforceLoss
from whet.recipes.prompts import Conversation
from whet.recipes.solve_answers import BEST, POLICY, Solvers, trace
from whet.recipes.solve_config import FreshData, PartialData, ReplayData, SolveConfig
from whet.recipes.solve_credit import VALUE_MODEL, Credit, Paid, credit, pay, reward_metrics, signs
from whet.recipes.solve_rollouts import Group, Rollouts, Sampled, has_signal
from whet.recipes.solve_rule import policy_rule, value_rule
from whet.tasks.dialects import DIALECTS
from whet.training.buffers import ReplayQueue, UnfinishedQueue
from whet.training.loop import Batch, Phase, Run, Selection
from whet.types import Row, Task

REFERENCE = "policy_ref"
ROWS = {"before": POLICY, "best": BEST, "last": POLICY}
"""Rows of the final table, and the policy that each measures."""


@dataclass
class SolveRecipe:
    """The recipe, put together for one run.

    Args:
        tasks: by split: train, validation, test.
        grade: the service that grades `(reply, task)` pairs.
    """

    config: SolveConfig
    run: Run
    tasks: Mapping[str, Sequence[Task]]
    grade: Service

    def __post_init__(self) -> None:
        config = self.config
        if config.prompts_per_step > len(self.tasks["train"]):
            raise ConfigError(
                f"prompts_per_step = {config.prompts_per_step} is more than the {len(self.tasks['train'])} training "
                "problems that there are: lower it"
            )
        self.dialect = DIALECTS[config.dialect]
        self.solvers = Solvers(config, self.run.policies, self.grade)
        self.rollouts = Rollouts(self.solvers, self.tasks["train"])
        self.queue: ReplayQueue | UnfinishedQueue | None = None
        if isinstance(config.off_policy, ReplayData):
            self.queue = ReplayQueue(config.off_policy.staleness)
        elif isinstance(config.off_policy, PartialData):
            self.queue = UnfinishedQueue()
        policies = self.run.policies
        if config.advantage == "gae" and VALUE_MODEL not in policies:
            path, base = config.value.path, policies[POLICY]
            found = value_model_of(base, VALUE_MODEL) if path is None else load_value_model(path, base, VALUE_MODEL)
            policies[VALUE_MODEL] = found
        if config.kl.coef and REFERENCE not in policies:
            self.run.fork(POLICY, REFERENCE)

    # --- phases ---------------------------------------------------------------------------------------------------

    def phases(self) -> list[Phase]:
        """The run from start to end."""
        return [self._test("before", ["before"]), self._train(), self._test("after", ["best", "last"])]

    def _train(self) -> Phase:
        config = self.config
        num_rows = config.prompts_per_step * config.group_size
        steps = config.num_steps
        if isinstance(config.off_policy, ReplayData):
            steps -= config.off_policy.staleness
        updates = {}
        if config.advantage == "gae":
            a_step = config.value.learning.updates_a_step(num_rows)
            updates[VALUE_MODEL] = value_rule(config, steps * a_step)
            steps = max(1, steps - config.value.warmup_updates // a_step)
        updates[POLICY] = policy_rule(config, steps * config.learning.updates_a_step(num_rows))
        return Phase(
            name="train",
            num_steps=config.num_steps,
            collect=self._collect,
            updates=updates,
            validate=self._validate,
            validate_every=config.validate_every,
            select=Selection(POLICY, BEST, "validation/acc"),
            main=POLICY,
            headline=("reward/mean", "reward/correct", "entropy", "group/no_signal"),
            memory=self.queue,
        )

    def _test(self, name: str, rows: Sequence[str]) -> Phase:
        """One step a row of the final table."""

        def collect(step: int) -> Batch:
            row = rows[step - 1]
            tasks = self.tasks["test"][: self.config.evaluation.num_test]
            metrics, traces = self.solvers.measured(
                tasks, ROWS[row], num_samples=self.config.evaluation.num_samples,
                phase=name, step=step, split="test", label=row,
            )  # fmt: skip
            return Batch(metrics={f"test/{key}": value for key, value in metrics.items()}, traces=traces)

        return Phase(name, len(rows), collect, headline=("test/acc", "test/average", "test/pass"))

    def summary(self) -> dict[str, dict[str, Any]]:
        """The final table's rows, from the metrics that the test phases logged."""
        names = {("before", 1): "before", ("after", 1): "best", ("after", 2): "last"}
        return {
            names[place]: {key.removeprefix("test/"): value for key, value in row.items() if key.startswith("test/")}
            for row in self.run.folder.read_metrics()
            if (place := (row.get("phase"), row.get("step"))) in names
        }

    # --- what a session asks of every recipe ------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """What may be put to the policy."""
        questions = [(task.prompt,) for tasks in self.tasks.values() for task in tasks]
        dialect, written = self.dialect, self.config.sampling.max_new_tokens
        return [Conversation(POLICY, questions, dialect.solve_messages, dialect.solve_prefill, written)]

    def plan(self) -> list[str]:
        """What a run would do, in lines."""
        config, learning = self.config, self.config.learning
        rows = config.prompts_per_step * config.group_size
        updates = learning.updates_a_step(rows)
        lines = [
            f"loss: {told(config.loss)}; advantage {config.advantage}, averaged by {config.aggregation}",
            f"off-policy regime: {told(config.off_policy)}",
            f"each step: {config.prompts_per_step} problems x {config.group_size} replies = {rows} rows, {updates} "
            f"{'update' if updates == 1 else 'updates'} of {min(rows, learning.minibatch_rows)} rows; learning rate "
            f"{learning.learning_rate:g}, down to {learning.final_share:g} of it",
        ]
        is_on_policy = updates == 1 and (config.proximal or isinstance(config.off_policy, FreshData))
        if is_on_policy and not isinstance(config.loss, ReinforceLoss):
            why = "to the weights that the step starts from" if config.proximal else "on fresh data"
            lines.append(
                f"note: with one update a step every ratio {why} is 1, and no bound, gate or weight of the loss acts; "
                "lower learning.minibatch_rows or raise learning.num_epochs for more updates"
                f"{'' if config.proximal else ', or set off_policy.kind'}"
            )
        return lines

    @property
    def token_budget(self) -> int:
        return self.config.learning.token_budget

    def parts_in_use(self) -> list[object]:
        """The settings that phases read as they run."""
        config = self.config
        parts: list[object] = [
            config.recipe, config.engine, config.sampling, config.evaluation, config.traces_per_step, config.loss,
            config.learning, config.off_policy, config.overlong, config.signed, config.resample, config.watch,
        ]  # fmt: skip
        if config.advantage == "gae":
            parts.append(config.value)
        if config.kl.coef:
            parts.append(config.kl)
        return parts

    # --- a step of training -------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Batch:
        """Play, pay, turn pay into credit; then what is trained on now."""
        sampled = self._sampled(step)
        groups = sampled.groups
        paid = [[Paid(s, pay(self.config, s)) for s in group] for _, group in groups]
        metrics: dict[str, float | None] = {**reward_metrics(paid, self.config.sampling), **sampled.metrics}
        seen = signs(self.config, paid, sampled.num_failed)
        if self.config.resample:
            chosen = [i for i, (_, group) in enumerate(groups) if has_signal(group)]
            chosen = chosen[: self.config.prompts_per_step]
            groups, paid = [groups[i] for i in chosen], [paid[i] for i in chosen]
        policies = self.run.policies
        earned = credit(self.config, paid, policies.get(REFERENCE), policies.get(VALUE_MODEL))
        traces = self._training_traces(step, groups, paid, earned)
        rows: Sequence[Row] | None = earned.rows
        if isinstance(self.queue, ReplayQueue):
            rows = self.queue.exchange(earned.rows)
            metrics["buffer/batches"] = float(len(self.queue.batches))
        if self.config.advantage == "gae" and policies[VALUE_MODEL].version < self.config.value.warmup_updates:
            rows = [row for row in rows or [] if row.policy == VALUE_MODEL]
        return Batch(rows or [], metrics | earned.metrics, traces, num_tokens=sampled.num_tokens, signs=[seen])

    def _sampled(self, step: int) -> Sampled:
        """The step's groups, by the regime that the queue stands for."""
        if isinstance(self.queue, UnfinishedQueue):
            assert isinstance(self.config.off_policy, PartialData)
            return self.rollouts.in_parts(step, self.queue, self.config.off_policy.budget)
        return self.rollouts.whole(step)

    def _training_traces(
        self, step: int, groups: Sequence[Group], paid: Sequence[Sequence[Paid]], earned: Credit
    ) -> list[dict[str, Any]]:
        """Of the first problems, every reply with its reward and its mean credit a token."""
        traces = []
        for (task, _), group in list(zip(groups, paid, strict=True))[: self.config.traces_per_step]:
            for each in group:
                segment = each.segment
                traces.append(
                    trace(task, segment, phase="train", step=step, split="train", label="training")
                    | {"reward": each.reward, "credit": earned.of_replies.get(segment.seed)}
                )
        return traces

    def _validate(self, step: int) -> Batch:
        tasks = self.tasks["validation"][: self.config.evaluation.num_validation]
        found, traces = self.solvers.measured(
            tasks, POLICY, phase="train", step=step, split="validation", label="training"
        )
        kept = {name: found[name] for name in ("acc", "truncated", "length", "grader_errors", "reply_exhausted")}
        return Batch(metrics=kept, traces=traces[:50])


def told(settings: Config) -> str:
    """A loss or a regime in a line: its kind, and its settings."""
    fields = {name: getattr(settings, name) for name in type(settings).model_fields if name != "kind"}
    parts = [f"{n} {told(v) if isinstance(v, Config) else v}" for n, v in fields.items() if v is not None]
    kind = getattr(settings, "kind", "")
    return f"{kind} ({', '.join(parts)})".strip() if parts else kind
