"""Measures one small step of a run, and says what the whole run may take and whether a step teaches anything.

The step is real: it rolls out, grades, and updates the weights in memory. Nothing of it is saved.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from whet.checks.findings import Finding
from whet.checks.plans import prompts_per_step
from whet.config.base import Config
from whet.methods.base import Algorithm
from whet.run.session import Session
from whet.seeds import seed_of
from whet.trainer.loop import Loop
from whet.trainer.phase import Batch, Phase

C = TypeVar("C", bound=Config)
SMALL = 4
"""Problems of the small step."""
FULL_WITHIN_S = 2.0
"""A whole step that should take less is measured too."""
MOST_S = 5.0
"""Seconds of all measured steps, past which further phases are not measured."""
CUT, FLAT_REPLIES = 0.9, 16
"""Share of replies at the token limit that means a fault, and the replies that say so."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured step of a phase."""

    phase: Phase
    seconds: float
    """Of a whole step, by measure or scaled from a small one."""
    rollout_s: float
    """Of it, for rolling out and grading."""
    num_replies: float
    """Episodes of a whole step. 0: it samples nothing."""
    is_scaled: bool
    batch: Batch


def measure(session: Session, phases: Sequence[Phase]) -> list[Measured]:
    """A step of each phase that trains, until `MOST_S` is spent.

    Raises: what a step raises.
    """
    config, loop = session.algorithm.config, session.loop
    full = prompts_per_step(config)
    small_algorithm: Algorithm[Any] | None = None
    if full > SMALL:
        small_algorithm = type(session.algorithm)(with_few_prompts(config, SMALL), session.algorithm.run)
    begun, results = time.perf_counter(), list[Measured]()
    for phase in phases:
        if not phase.num_steps or not phase.updates(1) or (results and time.perf_counter() - begun > MOST_S):
            continue
        small = (
            next((each for each in small_algorithm.phases() if each.name == phase.name), None)
            if small_algorithm
            else None
        )
        result = _measured(loop, small or phase, phase, full / SMALL if small else 1.0)
        if result.is_scaled and result.seconds < FULL_WITHIN_S:
            result = _measured(loop, phase, phase, 1.0, step=2)
        results.append(result)
        _finish(loop, phase)
        if session.algorithm.spec.is_lazy or result.seconds > MOST_S:
            break
    return results


def _finish(loop: Loop, phase: Phase) -> None:
    """Leaves the copies and results that the next phase begins with."""
    if phase.select is not None:
        loop.freeze(phase.select.policy, phase.select.into)
    loop.found = {**loop.found, phase.name: dict(phase.end())}


def _measured(loop: Loop, small: Phase, phase: Phase, scale: float, step: int = 1) -> Measured:
    if step == 1:
        small.begin()
    rules = small.updates(step)
    trainers = {name: loop.trainer(name) for name in rules}
    for name, trainer in trainers.items():
        trainer.begin(rules[name])
    before = loop.counts().get("episodes/started", 0.0)
    begun = time.perf_counter()
    batch = small.collect(step)
    collected = time.perf_counter()
    for name, trainer in trainers.items():
        rows = [row for row in batch.rows if row.policy == name]
        if trainer.update(rows, seed=seed_of(loop.seed, phase.name, step, name), rule=rules[name]):
            loop.push(name)
    ended = time.perf_counter()
    for trainer in trainers.values():
        trainer.drop_optimizer()
    replies = loop.counts().get("episodes/started", 0.0) - before
    scale = scale if replies else 1.0  # a step that imitates texts has its own number of rows
    return Measured(phase, scale * (ended - begun), scale * (collected - begun), scale * replies, scale != 1.0, batch)


def with_few_prompts(config: C, most: int) -> C:
    """The settings with at most so many problems a step, at any depth."""
    changes: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name == "prompts_per_step":
            changes[name] = min(value, most)
        elif isinstance(value, Config):
            changes[name] = with_few_prompts(value, most)
    return config.model_copy(update=changes)


def time_finding(session: Session, phases: Sequence[Phase], results: Sequence[Measured]) -> Finding:
    """The estimated time of the run, from the measured steps."""
    by_name = {each.phase.name: each for each in results}
    seconds, last, num_steps = 0.0, results[0], 0
    for phase in phases:
        if phase.updates(1):
            last = by_name.get(phase.name, last)
            seconds += phase.num_steps * last.seconds
            num_steps += phase.num_steps
    sampling = next((each for each in reversed(results) if each.num_replies), None)
    measuring = 0.0
    if sampling is not None:
        tasks = session.problems.tasks
        replies = sum(_num_validations(phase) * len(tasks["validation"]) for phase in phases)
        num_tests = sum(phase.num_steps for phase in phases if not phase.updates(1))
        replies += num_tests * len(tasks["test"]) * (1 + _num_samples(session))
        measuring = replies * sampling.rollout_s / sampling.num_replies
    how = ", scaled from a small one" if any(each.is_scaled for each in results) else ""
    parts = ", ".join(f"{each.phase.name} {each.seconds:.2g} s" for each in results)
    return Finding(
        "ok",
        "time",
        f"about {_duration(seconds + measuring)} in all, an estimate: {num_steps:,} steps from one measured step a "
        f"phase{how} ({parts}), and {_duration(measuring)} of it for validation and test",
    )


def _num_samples(session: Session) -> int:
    """Sampled replies to each test problem, beside the greedy one. A look-up that counts as no read."""
    return int(getattr(vars(session.algorithm.config).get("evaluation"), "__dict__", {}).get("num_samples", 0))


def _num_validations(phase: Phase) -> int:
    if phase.validate is None or not phase.validate_every or not phase.num_steps:
        return 0
    return phase.num_steps // phase.validate_every + 1


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def signal_findings(results: Sequence[Measured]) -> Iterator[Finding]:
    """Findings about the replies of the measured steps."""
    for result in results:
        metrics = result.batch.metrics
        cut, flat, correct = (metrics.get(name) for name in ("length/truncated", "group/no_signal", "reward/correct"))
        is_enough = result.num_replies >= FLAT_REPLIES
        if cut is not None and cut >= CUT:
            yield Finding(
                "fail" if is_enough else "warning",
                "step",
                f"{cut:.0%} of the replies of the measured {result.phase.name} step ran into max_new_tokens, so they "
                "hold no final answer: raise it, or take a model that ends its replies",
            )
        if flat == 1:
            right = "" if correct is None else f" ({correct:.0%} of the replies were right)"
            yield Finding(
                "fail" if is_enough else "warning",
                "step",
                f"no group of the measured {result.phase.name} step has replies of different reward{right}, so it "
                "teaches nothing: give easier or harder problems, a larger group_size, or another model",
            )
