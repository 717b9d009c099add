"""Rollouts that go on while a policy trains: units begin, end and are handed to the updates, as a schedule says.

The log says for each step which units it trained on, and in which step each began. A unit's results depend on its
seeds and on the weights of that step alone. So a run with the same log has the same bits, whatever processes it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whet.errors import RunError
from whet.rollout.retries import Ended
from whet.rollout.runtime import Call, Runtime
from whet.rollout.unit_schedule import Batch, UnitSchedule
from whet.rollout.units import UnitResult, roll_out_unit
from whet.types import Episode

LOG = "async.jsonl"
"""The log's name in a run's folder."""


class UnitPool(Protocol):
    """Where units are rolled out: in other processes, on servers, or here."""

    def renew(self) -> None:
        """Send the policies' newest weights. Units that begin from now on have them."""
        ...

    def has_room(self) -> bool:
        """Whether a unit could begin now."""
        ...

    def begin(self, unit: int, calls: Sequence[Call[Any]]) -> None:
        """Begin a unit."""
        ...

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        """Units that have ended, in the order in which they did. None: its process died.

        Args:
            wait_s: the longest wait for the first one.
        """
        ...

    def go_on(self, turn: Callable[[float], None]) -> None:
        """Call `turn` again and again, with the seconds that it may wait, until `pause`."""
        ...

    def pause(self) -> None:
        """Stop calling `turn`. Raises: what it raised."""
        ...


@dataclass
class AsyncUnits:
    """The units of a phase.

    Args:
        calls: the rollouts of a unit, by its number.
        write: adds a line to the log.
        clock: seconds. A simulation has one of its own.
    """

    schedule: UnitSchedule
    pool: UnitPool
    runtime: Runtime
    calls: Callable[[int], Sequence[Call[Episode]]]
    write: Callable[[Mapping[str, Any]], None]
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.results: dict[int, UnitResult] = {}
        """Of units that have ended."""

    def next_batch(self, step: int) -> tuple[Batch, list[list[Episode]], dict[str, float]]:
        """The units that a step trains on, the episodes of each, and metrics.

        Raises: what a rollout raised. RunError.
        """
        schedule, held_s = self.schedule, 0.0
        self.pool.pause()
        if schedule.is_training:
            schedule.trained()
        if schedule.step != step:
            raise RunError(f"step {step} asks for rollouts, and those at hand are of step {schedule.step}")
        num_ahead = len(schedule.ended)
        self.pool.renew()
        with self.runtime.watchdog.watching():
            self._begin()
            while not schedule.is_ready():
                before, is_held = self.clock(), schedule.has_enough
                self.turn(1.0)
                held_s += (self.clock() - before) * is_held
        batch = schedule.take()
        results = [self.results.pop(unit) for unit, _ in batch]
        for result in results:
            self.runtime.episode_counts.replay(result.endings)
            self.runtime.grow(result.growth)
        self.write({"step": step, "units": [list(pair) for pair in batch]})
        metrics = _metrics(step, batch) | {
            "time/held": held_s,
            "buffer/units": float(num_ahead),
            "buffer/units_open": float(len(schedule.open)),
            "buffer/units_lost": float(schedule.num_lost),
        }
        return batch, [result.results for result in results], metrics

    def go_on(self) -> None:
        """Let units go on while the policy trains."""
        self._begin()
        self.pool.go_on(self.turn)

    def turn(self, wait_s: float) -> None:
        """Take in what has ended, and begin what may begin."""
        for unit, result in self.pool.ended(wait_s):
            self.runtime.watchdog.beat("units of rollouts")
            if result is None:
                self.schedule.lose(unit)
            else:
                self.results[unit] = result
                self.schedule.end(unit)
        self._begin()

    def _begin(self) -> None:
        while self.schedule.may_begin() and self.pool.has_room():
            unit = self.schedule.begin()
            self.pool.begin(unit, self.calls(unit))


