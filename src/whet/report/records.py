"""The contents of a run folder as frozen records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import WhetError
from whet.report.spec import ReportSpec

Record = Mapping[str, Any]
"""One JSON object as written."""


class ReportError(WhetError, ValueError):
    """The folder holds no run, or it cannot be read."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    """One phase of the run (`sft_actor`, `stage1`, ...) and its metrics."""

    name: str
    steps: Mapping[int, Mapping[str, float]]
    """By step, ascending: metric name to value. Absent, null and non-finite values are left out."""

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """The steps at which a metric was measured, and its values there."""
        points = [(step, values[key]) for step, values in self.steps.items() if key in values]
        return [step for step, _ in points], [value for _, value in points]

    def has(self, *keys: str) -> bool:
        """Whether any of these metrics was ever measured."""
        return any(key in values for values in self.steps.values() for key in keys)

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics, in order of first measurement."""
        return list(dict.fromkeys(key for values in self.steps.values() for key in values))

    def of(self, policy: str) -> PhaseRecord:
        """The metrics of one policy of several, by their names without the policy's."""
        start = f"{policy}."
        bare = {
            step: {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
            for step, values in self.steps.items()
        }
        return PhaseRecord(name=self.name, steps=bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of the run."""

    time: str
    level: str
    event: str
    """A slug, such as `grader_error`."""
    message: str
    phase: str
    """Empty: it concerns no phase."""
    step: int | None
    command: str = ""
    """The command that resumed the run. Empty: not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One segment of an episode of many turns."""

    role: str
    """`observation`: the environment's."""
    text: str
    stop: str
    """Why the turn ended. Empty: not recorded."""
    reward: float | None
    credit: float | None
    note: str
    """Its result, such as `invalid action`."""
    picture: tuple[tuple[str, ...], ...] = ()
    """The environment at that time, from above: a short name a cell. Empty: it cannot be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One problem, its answer, critique and refinement, or the turns of an episode. None: that part was not made, or
    not graded."""

    phase: str
    step: int
    split: str
    writer: str
    """Who wrote the rewarded text: a critic (`sft_critic`, `stage1`, ...), or which of a policy's weights (`training`,
    `before`, `best`, `last`). The phase's name where the trace does not say."""
    task: str
    question: str
    reference: str
    answer: str
    answer_score: float | None
    critique: str | None
    verdict: str | None
    """`correct` or `wrong`; None where the critique has no readable verdict."""
    refinement: str | None
    refinement_score: float | None
    reward: float | None
    rewards: Mapping[str, float]
    credit: float | None
    stop: Mapping[str, str]
    outcome: str
    reason: str = ""
    """The cause of a failure."""
    turns: tuple[Turn, ...] = ()
    fate: str = ""
    """Where a filter selects traces: `kept`, or the filter that dropped it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The contents of a run folder."""

    folder: Path
    report_spec: ReportSpec
    """How it is shown."""
    config: str
    """The text of `config.yaml`; empty where absent."""
    settings: Record
    """The same, parsed; empty where that fails."""
    env: Record
    phases: tuple[PhaseRecord, ...]
    """In the order in which they ran."""
    events: tuple[Event, ...]
    exchanges: tuple[TraceRecord, ...]
    """In the order of the files' names and lines."""
    summary: Record | None
    """None: the run is unfinished."""
    flaws: tuple[str, ...] = ()
    """A sentence on each part that could not be read."""

    def setting(self, name: str) -> Any:
        """One setting by its dotted name, as in `loss.bounds.target`; None where it is missing."""
        value: Any = self.settings
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def phase(self, name: str) -> PhaseRecord | None:
        return next((phase for phase in self.phases if phase.name == name), None)


def number(value: object) -> float | None:
    """A finite number as a float, and None for anything else (true and false count as 1 and 0)."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None
