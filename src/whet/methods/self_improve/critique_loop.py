"""Critique-in-the-loop self-improvement (AutoMathCritique, arXiv:2411.16579): a policy learns from what it finds, and a
critic helps it where it is wrong.

again and again:
explore  y ~ policy(x), N times;  where y is wrong  c ~ critic(x, y), once;  y' ~ policy(x, y, c), up to N times
keep     every right y;  after each critique the first right y' that takes no shortcut.
learn    -log policy(y | x) of both, anew from the model that the run began with, demonstrations beside them

A refinement is learnt as a direct answer: the same tokens under the question's context. The critic reads no reference,
and is not trained. `feedback` puts a rule, or nothing, in its place: that makes the baselines (`presets.py`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.config import SamplingConfig
from whet.config.parts import ChainData, ModelConfig
from whet.evaluation.difficulty import by_level
from whet.evaluation.intervals import interval
from whet.methods.base import RunContext
from whet.methods.evaluator import Metrics, Traces
from whet.methods.names import BEST, POLICY
from whet.methods.report_specs import load_report
from whet.methods.rounds import INITIAL, RoundSamples, Rows, learning_phase, round_of
from whet.methods.self_improve.config import CritiqueLoopConfig
from whet.methods.self_improve.exploration_metrics import exploration
from whet.methods.self_improve.exploring import Explorer, Levels
from whet.methods.self_improve.improving import Question, round_metrics
from whet.methods.solvers import (
    BY_BEST,
    PolicyAlgorithm,
    PolicyEvaluator,
    ask_policy,
    solve_rollout,
    solver_spec,
    trace,
)
from whet.methods.warm_start import demonstration_rows, warm_start
from whet.models.prompts import Conversation, of_rounds
from whet.report.spec import ReportSpec
from whet.rollout.critique import CritiqueRound, RuleCritic
from whet.run_folder.folder import CRITIQUES, ROUNDS
from whet.seeds import seed_of
from whet.tasks.demonstrations import Kind
from whet.tasks.demonstrators import demonstrator, examples_of
from whet.tasks.oracles import rule_critics
from whet.trainer.loop import Batch, Phase
from whet.types import Segment, Task


def round_names(config: CritiqueLoopConfig) -> list[str]:
    return [f"round_{number}" for number in range(1, config.num_rounds + 1)]


STUBBORN = (
    "data.misconceptions has the warm start write wrong results as often as it says, so that a critic has something to "
    "add"
)
"""Why the accuracy falls in the actor's warm start."""


def with_rounds(report: ReportSpec, config: CritiqueLoopConfig) -> ReportSpec:
    data = config.data
    stubborn = isinstance(data, ChainData) and data.__dict__["misconceptions"]  # no reading
    return replace(
        report,
        order=("training", "refined", "before", *round_names(config), "best", "last"),
        lowered={"sft_actor": STUBBORN} if stubborn else {},
    )


