"""`whet eval --strategy`: accuracy over generated tokens, of strategies that spend a budget on each question."""

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
from whet.rollout.samples import Ledger, Sample, Samples, kept_round
from whet.rollout.services import Fault
from whet.run.evaluate import measuring, tag
from whet.run.inference_scaling_records import keep_beside_earlier, ledger
from whet.run.session import Session
from whet.seeds import seed_of
from whet.trainer.loop import Progress
from whet.types import Failure, Task

AT_ONCE = 256
"""Questions that are played together."""
BASELINE = "majority"
"""What gains are measured against, where it is among the strategies: it spends the same tokens without a critic."""
RULE = (
    "Something is begun for a question only while fewer tokens than the budget were generated for it; what has begun "
    "is ended and counted."
)
MOST = 10_000_000
"""Tokens of a budget."""
MULTIPLES = (1, 2, 4, 8, 16)
"""Of the tokens that an answer may have: the budgets where none are given."""


@dataclass(frozen=True)
class ScaleSettings:
    """What `whet eval --strategy` was asked for."""

    strategies: Mapping[str, Strategy]
    """By what they were asked for as, such as `critic_weighted:by=probability`."""
    budgets: tuple[int, ...] = ()
    """Tokens a question. Empty: 1, 2, 4, 8 and 16 times what an answer may have."""
    names: tuple[str, ...] = ()
    """Critics, or policies that answer alone. Empty: the run's best."""
    split: str = "test"
    temperature: float | None = None
    """None: the method's usual one."""
    level_samples: int = 8
    """Answers to each question that say how hard it is, and nothing else. 0: levels are not told apart."""
    by_text: bool = False
    """True: votes count equal texts, as the published code does, and not what the grader finds equal."""
    changed: tuple[str, ...] = ()
    """Settings other than the run's, `key=value`."""


def budgets_of(text: str) -> tuple[int, ...]:
    """Of `100,200,400`; none of an empty text.

    Raises: ConfigError.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()] or [text][: len(text)]
    for part in parts:
        if not part.isascii() or not part.isdigit():
            raise ConfigError(f"--budget: {part!r} is no number of tokens: write some, such as 100,200,400")
        if len(part) > len(str(MOST)) or int(part) > MOST:
            raise ConfigError(
                f"--budget: {part[:40]} tokens a question are more than the {MOST:,} that can be asked for"
            )
    return tuple(map(int, parts))


def scale(config: RunConfig, run: Path | None, asked: ScaleSettings, progress: Progress) -> dict[str, dict[str, Any]]:
    """What strategies come to at each budget, by row; with a run, also kept in its `eval/`.

    With a run every sample is kept as it comes, in `eval/samples-*.jsonl`: who asks again, for other strategies or
    after a kill, samples only what is not there.

    Returns: the records: `strategies` (label to its `points`, see `evaluation.budgets.point`), `rule`, `levels`, ...
    Raises: ConfigError, DataError, RunError.
    """
    if asked.budgets and min(asked.budgets) < 1:
        raise ConfigError(f"a budget of {min(asked.budgets)} tokens buys nothing: give 1 at least")
    with measuring(config, run, asked.split, asked.changed, progress) as (session, said):
        evaluator, spec, of_run = session.algorithm.evaluator, session.algorithm.spec, run is not None
        names = [*map(spec.target_of, asked.names)] or [evaluator.best_target(of_run=of_run)]
        judged = any(each.needs_critic for each in asked.strategies.values())
        found = {}
        with ledger(run, [each for each in asked.changed if each.partition(".")[0] in spec.roles]) as kept:
            for name in names:
                roles = evaluator.scaling_roles(name, asked.temperature, of_run=of_run, judged=judged)
                record, traces = _Scaling(session, roles, asked, kept, progress).measure()
                record["data"] = said
                if run is not None:
                    warn = partial(progress.tell, "warning")
                    record = keep_beside_earlier(run, _place(record, asked), record, traces, asked.changed, warn)
                found[roles.row] = record
        return found


@dataclass
class _Scaling:
    """Of one critic, or of one policy that answers alone."""

    session: Session
    roles: ScalingRoles
    asked: ScaleSettings
    ledger: Ledger
    progress: Progress
    outcomes: dict[tuple[str, int], list[Outcome]] = field(default_factory=dict)
    """By strategy and budget, of each question that was not lost."""
    levels: list[int] = field(default_factory=list)
    traces: list[dict[str, Any]] = field(default_factory=list)
    lost: list[Failure] = field(default_factory=list)

    @property
    def budgets(self) -> tuple[int, ...]:
        most = self.roles.sampled.actor.sampling.max_new_tokens
        return tuple(sorted(set(self.asked.budgets))) or tuple(most * times for times in MULTIPLES)

    def measure(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The record, and a trace of each question and strategy at the largest budget."""
        tasks = self.session.algorithm.evaluator.measured_tasks(self.asked.split)
        self.progress.begin("strategies", 0, len(tasks))
        for at in range(0, len(tasks), AT_ONCE):
            some = tasks[at : at + AT_ONCE]
            episodes = self.session.algorithm.run.runtime.roll_out([self._question(task) for task in some])
            for one in episodes:
                if isinstance(one, Failure):
                    self.lost.append(one)
                else:
                    self._take(*one)
            self.progress.step(at + len(some), {})
        self.progress.end()
        if not self.outcomes:
            raise RunError(f"every question was lost; the first to this: {self.lost[0].reason}")
        if self.lost:
            text = f"{len(self.lost)} of {len(tasks)} questions are lost to failures, the first to this:"
            self.progress.tell("warning", f"{text} {self.lost[0].reason}")
        return self._record(), self.traces

    # --- one question -------------------------------------------------------------------------------------------------

    async def _question(self, task: Task) -> Any:
        """Every strategy at every budget, on the same samples; or the failure that the question is lost to."""
        try:
            samples, found, traces = self._samples(task), {}, []
            for label, strategy in self.asked.strategies.items():
                for budget in self.budgets:
                    budgeted = BudgetedSamples(samples, budget)
                    chosen = _checked(label, await _choice(label, strategy, budgeted), budgeted)
                    found[label, budget] = _outcome(chosen, budgeted)
                traces.append(_trace(task, self.roles.row, label, chosen, budgeted))
            return found, traces, await self._level(task)
        except Fault as fault:
            return fault.failure

    def _samples(self, task: Task, *key: object) -> Samples:
        """Of a question.

        Args:
            key: what sets its seeds apart from those of other samples.
        """
        algorithm = self.session.algorithm
        return Samples(
            task,
            kept_round(self.roles.sampled, self.ledger, *key),
            kept_round(self.roles.greedy, self.ledger, *key),
            algorithm.run.runtime.retries(),
            algorithm.spec.reading,
            self._compares,
        )

    async def _level(self, task: Task) -> int | None:
        if not (count := self.asked.level_samples):
            return None
        samples = self._samples(task, "levels")
        return level_of(sum([is_right(await samples.answer(i)) for i in range(count)]), count)

    @property
    def _compares(self) -> bool:
        """Whether votes ask the grader: where it compares an answer with whatever stands in the reference's place.
        Others, such as a user's, may know the reference from elsewhere; and where every answer has one form, equal
        texts are all there is."""
        data = self.session.algorithm.config.data
        holds = isinstance(data, FileData) and (data.grader == "math_verify" or data.grader.startswith("published:"))
        return holds and not self.asked.by_text

    # --- all of them --------------------------------------------------------------------------------------------------

    def _take(
        self, found: Mapping[tuple[str, int], Outcome], traces: Sequence[dict[str, Any]], level: int | None
    ) -> None:
        for which, outcome in found.items():
            self.outcomes.setdefault(which, []).append(outcome)
        self.traces += [{**trace, "level": level} for trace in traces]
        self.levels += [level] if level is not None else []

    def _record(self) -> dict[str, Any]:
        count = len(next(iter(self.outcomes.values())))
        drawn = draws(count, seed_of(self.session.loop.seed, "bootstrap"))
        strategies = {}
        for label, strategy in self.asked.strategies.items():
            points = [
                point(
                    budget, self.outcomes[label, budget], drawn, levels=self.levels,
                    against=self.outcomes.get((BASELINE, budget), ()) if label != BASELINE else (),
                )
                for budget in self.budgets
            ]  # fmt: skip
            strategies[label] = {"options": plain(strategy), "ceiling": strategy.knows_reference, "points": points}
        roles = self.roles.sampled
        by_role = {"answer": roles.actor, "critique": roles.critic, "refinement": roles.reviser}
        return {
            "critic": self.roles.row,
            "split": self.asked.split,
            "rule": RULE,
            "n": count,
            "lost": len(self.lost),
            "sampling": {kind: _sampling(role) for kind, role in by_role.items()},
            "votes": "where their texts are" if not self._compares else "where the grader finds them so",
            "level_samples": self.asked.level_samples,
            "strategies": strategies,
        }


