"""`whet eval --strategy`: accuracy over generated tokens, for strategies that spend a budget on each question."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from whet.config.base import ConfigError, plain
from whet.config.parts import FileData
from whet.config.runs import RunConfig
from whet.errors import RunError
from whet.evaluation.budgets import KINDS, Outcome, draws, point
from whet.evaluation.difficulty import level_of
from whet.evaluation.inference_scaling import BudgetedSamples, Strategy, is_right
from whet.methods.evaluator import ScalingRoles
from whet.rollout.critique import RuleCritic
from whet.rollout.roles import Role
from whet.rollout.samples import Ledger, Sample, Samples, cached_round
from whet.rollout.services import Fault
from whet.run.evaluate import measuring, tag
from whet.run.inference_scaling_records import sample_cache, write_record
from whet.run.session import Session
from whet.seeds import seed_of
from whet.trainer.loop import Progress
from whet.types import Failure, Task

AT_ONCE = 256
"""Questions that are rolled out together."""
BASELINE = "majority"
"""The strategy that gains are measured against, if it is measured too. It spends the same tokens without a critic."""
RULE = (
    "Something is begun for a question only while fewer tokens than the budget were generated for it; what has begun "
    "is ended and counted."
)
MAX_BUDGET = 10_000_000
"""Tokens per question."""
MULTIPLES = (1, 2, 4, 8, 16)
"""The default budgets, as multiples of the tokens that an answer may have."""


@dataclass(frozen=True)
class ScaleSettings:
    """The options of `whet eval --strategy`."""

    strategies: Mapping[str, Strategy]
    """By label, as the user wrote them: `critic_weighted:by=probability`."""
    budgets: tuple[int, ...] = ()
    """Tokens per question, from 1. Empty: `MULTIPLES` of what an answer may have."""
    names: tuple[str, ...] = ()
    """Eval targets: critics, or policies that answer alone. Empty: the run's best."""
    split: str = "test"
    temperature: float | None = None
    """None: the method's own."""
    level_samples: int = 8
    """Extra answers to each question, by which its difficulty is estimated. 0: no levels of difficulty."""
    by_text: bool = False
    """True: votes count equal texts, as the published code does. False: answers that the grader finds equal."""
    changed: tuple[str, ...] = ()
    """Settings other than the run's, `key=value`."""


def budgets_of(text: str) -> tuple[int, ...]:
    """The budgets in a text such as `100,200,400`, in tokens. An empty text has none.

    Raises: ConfigError where a part is no number, or above `MAX_BUDGET`.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()] or [text][: len(text)]
    for part in parts:
        if not part.isascii() or not part.isdigit():
            raise ConfigError(f"--budget: {part!r} is no number of tokens: write some, such as 100,200,400")
        if len(part) > len(str(MAX_BUDGET)) or int(part) > MAX_BUDGET:
            raise ConfigError(
                f"--budget: {part[:40]} tokens a question are more than the {MAX_BUDGET:,} that can be asked for"
            )
    return tuple(map(int, parts))


def scale(
    config: RunConfig, run: Path | None, settings: ScaleSettings, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Measures strategies at each budget, by row. Those of a run are also written to its `eval/`.

    A run caches every sample as it comes, in `eval/samples-*.jsonl`. A second call, for other strategies or after a
    kill, samples only what is missing.

    Args:
        run: the folder of a run, whose last checkpoint is measured. None: the config's models are.
    Returns: the records: `strategies` (label to its `points`, see `evaluation.budgets.point`), `rule`, `levels`, ...
    Raises: ConfigError, DataError, RunError.
    """
    if settings.budgets and min(settings.budgets) < 1:
        raise ConfigError(f"a budget of {min(settings.budgets)} tokens buys nothing: give 1 at least")
    with measuring(config, run, settings.split, settings.changed, progress) as (session, description):
        evaluator, spec, of_run = session.algorithm.evaluator, session.algorithm.spec, run is not None
        names = [*map(spec.target_of, settings.names)] or [evaluator.best_target(of_run=of_run)]
        judged = any(strategy.needs_critic for strategy in settings.strategies.values())
        other_models = [setting for setting in settings.changed if setting.partition(".")[0] in spec.roles]
        records = {}
        with sample_cache(run, other_models) as cache:
            for name in names:
                roles = evaluator.scaling_roles(name, settings.temperature, of_run=of_run, judged=judged)
                record, traces = _Scaling(session, roles, settings, cache, progress).measure()
                record["data"] = description
                if run is not None:
                    warn = partial(progress.tell, "warning")
                    file_name = _file_name(record, settings)
                    record = write_record(run, file_name, record, traces, settings.changed, warn)
                records[roles.row] = record
        return records