class CritiqueLoopEvaluator(PolicyEvaluator[CritiqueLoopConfig]):
    """The policy before the rounds and after each of them."""

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        return self.measured(
            tasks,
            BEST if name == "best" else POLICY,
            num_samples=self.config.evaluation.num_samples,
            label=name,
            **labels,
        )

    def measured(
        self,
        tasks: Sequence[Task],
        policy: str,
        *,
        num_samples: int = 0,
        sampling: SamplingConfig | None = None,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """As of any policy, with an interval of its accuracy, and the accuracy by level where levels were measured."""
        metrics, traces = super().measured(tasks, policy, num_samples=num_samples, sampling=sampling, **labels)
        scores = {
            record["task"]: float(record["answer_score"] == 1.0)
            for record in traces
            if record["answer_score"] is not None
        }
        low, high = interval(list(scores.values())) if scores else (None, None)
        added = {"coverage": None, "acc_low": low, "acc_high": high}  # exploring is measured by the round
        return {**metrics, **added, **by_level(scores, self.algorithm.levels.by_id)}, traces

    def summary(self) -> dict[str, dict[str, Any]]:
        names = round_names(self.config)
        rounds = {(name, 1): name for name in ("before", *names)}
        table = self.logged(rounds | {("after", step): name for step, name in enumerate(self.algorithm.after, 1)})
        explored = {name: f"merge_{number}" for number, name in enumerate(names, 1)}
        return {
            name: {**row, "coverage": self.run.loop.found.get(explored.get(name, ""), {}).get("coverage")}
            for name, row in table.items()
        }


def ask_roles(algorithm: CritiqueLoop) -> list[Conversation]:
    """The policy, and the critic where a model critiques."""
    config, run = algorithm.config, algorithm.run
    written = config.sampling.max_new_tokens + config.refinement.max_new_tokens
    written += config.critique.max_new_tokens if config.has_critic else 0
    conversations = of_rounds((POLICY, "critic"), run.prompts, run.questions, written)
    if config.feedback == "none":
        return ask_policy(algorithm)
    return ask_policy(algorithm) + (conversations if config.has_critic else conversations[:1])


def what_follows(algorithm: CritiqueLoop) -> list[str]:
    """The phases after the known ones; they depend on what exploring finds."""
    config, steps = algorithm.config, len(algorithm.batches(algorithm.pool))
    a_round = f"explore {len(algorithm.pool):,} questions in {steps} steps, keep, learn what was kept"
    tests = ", then test" if config.test_rounds else ""
    levels = ["answer all questions for their levels"] if config.difficulty.num_samples else []
    times = "1 round" if config.num_rounds == 1 else f"{config.num_rounds} rounds, each"
    parts = [*levels, "test", f"{times}: {a_round}{tests}", "test"]
    return [f"after the warm start: {'; '.join(parts)}"]


class CritiqueLoop(PolicyAlgorithm[CritiqueLoopConfig]):
    """Self-improvement with a critic in the loop: explore, critique, refine, keep, learn; in rounds (2411.16579)"""

    spec = solver_spec(
        CritiqueLoopConfig,
        roles=(POLICY, "critic"),
        is_lazy=True,
        report=load_report("critique_loop"),
        report_by=with_rounds,
        evaluator=CritiqueLoopEvaluator,
        conversations=ask_roles,
        plan=what_follows,
    )

    def __init__(self, config: CritiqueLoopConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.pool: Sequence[Task] = self.run.tasks["train"][: config.num_explored]
        self.rule = self._rule()
        base: list[Rows] = []
        self._warm_starts: list[Phase] = []
        if run.trains:
            base = self._demonstrate()
        self.solutions = RoundSamples(self.run.loop.store, base, config.merge)
        self.levels = Levels(self.run.loop.store)
        self.explored = self.run.loop.store.tasks("explored")
        """The questions of the current round, a batch each; `info` has a question's record."""
        self.helpful = self.run.loop.store.tasks("critiques")
        """Critiques that helped, of all rounds."""

    def _rule(self) -> RuleCritic | None:
        """The rule that critiques, if there is one.

        Raises: ConfigError where the rule does not know the data.
        """
        closing = self.run.prompts.closing(right=False)
        if self.config.feedback == "binary":
            return lambda task, answer: closing
        if self.config.feedback == "hint":
            return lambda task, answer: f"The answer is {task.answer}\n{closing}"
        return (
            rule_critics(self.config.data.kind, self.run.prompts)["oracle"]
            if self.config.feedback == "oracle"
            else None
        )

    def _demonstrate(self) -> list[Rows]:
        """Makes the warm starts, whose texts are checked before the run begins.

        Returns: the demonstrations that rounds learn beside what they keep.
        Raises: DataError.
        """
        config, settings = self.config, self.config.warm_start
        trains_critic = config.has_critic and "critic" in self.run.loop.policies and settings.critic_steps > 0
        wanted = config.num_originals if config.merge != "none" else 0
        if not (settings.actor_steps or trains_critic or wanted):
            return []
        shown = demonstrator(examples_of(settings), config.data, self.run.tasks, self.run.prompts)
        self.run.warnings.extend(filter(None, [shown.warning]))
        actor = warm_start(settings, settings.actor_steps, self.run.loop, shown, "actor", policy=POLICY)
        data = config.data
        if isinstance(data, ChainData) and data.__dict__["misconceptions"] and config.start == "base":  # no reading
            self.run.warnings.append(
                "data.misconceptions is in what the policy is warm-started on, and start=base begins each round at the "
                "model from before; start=warm_start keeps it"
            )
        phases = [
            replace(  # what the rounds begin with may be the best that there is
                actor,
                validate=partial(self.evaluator.validate, phase=actor.name),
                validate_every=actor.num_steps,
                select=BY_BEST,
            )
        ]
        if trains_critic:
            phases.append(warm_start(settings, settings.critic_steps, self.run.loop, shown, "critic"))
            if self._critic_path != "tiny":
                self.run.warnings.append(
                    f"the critic of {self._critic_path} learns {settings.critic_steps} batches of demonstrated "
                    "critiques first; warm_start.critic_steps=0 takes it as it is"
                )
        self._warm_starts = phases
        rng = random.Random(seed_of(config.seed, "originals"))
        kinds: list[Kind] = ["refine" if rng.random() < settings.refine_share else "solve" for _ in range(wanted)]
        draw = random.Random(seed_of(config.seed, "gold originals"))  # its own: a share of 0 shows what it always did
        shows = [shown.show_gold if draw.random() < config.gold_share else shown.show for _ in kinds]
        originals = (show(kind, rng) for show, kind in zip(shows, kinds, strict=True))
        return [[row] for row in demonstration_rows(originals, self.run.loop.policies[POLICY], kind="original")]

    @property
    def _critic_path(self) -> str:
        return str(self.config.critic.path) if isinstance(self.config.critic, ModelConfig) else ""

    # --- phases -------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        config = self.config
        for phase in self._warm_starts:
            yield replace(phase, begin=partial(self._remember, "base"))
        if config.difficulty.num_samples:
            yield Phase("levels", len(self.batches(self._levelled)), self._level, begin=self._begin_rounds)
        yield self.evaluator.test(["before"], phase="before", begin=self._begin_rounds)
        for number, name in enumerate(round_names(self.config), 1):
            yield from self._round(number)
            if config.test_rounds:
                yield self.evaluator.test([name], phase=name)
        yield self.evaluator.test(self.after, phase="after")

    @property
    def after(self) -> list[str]:
        """`best` where any round has learnt something."""
        learnt = any(self._num_merged(number) for number in range(1, self.config.num_rounds + 1))
        return ["best", "last"] if learnt else ["last"]

    def _num_merged(self, number: int) -> int:
        return int(self.run.loop.found.get(f"merge_{number}", {}).get("merged", 0))

    def _round(self, number: int) -> Iterator[Phase]:
        config = self.config
        yield Phase(
            f"explore_{number}",
            len(self.batches(self.pool)),
            partial(self._explore, number),
            begin=partial(self._begin, number),
            headline=("reward/correct", "explore/coverage", "explore/kept"),
        )
        yield Phase(
            f"merge_{number}",
            1,
            partial(self._merge, number),
            end=partial(self._end, number),
            headline=("round/coverage", "round/yield", "round/merged"),
        )
        if count := self._num_merged(number):
            yield learning_phase(
                f"learn_{number}", POLICY, count, partial(self.solutions.merged, number), config.learning,
                seed=config.seed, num_epochs=config.num_epochs, rows_per_step=config.rows_per_step, begin=self._restart,
                validate=self.evaluator.validate, validate_every=config.validate_every, select=BY_BEST,
            )  # fmt: skip

    def batches(self, tasks: Sequence[Task]) -> list[Sequence[Task]]:
        count = self.config.prompts_per_step
        return [tasks[at : at + count] for at in range(0, len(tasks), count)]

    def _remember(self, start: str) -> None:
        if self.config.start == start:
            self.run.loop.freeze(POLICY, INITIAL)

    def _begin_rounds(self) -> None:
        """After the warm start, or without any."""
        if self.config.start != "last":
            self.run.loop.freeze(POLICY, INITIAL)

    def _restart(self) -> None:
        if self.config.start != "last":
            self.run.loop.restart(POLICY, INITIAL)

    @property
    def _levelled(self) -> list[Task]:
        """Whose level is measured."""
        return [*self.pool, *self.evaluator.measured_tasks("test")]

    def _level(self, step: int) -> Batch:
        tasks, count = self.batches(self._levelled)[step - 1], self.config.difficulty.num_samples
        self.levels.put(self.run.runtime.by_task(solve_rollout(self, POLICY, "difficulty"), tasks, num_samples=count))
        return Batch(metrics=self.levels.shares(tasks))

    # --- exploring ----------------------------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        self.solutions.begin(number)
        self.explored.clear()

    def _explore(self, number: int, step: int) -> Batch:
        """Stores what the current policy finds at a step's questions."""
        config, tasks, levels = self.config, self.batches(self.pool)[step - 1], self.levels.by_id
        questions = self._explore_questions(number, tasks)
        for question in questions.values():
            self._keep(number, question, levels.get(question.task.id))
        every = [question.explored(levels.get(name)) for name, question in questions.items()]
        shown = list(questions.values())[: config.traces_per_step]
        labels: dict[str, Any] = {"phase": f"explore_{number}", "step": step, "split": "train"}
        traces = [
            trace(question.task, text, label=label, **labels)
            for question in shown
            for text, label in _to_show(question)
        ]
        measured = {f"explore/{name}": value for name, value in exploration(every).items()}
        right = measured.pop("explore/yield_answers")
        counts = {
            "explore/kept": float(sum(question.num_kept for question in every)),
            "explore/failed": float(sum(question.num_failed for question in questions.values())),
            "explore/shortcuts": float(sum(question.num_shortcuts for question in questions.values())),
        }
        return Batch(metrics={"reward/correct": right, **measured, **counts}, traces=traces)

    def _keep(self, number: int, question: Question, level: int | None) -> None:
        config, task = self.config, question.task
        rows = question.examples(cap=config.per_question, distinct=config.distinct, conditional=config.conditional)
        for place, row in enumerate(rows):
            self.solutions.put(number, f"{task.id}/{place}", [replace(row, extra={"level": float(level or 0)})])
        self.explored.put(task.id, [Task(id=task.id, prompt="", info=question.record(level))])
        helped = question.helpful(number)
        self.helpful.put(f"{number}/{task.id}", [Task(id=row["id"], prompt="", info=row) for row in helped])

    def _explore_questions(self, number: int, tasks: Sequence[Task]) -> dict[str, Question]:
        """Explores some of the round's questions."""
        config, share = self.config, len(tasks) / len(self.pool)
        role = partial(self.run.runtime.policy_role, "actor", POLICY)
        critic = self.rule or (
            self.run.runtime.role("critic", "critic", config.critique) if config.has_critic else _nobody
        )
        reviser = role(config.refinement) if config.feedback != "none" else role(config.sampling)
        rounds = CritiqueRound(
            self.run.prompts, role(config.sampling), critic, reviser, (config.seed, "explore", number), keep_right=True
        )
        explorer = partial(Explorer, self.run.runtime, num_samples=config.num_samples)
        if config.feedback == "none":
            spent = config.token_budget[:number][-1:]
            tokens = math.ceil(spent[0] * share) if spent else None
            return explorer(rounds, keep=0, barrier=False).answered(tasks, num_tokens=tokens)
        exploring = explorer(rounds, keep=config.keep, barrier=config.barrier)
        if config.allocation.kind == "explicit":
            return exploring.allotted(tasks, math.ceil(config.allocation.budget * share), config.allocation.cap)
        count = config.num_samples if config.num_refinements is None else config.num_refinements
        return replace(exploring, rounds=replace(rounds, num_refinements=count)).critiqued(tasks)

    # --- numbers of a round -------------------------------------------------------------------------------------------

    def _merge(self, number: int, step: int) -> Batch:
        return Batch(metrics={f"round/{name}": value for name, value in self._round_metrics(number).items()})

    def _round_metrics(self, number: int) -> dict[str, float | None]:
        """The round's numbers, of all its questions."""
        rows = [row for key, rows in self.solutions.examples.batches.items() if round_of(key) == number for row in rows]
        levels = self.levels.by_id
        source = [levels[task.id] for task in self.pool if task.id in levels]
        metrics = round_metrics([task.info for task in self.explored], rows, source)
        return {**metrics, "merged": float(len(self.solutions.merged(number)))}

    def _end(self, number: int) -> dict[str, float | None]:
        """Writes what became of the rounds so far, and the critiques that helped."""
        metrics = self._round_metrics(number)
        before = [self.run.loop.found[f"merge_{earlier}"] for earlier in range(1, number)]
        rounds = [{"round": place, **row} for place, row in enumerate([*before, metrics], 1)]
        self.run.loop.folder.write(ROUNDS, json.dumps(rounds, indent=1) + "\n")
        lines = [json.dumps(task.info, ensure_ascii=False) + "\n" for task in self.helpful]
        self.run.loop.folder.write(CRITIQUES, "".join(lines))
        if not metrics["merged"]:
            text = f"round {number} kept nothing and has nothing to learn from, so the policy stays as it is"
            self.run.loop.folder.event("warning", "nothing_kept", text, phase=f"merge_{number}")
            self.run.loop.progress.tell("warning", text)
        return metrics


def _nobody(task: Task, answer: Segment) -> str:
    raise AssertionError("there is no critic")


def _to_show(question: Question) -> Iterator[tuple[Segment, str]]:
    """The first answer, and the first refinement that was kept."""
    for attempt in list(question.attempts.values())[:1]:
        yield attempt.answer, "training"
    for attempt in question.attempts.values():
        if attempt.kept:
            yield attempt.kept[0], "refined"
            return
