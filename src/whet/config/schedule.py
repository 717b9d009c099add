"""How one setting goes with the step: four kinds of schedule, as settings, and their values at a step.

Steps count within a phase, from 1. Gates begin anew with each phase, but for settings that a method counts on. Three
kinds depend on the step alone. The fourth (`gated`) waits for a metric. Its memory is a `Gate`: a record that the
caller stores, beside its other state, and hands back. Nothing here holds state, so a run that saves its gates resumes
as if it had never stopped.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from whet.config.base import Config


class Constant(Config):
    """One value at every step, in place of a preset's schedule."""

    kind: Literal["constant"] = "constant"
    value: Any
    """The value."""


class Steps(Config):
    """A value until a step, another from it on, and so forth. ScalingInter-RL's horizon (arXiv:2509.08755) is one."""

    kind: Literal["steps"] = "steps"
    values: tuple[Any, ...] = Field(min_length=1)
    """The values in their order, one more than `at` has steps. The first holds from step 1 on."""
    at: tuple[Annotated[int, Field(ge=2)], ...] = ()
    """The steps from which the second value, the third, ... hold; each later than the one before."""
    every: int | None = Field(None, ge=1, le=10**9)
    """In place of `at`: each value but the last holds for so many steps."""

    @property
    def changes(self) -> tuple[int, ...]:
        """`at`, however it was given."""
        return self.at if self.every is None else tuple(1 + i * self.every for i in range(1, len(self.values)))

    @model_validator(mode="after")
    def check_steps(self) -> Self:
        if self.every is not None:
            if self.at:
                raise ValueError("give one of `at` and `every`: both say when the values change")
            return self
        if len(self.values) != len(self.at) + 1:
            raise ValueError(
                f"{len(self.at)} steps in `at` part {len(self.at) + 1} values, and `values` has {len(self.values)}: "
                "the first value needs no step, it holds from step 1 on"
            )
        if any(later <= step for step, later in zip(self.at, self.at[1:], strict=False)):
            raise ValueError(f"the steps in `at` must grow, got {list(self.at)}")
        return self


Number = Annotated[int | float, Field(ge=-1e15, le=1e15)]
"""Whole numbers this far are exact as floats, so that halves are halves."""


class Linear(Config):
    """From one number to another in equal parts. Where the setting is a whole number it is rounded, halves up."""

    kind: Literal["linear"] = "linear"
    start: Number
    """The number up to the step `after`."""
    end: Number
    """The number from the step `after + over` on."""
    over: int = Field(ge=1, le=10**9)
    """Steps that the change takes."""
    after: int = Field(1, ge=0, le=10**9)
    """The last step at `start`. 0: step 1 has already made one part of the change, and step `over` all of it."""


class Gated(Config):
    """A value until a metric has passed a threshold, then the next: each value of the list has its own wait."""

    kind: Literal["gated"] = "gated"
    values: tuple[Any, ...] = Field(min_length=1)
    """The values in their order. The last one stays."""
    metric: str = Field(min_length=1)
    """The metric's name, as in metrics.jsonl. A step that did not measure it changes nothing."""
    above: float | None = None
    """The metric must be above it. One of `above` and `below` is given."""
    below: float | None = None
    """The metric must be below it."""
    patience: int = Field(1, ge=1, le=10**9)
    """Measurements in a row that must pass. The next value holds from the step after the last of them."""

    @model_validator(mode="after")
    def check_threshold(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("a gated schedule needs a threshold: give one of `above` and `below`, and only one")
        return self


Schedule = Annotated[Constant | Steps | Linear | Gated, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Gate:
    """The memory of a gated schedule between steps; `dataclasses.asdict` of it is JSON."""

    position: int = 0
    """Which of its values holds."""
    streak: int = 0
    """Measurements in a row that have passed since that value came."""


Gates = Mapping[str, Gate]
"""By the dotted key of the setting. A key that is absent has its first value."""
SHUT = Gate()


def value_at(schedule: Schedule, step: int, gate: Gate = SHUT, *, whole: bool = False) -> Any:
    """The value at a step of the phase.

    Args:
        step: from 1.
        gate: the result of `after_step` for the step before. Only gated schedules read it.
        whole: the setting is a whole number, so a linear schedule rounds. Its ends are never rounded.
    """
    match schedule:
        case Constant():
            return schedule.value
        case Steps():
            return schedule.values[bisect_right(schedule.changes, step)]
        case Gated():
            return schedule.values[gate.position]
        case Linear():
            return _on_the_way(schedule, step, whole)


def _on_the_way(schedule: Linear, step: int, whole: bool) -> int | float:
    start, end, done = schedule.start, schedule.end, step - schedule.after
    if done <= 0 or done >= schedule.over:
        return start if done <= 0 else end
    value = start + (end - start) * done / schedule.over
    value = min(max(value, min(start, end)), max(start, end))  # rounding must not leave the bounds that ends keep
    return math.floor(value + 0.5) if whole else value


def after_step(schedule: Schedule, gate: Gate, metrics: Mapping[str, float | None]) -> Gate:
    """The gate for the next step, given this one's metrics. Where the schedule waits for nothing, or the metric is
    absent or None: the gate as it is. NaN passes no threshold."""
    if not isinstance(schedule, Gated) or gate.position == len(schedule.values) - 1:
        return gate
    value = metrics.get(schedule.metric)
    if value is None:
        return gate
    above, below = schedule.above, schedule.below
    passed = (above is not None and value > above) or (below is not None and value < below)
    streak = gate.streak + 1 if passed else 0
    return Gate(gate.position + 1) if streak >= schedule.patience else Gate(gate.position, streak)


def advanced(schedules: Mapping[str, Schedule], gates: Gates, metrics: Mapping[str, float | None]) -> dict[str, Gate]:
    """Every gate for the next step: `after_step` of each schedule that waits for a metric."""
    return {
        key: after_step(schedule, gates.get(key, SHUT), metrics)
        for key, schedule in schedules.items()
        if isinstance(schedule, Gated)
    }


def values_of(schedule: Schedule) -> tuple[Any, ...]:
    """The values that it names: every one it can take, or a linear one's ends."""
    match schedule:
        case Constant():
            return (schedule.value,)
        case Linear():
            return (schedule.start, schedule.end)
        case Steps() | Gated():
            return schedule.values


def turns_of(schedule: Schedule) -> tuple[int, ...]:
    """The steps at which it turns to a new value, or a linear one's way begins and ends."""
    match schedule:
        case Steps():
            return schedule.changes
        case Linear():
            return (schedule.after, schedule.after + schedule.over)
        case Constant() | Gated():
            return ()
