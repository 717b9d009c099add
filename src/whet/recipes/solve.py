"""Plain RL with a verifiable reward: GRPO and its relatives, BAPO among them, on policy or off.

    y_1 .. y_G ~ policy(x);  R_i = score(y_i);  A = advantage(R);  loss = policy loss(r, A),  r = policy / sampler

The method is in the settings: `solve_config.PRESETS` names them, `solve_rule` turns a loss's settings into the rule
that the learner follows, `solve_credit` turns rewards into credit. Here: what is played in a step, and what is
off-policy about it (a queue of batches, or replies that go on from step to step under newer weights).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.config import Config, ConfigError
from whet.engines.local import LocalEngine
from whet.evals.critique import Metrics
from whet.evals.solve import solve_metrics
from whet.models.value import load_value_model, value_model_of
from whet.play.driver import Service, play
from whet.play.roles import Role, seed_of
from whet.play.solve import GRADER, Solve
from whet.recipes.solve_config import FreshData, PartialData, ReplayData, SolveConfig
from whet.recipes.solve_credit import VALUE_MODEL, Credit, Paid, credit, pay, reward_metrics
from whet.recipes.solve_rule import policy_rule, value_rule
from whet.tasks.dialects import DIALECTS, Message
from whet.training.buffers import ReplayQueue, UnfinishedQueue
from whet.training.loop import Batch, Phase, Run, Selection
from whet.types import Episode, Row, Sampling, Segment, Task

POLICY, BEST, REFERENCE = "policy", "policy_best", "policy_ref"
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
        self.engines: dict[str, LocalEngine] = {}
        self.task_of = {task.id: task for task in self.tasks["train"]}
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
            metrics, traces = self.measured(
                tasks, ROWS[row], phase=name, step=step, split="test", label=row,
                num_samples=self.config.evaluation.num_samples,
            )  # fmt: skip
            return Batch(metrics={f"test/{key}": value for key, value in metrics.items()}, traces=traces)

        return Phase(name, len(rows), collect, headline=("test/acc", "test/average", "test/pass"))

    def summary(self) -> dict[str, dict[str, Any]]:
        """The final table's rows, from the metrics that the test phases logged."""
        found = [row for row in self.run.folder.read_metrics() if row["phase"] in ("before", "after")]
        return {
            name: {key.removeprefix("test/"): value for key, value in row.items() if key.startswith("test/")}
            for name, row in zip(ROWS, found, strict=True)
        }

    # --- what a session asks of every recipe ------------------------------------------------------------------------

    def conversations(self) -> list[tuple[str, list[Message], str, int]]:
        """The longest conversation: whose it is, its messages, the start of the reply, tokens still to be written."""
        question = max((task.prompt for tasks in self.tasks.values() for task in tasks), key=len)
        messages = self.dialect.solve_messages(question)
        return [(POLICY, messages, self.dialect.solve_prefill, self.config.sampling.max_new_tokens)]

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
        is_fresh = isinstance(config.off_policy, FreshData) and updates == 1 and not config.proximal
        if is_fresh and getattr(getattr(config.loss, "bounds", None), "kind", "") == "bapo":
            lines.append(
                "note: one update on fresh data, so every ratio is 1 and the searched bounds never act; lower "
                "learning.minibatch_rows or raise learning.num_epochs for more updates, or set off_policy.kind"
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
            config.learning, config.off_policy, config.overlong, config.signed, config.resample,
        ]  # fmt: skip
        if config.advantage == "gae":
            parts.append(config.value)
        if config.kl.coef:
            parts.append(config.kl)
        return parts

    # --- a step of training -------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Batch:
        """Play, pay, turn pay into credit; then what is trained on now."""
        groups, more = self._unbroken(step) if not isinstance(self.queue, UnfinishedQueue) else self._in_parts(step)
        paid = [[Paid(s, pay(self.config, s)) for s in group] for _, group in groups]
        metrics: dict[str, float | None] = {**reward_metrics(paid, self.config.sampling), **more}
        if self.config.resample:
            chosen = [i for i, group in enumerate(paid) if len({p.reward for p in group}) > 1]
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
        sampled = sum(len(s.context) + len(s.tokens) for _, group in groups for s in group)
        return Batch(rows or [], metrics | earned.metrics, traces, num_tokens=sampled)

    def _unbroken(self, step: int) -> tuple[list[tuple[Task, list[Segment]]], dict[str, float]]:
        """Every reply from start to end: of this step's problems, or with dynamic sampling of more, until enough groups
        have a signal."""
        wanted, errors = self.config.prompts_per_step, 0
        groups: list[tuple[Task, list[Segment]]] = []
        for tasks in self._training_batches(step):
            flow = Solve(self.dialect, self._role(POLICY), (self.config.seed, "train", step))
            samples = range(self.config.group_size)
            episodes = play([flow(task, sample=i) for task in tasks for i in samples], self.services())
            for at, task in enumerate(tasks):
                whole = episodes[at * len(samples) : (at + 1) * len(samples)]
                kept = [e.segments[0] for e in whole if e.outcome != "grader_error"]
                errors += len(whole) - len(kept)
                groups.append((task, kept))
            with_signal = sum(len({pay(self.config, s) for s in group}) > 1 for _, group in groups)
            if with_signal >= wanted:
                break
        metrics = {"grader/errors": float(errors)}
        return groups, metrics | ({"group/sampled": float(len(groups))} if self.config.resample else {})

    def _in_parts(self, step: int) -> tuple[list[tuple[Task, list[Segment]]], dict[str, float]]:
        """Begin this step's problems, let all unfinished replies go on for one budget, the oldest first, and take the
        groups out of which every reply has ended (section 3.2 of the paper's partial rollout)."""
        assert isinstance(self.queue, UnfinishedQueue)
        assert isinstance(self.config.off_policy, PartialData)
        role = self._role(POLICY)
        flow = Solve(self.dialect, role, (self.config.seed, "train", step))
        for task in self._training_tasks(step):
            begun = [flow.begin(task, i) for i in range(self.config.group_size)]
            self.queue.groups[f"{step}/{task.id}"] = begun
        waiting = [
            (key, i) for key, group in self.queue.groups.items() for i, s in enumerate(group) if not _ended(role, s)
        ]
        requests = [role.request(self.queue.groups[key][i], self.config.off_policy.budget) for key, i in waiting]
        completions = self.services()[POLICY](requests)
        for (key, i), completion in zip(waiting, completions, strict=True):
            self.queue.groups[key][i] = flow.extended(self.queue.groups[key][i], completion)
        done = [key for key, group in self.queue.groups.items() if all(_ended(role, s) for s in group)]
        finished = [(self._task_of(key), self.queue.groups.pop(key)) for key in done]
        episodes = play([flow.graded(task, s) for task, group in finished for s in group], self.services())
        size = self.config.group_size
        groups = [
            (task, [e.segments[0] for e in episodes[at * size : (at + 1) * size] if e.outcome != "grader_error"])
            for at, (task, _) in enumerate(finished)
        ]
        left = [s for group in self.queue.groups.values() for s in group if not _ended(role, s)]
        return groups, {
            "grader/errors": float(sum(e.outcome == "grader_error" for e in episodes)),
            "buffer/groups": float(len(self.queue.groups)),
            "buffer/unfinished": float(len(left)),
            "buffer/finished_groups": float(len(finished)),
        }

    def _task_of(self, key: str) -> Task:
        return self.task_of[key.partition("/")[2]]

    def _training_tasks(self, step: int) -> list[Task]:
        """This step's problems, once round the set before any comes again: a function of the step alone, so that a
        resumed run sees the same."""
        train, count = self.tasks["train"], self.config.prompts_per_step
        return [train[((step - 1) * count + i) % len(train)] for i in range(count)]

    def _training_batches(self, step: int) -> Iterator[list[Task]]:
        """This step's problems, and for dynamic sampling more, drawn from the others: no problem twice in a step, as
        its replies would be the same ones."""
        own = self._training_tasks(step)
        yield own
        train, count, used = self.tasks["train"], len(own), {task.id for task in own}
        rng = random.Random(seed_of(self.config.seed, "resample", step))
        wanted = min(self.config.resample * count, len(train) - count)
        drawn = rng.sample(range(len(train)), min(wanted + count, len(train)))
        others = [train[i] for i in drawn if train[i].id not in used][:wanted]
        for at in range(0, len(others), count):
            yield others[at : at + count]

    def _training_traces(
        self,
        step: int,
        groups: Sequence[tuple[Task, Sequence[Segment]]],
        paid: Sequence[Sequence[Paid]],
        earned: Credit,
    ) -> list[dict[str, Any]]:
        """Of the first problems, every reply with its reward and its mean credit a token."""
        traces = []
        for (task, _), group in list(zip(groups, paid, strict=True))[: self.config.traces_per_step]:
            for each in group:
                segment = each.segment
                traces.append(
                    _trace(task, segment, phase="train", step=step, split="train", label="training")
                    | {"reward": each.reward, "credit": earned.of_replies.get(segment.seed)}
                )
        return traces

    # --- playing and measuring ------------------------------------------------------------------------------------

    def services(self) -> dict[str, Service]:
        """The policies' engines, and the grader."""
        settings = self.config.engine
        for name in (POLICY, BEST):
            if name in self.run.policies and name not in self.engines:
                self.engines[name] = LocalEngine(
                    self.run.policies[name], max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens
                )
        return {GRADER: self.grade, **{name: engine.generate for name, engine in self.engines.items()}}

    def _role(self, policy: str, *, greedy: bool = False) -> Role:
        settings = self.config.sampling
        sampling = Sampling(
            temperature=0.0 if greedy else settings.temperature,
            top_p=1.0 if greedy else settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            stop=settings.stop,
        )
        return Role("solver", policy, self.run.policies[policy].tokenizer, sampling)

    def answers(self, tasks: Sequence[Task], policy: str, *, greedy: bool, num_samples: int = 1) -> list[list[Episode]]:
        """Graded replies of one of the run's policies, by task."""
        flow = Solve(self.dialect, self._role(policy, greedy=greedy), (self.config.seed, "evaluation"))
        episodes = play([flow(task, sample=i) for task in tasks for i in range(num_samples)], self.services())
        return [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]

    def measured(
        self,
        tasks: Sequence[Task],
        policy: str,
        *,
        phase: str,
        step: int,
        split: str,
        label: str,
        num_samples: int,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """`solve_metrics` of one of the run's policies, and a trace of each greedy reply."""
        greedy = [group[0] for group in self.answers(tasks, policy, greedy=True)]
        sampled = self.answers(tasks, policy, greedy=False, num_samples=num_samples) if num_samples else []
        traces = [_trace(e.task, e.segments[0], phase=phase, step=step, split=split, label=label) for e in greedy]
        return solve_metrics(greedy, sampled), traces

    def _validate(self, step: int) -> Batch:
        tasks = self.tasks["validation"][: self.config.evaluation.num_validation]
        greedy = [group[0] for group in self.answers(tasks, POLICY, greedy=True)]
        found = solve_metrics(greedy)
        kept = {name: found[name] for name in ("acc", "truncated", "length", "grader_errors")}
        traces = [
            _trace(e.task, e.segments[0], phase="train", step=step, split="validation", label="training")
            for e in greedy[:50]
        ]
        return Batch(metrics=kept, traces=traces)


def told(settings: Config) -> str:
    """A loss or a regime in a line: its kind, and its settings."""
    fields = {name: getattr(settings, name) for name in type(settings).model_fields if name != "kind"}
    parts = [f"{n} {told(v) if isinstance(v, Config) else v}" for n, v in fields.items() if v is not None]
    kind = getattr(settings, "kind", "")
    return f"{kind} ({', '.join(parts)})".strip() if parts else kind


def _ended(role: Role, segment: Segment) -> bool:
    return bool(segment.tokens) and role.has_ended(segment)


def _trace(task: Task, segment: Segment, *, phase: str, step: int, split: str, label: str) -> dict[str, Any]:
    """What the report shows of a reply."""
    return {
        "phase": phase,
        "step": step,
        "split": split,
        "critic": label,
        "task": task.id,
        "question": task.prompt,
        "reference": task.answer,
        "answer": segment.text,
        "answer_score": segment.grade.score if segment.grade else None,
        "stop": {"answer": segment.stop_reason},
        "outcome": "ok" if segment.grade is None or segment.grade.score is not None else "grader_error",
    }