@dataclass
class _Scaling:
    """Measures strategies with one critic, or with one policy that answers alone."""

    session: Session
    roles: ScalingRoles
    settings: ScaleSettings
    cache: Ledger
    progress: Progress
    outcomes: dict[tuple[str, int], list[Outcome]] = field(default_factory=dict)
    """By strategy and budget, one for each question that was not lost."""
    levels: list[int] = field(default_factory=list)
    """The difficulty of each question, where it is estimated."""
    traces: list[dict[str, Any]] = field(default_factory=list)
    lost: list[Failure] = field(default_factory=list)
    has_votes: bool = False
    """Whether any answer has a key to vote by."""
    has_right: bool = False

    @property
    def budgets(self) -> tuple[int, ...]:
        answer_tokens = self.roles.sampled.actor.sampling.max_new_tokens
        return tuple(sorted(set(self.settings.budgets))) or tuple(answer_tokens * times for times in MULTIPLES)

    def measure(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The record, and a trace of each question and strategy at the largest budget.

        Raises: RunError where every question is lost.
        """
        tasks = self.session.algorithm.evaluator.measured_tasks(self.settings.split)
        self.progress.begin("strategies", 0, len(tasks))
        for start in range(0, len(tasks), AT_ONCE):
            chunk = tasks[start : start + AT_ONCE]
            answers = self.session.algorithm.run.runtime.roll_out([partial(self._question, task) for task in chunk])
            for answer in answers:
                if isinstance(answer, Failure):
                    self.lost.append(answer)
                else:
                    self._add(*answer)
            self.progress.step(start + len(chunk), {})
        self.progress.end()
        if not self.outcomes:
            raise RunError(f"every question was lost; the first to this: {self.lost[0].reason}")
        if self.lost:
            text = f"{len(self.lost)} of {len(tasks)} questions are lost to failures, the first to this:"
            self.progress.tell("warning", f"{text} {self.lost[0].reason}")
        if self.has_right and not self.has_votes:
            self.progress.tell(
                "warning",
                "no answer has anything to vote by, so each vote takes the first answer: let the grader return "
                "Grade(score=..., extracted=...) for right and wrong replies (docs/plugins.md)",
            )
        return self._record(), self.traces

    # --- one question -------------------------------------------------------------------------------------------------

    async def _question(self, task: Task) -> Any:
        """Outcomes, traces and level of a question: every strategy at every budget, on the same samples.

        Returns: the failure instead, where the question is lost to one.
        """
        try:
            samples, outcomes, traces = self._samples(task), {}, []
            for label, strategy in self.settings.strategies.items():
                for budget in self.budgets:
                    budgeted = BudgetedSamples(samples, budget)
                    chosen = _checked(label, await _choice(label, strategy, budgeted), budgeted)
                    outcomes[label, budget] = _outcome(chosen, budgeted)
                    self.has_votes |= any(sample.extracted is not None for sample in budgeted.used.values())
                    self.has_right |= any(map(is_right, budgeted.used.values()))
                traces.append(_trace(task, self.roles.row, label, chosen, budgeted))
            return outcomes, traces, await self._level(task)
        except Fault as fault:
            return fault.failure

    def _samples(self, task: Task, *key: object) -> Samples:
        """The samples of a question, drawn as a strategy asks for them.

        Args:
            key: separates their seeds from those of other samples of the question.
        """
        algorithm = self.session.algorithm
        return Samples(
            task,
            cached_round(self.roles.sampled, self.cache, *key),
            cached_round(self.roles.greedy, self.cache, *key),
            algorithm.run.runtime.retries(),
            algorithm.spec.reading,
            self._votes_by_grader,
        )

    async def _level(self, task: Task) -> int | None:
        if not (count := self.settings.level_samples):
            return None
        samples = self._samples(task, "levels")
        return level_of(sum([is_right(await samples.answer(i)) for i in range(count)]), count)

    @property
    def _votes_by_grader(self) -> bool:
        """Whether votes count answers that the grader finds equal, and not equal texts.

        The grader has to compare an answer with any text in the reference's place. A user's grader may know the
        reference from elsewhere. Where answers have one form, texts suffice.
        """
        data = self.session.algorithm.config.data
        compares = isinstance(data, FileData) and (data.grader == "math_verify" or data.grader.startswith("published:"))
        return compares and not self.settings.by_text

    # --- all questions ------------------------------------------------------------------------------------------------

    def _add(
        self, outcomes: Mapping[tuple[str, int], Outcome], traces: Sequence[dict[str, Any]], level: int | None
    ) -> None:
        for key, outcome in outcomes.items():
            self.outcomes.setdefault(key, []).append(outcome)
        self.traces += [{**trace, "level": level} for trace in traces]
        self.levels += [level] if level is not None else []

    def _record(self) -> dict[str, Any]:
        count = len(next(iter(self.outcomes.values())))
        drawn = draws(count, seed_of(self.session.loop.seed, "bootstrap"))
        strategies = {}
        for label, strategy in self.settings.strategies.items():
            points = []
            for budget in self.budgets:
                baseline = self.outcomes.get((BASELINE, budget), ()) if label != BASELINE else ()
                outcomes = self.outcomes[label, budget]
                points.append(point(budget, outcomes, drawn, levels=self.levels, against=baseline))
            strategies[label] = {"options": plain(strategy), "ceiling": strategy.knows_reference, "points": points}
        roles = self.roles.sampled
        by_role = {"answer": roles.actor, "critique": roles.critic, "refinement": roles.reviser}
        return {
            "critic": self.roles.row,
            "split": self.settings.split,
            "rule": RULE,
            "n": count,
            "lost": len(self.lost),
            "sampling": {kind: _sampling(role) for kind, role in by_role.items()},
            "votes": "where their texts are" if not self._votes_by_grader else "where the grader finds them so",
            "level_samples": self.settings.level_samples,
            "strategies": strategies,
        }


def _file_name(record: Mapping[str, Any], settings: ScaleSettings) -> str:
    """The name of a record's files, without their endings: one for each way to measure."""
    temperature = record["sampling"]["answer"]["temperature"]
    name = f"strategies-{record['critic']}-{settings.split}-t{temperature:g}"
    return f"{name}{'-text' if settings.by_text else ''}{tag(settings.changed)}"


def _sampling(role: Role | RuleCritic) -> Any:
    return "rule" if callable(role) else asdict(role.sampling)


def _choice(label: str, strategy: Strategy, budgeted: BudgetedSamples) -> Any:
    """Raises: ConfigError where a strategy is no coroutine."""
    choice: Any = strategy.choose(budgeted)
    if not inspect.isawaitable(choice):
        raise ConfigError(f"the strategy {label}: choose has to be a coroutine: write `async def choose(self, ask)`")
    return choice


def _checked(label: str, chosen: object, budgeted: BudgetedSamples) -> Sample:
    """Raises: ConfigError where a strategy gives no answer, or one that its budget was not charged for."""
    if isinstance(chosen, Sample) and chosen.kind != "critique":
        if chosen.path not in budgeted.used:
            raise ConfigError(
                f"the strategy {label} gives an answer that it did not ask its `ask` for, and so did not count: use "
                "ask.answer, ask.critique and ask.refinement"
            )
        return chosen
    text = "a critique" if isinstance(chosen, Sample) else f"{str(chosen)[:60]!r}"
    raise ConfigError(f"the strategy {label} gives {text}: choose has to return an answer or a refinement")


def _outcome(chosen: Sample, budgeted: BudgetedSamples) -> Outcome:
    samples = list(budgeted.used.values())
    return Outcome(
        right=is_right(chosen),
        counts={kind: sum(sample.kind == kind for sample in samples) for kind in KINDS},
        tokens={kind: budgeted.tokens(kind) for kind in KINDS},
        calls=budgeted.num_calls,
        unread=sum(sample.kind == "critique" and sample.verdict is None for sample in samples),
    )


def _trace(task: Task, row: str, label: str, chosen: Sample, budgeted: BudgetedSamples) -> dict[str, Any]:
    return {
        "task": task.id,
        "question": task.prompt,
        "reference": task.answer,
        "critic": row,
        "strategy": label,
        "budget": budgeted.budget,
        "spent": budgeted.spent,
        "path": list(chosen.path),
        "given": chosen.segment.text,
        "right": is_right(chosen),
    }