def _place(record: Mapping[str, Any], asked: ScaleSettings) -> str:
    """Of its files: one for each way of measuring."""
    temperature = record["sampling"]["answer"]["temperature"]
    how = f"{record['critic']}-{asked.split}-t{temperature:g}"
    return f"strategies-{how}{'-text' if asked.by_text else ''}{tag(asked.changed)}"


def _sampling(role: Role | RuleCritic) -> Any:
    return "rule" if callable(role) else asdict(role.sampling)


def _choice(label: str, strategy: Strategy, budgeted: BudgetedSamples) -> Any:
    """Raises: ConfigError where a strategy is no coroutine."""
    found: Any = strategy.choose(budgeted)
    if not inspect.isawaitable(found):
        raise ConfigError(f"the strategy {label}: choose has to be a coroutine: write `async def choose(self, ask)`")
    return found


def _checked(label: str, chosen: object, budgeted: BudgetedSamples) -> Sample:
    """Raises: ConfigError where a strategy gives no answer, or one that it has not paid for."""
    if isinstance(chosen, Sample) and chosen.kind != "critique":
        if chosen.path not in budgeted.scored:
            raise ConfigError(f"the strategy {label} gives an answer that it did not ask its `ask` for, and so did not "
                              "pay for: use ask.answer, ask.critique and ask.refinement")  # fmt: skip
        return chosen
    what = "a critique" if isinstance(chosen, Sample) else f"{str(chosen)[:60]!r}"
    raise ConfigError(f"the strategy {label} gives {what}: choose has to return an answer or a refinement")


def _outcome(chosen: Sample, budgeted: BudgetedSamples) -> Outcome:
    scored = list(budgeted.scored.values())
    return Outcome(
        right=is_right(chosen),
        counts={kind: sum(each.kind == kind for each in scored) for kind in KINDS},
        tokens={kind: budgeted.tokens(kind) for kind in KINDS},
        calls=budgeted.num_calls,
        unread=sum(each.kind == "critique" and each.verdict is None for each in scored),
    )


def _trace(task: Task, row: str, label: str, chosen: Sample, budgeted: BudgetedSamples) -> dict[str, Any]:
    return {
        "task": task.id, "question": task.prompt, "reference": task.answer, "critic": row, "strategy": label,
        "budget": budgeted.budget, "spent": budgeted.spent, "path": list(chosen.path), "given": chosen.segment.text,
        "right": is_right(chosen),
    }  # fmt: skip