def _metrics(step: int, batch: Batch) -> dict[str, float]:
    ages = [step - begun for _, begun in batch]
    return {"age/mean": sum(ages) / len(ages), "age/max": float(max(ages))}


class LocalUnits:
    """Units that this process rolls out, each as it begins. They repeat another run's log."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._ended: list[tuple[int, UnitResult | None]] = []

    def renew(self) -> None:
        """Nothing: the engine shares the weights, or was sent them."""

    def has_room(self) -> bool:
        return True

    def begin(self, unit: int, calls: Sequence[Call[Any]]) -> None:
        self._ended.append((unit, roll_out_unit(calls, self.runtime)))

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        ended, self._ended = self._ended, []
        return ended

    def go_on(self, turn: Callable[[float], None]) -> None:
        """Nothing goes on."""

    def pause(self) -> None:
        """Nothing goes on."""


# --- in checkpoints ---------------------------------------------------------------------------------------------------


def as_info(result: UnitResult, begun: int) -> dict[str, Any]:
    """What a checkpoint says of a unit that has ended, beside its episodes, in JSON types."""
    endings = [
        [ended.outcome, ended.number, ended.again, ended.trace, None if ended.episode is None else ended.episode.reason]
        for ended in result.endings
    ]
    return {"begun": begun, "growth": dict(result.growth), "endings": endings}


def from_info(info: Mapping[str, Any], episodes: Sequence[Episode]) -> UnitResult:
    """The unit again."""
    task = episodes[0].task
    endings = [
        Ended(
            outcome,
            number,
            again,
            None if reason is None else Episode(task=task, segments=(), outcome=outcome, reason=reason),
            trace,
        )
        for outcome, number, again, trace, reason in info["endings"]
    ]
    return UnitResult(list(episodes), endings, info["growth"])


# --- the log ----------------------------------------------------------------------------------------------------------


def read_log(rows: Iterable[Mapping[str, Any]]) -> dict[int, Batch]:
    """The batches of a log's steps. Raises: KeyError, TypeError, ValueError, AttributeError."""
    return {int(row["step"]): [(int(unit), int(begun)) for unit, begun in row["units"]] for row in rows}


def log_problem(record: Mapping[int, Batch], size: int, max_age: int, num_steps: int) -> str | None:
    """What hinders a run from repeating a log, as a clause. None: nothing.

    Args:
        size: units that a step trains on.
    """
    if missing := sorted({*range(1, num_steps + 1)} - record.keys()):
        return f"it has {len(record)} steps and lacks step {missing[0]}: num_steps = {num_steps}"
    seen: set[int] = set()
    for step in range(1, num_steps + 1):
        batch = record[step]
        if len(batch) != size:
            return (
                f"its step {step} trains on {len(batch)} units, and here a step has {size}: it is of a run with other "
                "prompts_per_step, group_size or cluster.unit"
            )
        for unit, begun in batch:
            if unit in seen or unit < 0:
                return f"its step {step} trains on unit {unit} again"
            seen.add(unit)
            if not 1 <= begun <= step:
                return f"its unit {unit} begins in step {begun} and trains in step {step}"
            if step - begun > max_age:
                return f"its unit {unit} is {step - begun} steps old, and off_policy.max_age is {max_age}"
    return None


def check_versions(episodes: Iterable[Episode], policy: str, begun: int, versions: Mapping[int, int]) -> None:
    """Check that a unit was written by the weights that it is said to be of.

    Args:
        versions: the policy's version at each step's begin.
    Raises: RunError where a segment is of older ones, or of ones that were not there yet.
    """
    for segment in (segment for episode in episodes for segment in episode.segments if segment.policy == policy):
        for version, _ in segment.versions:
            if version < versions[begun] or version > max(versions.values()):
                raise RunError(
                    f"a unit of rollouts was given weights of version {versions[begun]} in step {begun}, and "
                    f"{policy} wrote in it by version {version}: its worker or server does not hold what it was sent"
                )
