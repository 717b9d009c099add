"""A run folder read back into one frozen record, also when the run is unfinished or was killed while it wrote.

A line that cannot be read is left out and said so in `Run.flaws`; nothing is guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from whet.errors import WhetError

MAX_STEP = 10**9
"""More steps than any run makes."""

Record = Mapping[str, Any]
"""One JSON object, as it was written."""


class ReportError(WhetError, ValueError):
    """The folder holds no run, or nothing of it can be read."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of the run (`sft_actor`, `stage1`, ...) and what was measured in it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to the run."""

    time: str
    level: str
    event: str
    """A slug, such as `grader_error`."""
    message: str
    phase: str
    """Empty where it is about no phase."""
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One problem, its answer, the critique of it and the refinement. None: that part was not made, or not graded."""

    phase: str
    step: int
    split: str
    critic: str
    """Who wrote the critique (`sft_critic`, `stage1`, ...), or in a run of one policy, which of its weights answered
    (`training`, `before`, `best`, `last`); the phase's name where the trace does not say."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a run folder says."""

    folder: Path
    config: str
    """`config.yaml` as it stands; empty where absent."""
    settings: Record
    """The same, read; empty where it cannot be."""
    env: Record
    phases: tuple[Phase, ...]
    """In the order in which they ran."""
    events: tuple[Event, ...]
    exchanges: tuple[Exchange, ...]
    """In the order of the files' names and lines."""
    summary: Record | None
    """None: the run is unfinished."""
    flaws: tuple[str, ...] = ()
    """What could not be read, a sentence each."""

    def setting(self, name: str) -> Any:
        """One setting by its dotted name, as in `loss.bounds.target`; None where it is not there."""
        value: Any = self.settings
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)


def read_run(folder: Path | str) -> Run:
    """Read a run folder; every file but one of `config.yaml`, `env.json`, `metrics.jsonl` may be missing.

    Raises: ReportError where the folder is none, or holds no run.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder; give the folder of a run, such as runs/NAME.")
    marks = ("config.yaml", "env.json", "metrics.jsonl")
    if not any((folder / name).is_file() for name in marks):
        raise ReportError(f"{folder} holds no run: none of {', '.join(marks)} is in it.")
    reader = _Reader()
    config = reader.text(folder / "config.yaml")
    return Run(
        folder=folder,
        config=config,
        settings=_settings(config),
        env=reader.object(folder / "env.json") or {},
        phases=_phases(reader.lines(folder / "metrics.jsonl"), reader.flaws),
        events=tuple(_event(row) for row in reader.lines(folder / "events.jsonl")),
        exchanges=tuple(
            _exchange(row) for path in sorted((folder / "traces").glob("*.jsonl")) for row in reader.lines(path)
        ),
        summary=reader.object(folder / "summary.json"),
        flaws=tuple(reader.flaws),
    )


@dataclass(slots=True)
class _Reader:
    """Reads files and remembers what it could not read."""

    flaws: list[str] = field(default_factory=list)

    def text(self, path: Path) -> str:
        return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""

    def object(self, path: Path) -> Record | None:
        if not path.is_file():
            return None
        row = _parsed(self.text(path))
        if row is None:
            self.flaws.append(f"{path.name} is not a JSON object and is left out.")
        return row

    def lines(self, path: Path) -> Iterator[Record]:
        # Not splitlines(): texts of models may hold U+2028 and other things that it takes for line ends.
        lines = self.text(path).split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = _parsed(line)
            if row is not None:
                yield row
            elif number == len(lines):  # it lacks its newline: the writer was stopped in the middle of it
                self.flaws.append(f"{path.name} ends in a torn line, which is left out: the run was killed or goes on.")
            else:
                self.flaws.append(f"{path.name}, line {number}, is not a JSON object and is left out.")


def _parsed(text: str) -> Record | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _settings(text: str) -> Record:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _phases(rows: Iterable[Record], flaws: list[str]) -> tuple[Phase, ...]:
    """Rows of one phase and step are merged (training and validation may each write their own); where a resumed run
    wrote a step again, the later row counts."""
    phases: dict[str, dict[int, dict[str, float]]] = {}
    not_finite: dict[str, int] = {}
    for row in rows:
        values = phases.setdefault(str(row.get("phase", "run")), {}).setdefault(_integer(row.get("step")), {})
        for key, value in row.items():
            if key in ("phase", "step") or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if (finite := number(value)) is not None:
                values[key] = finite
            else:
                not_finite[key] = not_finite.get(key, 0) + 1
    flaws += [f"metrics.jsonl: {key} was not finite {count} times." for key, count in not_finite.items()]
    return tuple(Phase(name=name, steps=dict(sorted(steps.items()))) for name, steps in phases.items())


def _event(row: Record) -> Event:
    return Event(
        time=_string(row.get("time")),
        level=_string(row.get("level")) or "info",
        event=_string(row.get("event")) or "event",
        message=_string(row.get("message")),
        phase=_string(row.get("phase")),
        step=None if (step := number(row.get("step"))) is None else int(step),
    )


def _exchange(row: Record) -> Exchange:
    phase = _name(row.get("phase"))
    rewards, stop = row.get("rewards"), row.get("stop")
    return Exchange(
        phase=phase,
        step=_integer(row.get("step")),
        split=_name(row.get("split")) or "train",
        critic=_name(row.get("critic")) or phase,
        task=_string(row.get("task")),
        question=_string(row.get("question")),
        reference=_string(row.get("reference")),
        answer=_string(row.get("answer")),
        answer_score=number(row.get("answer_score")),
        critique=_optional(row.get("critique")),
        verdict=_optional(row.get("verdict")),
        refinement=_optional(row.get("refinement")),
        refinement_score=number(row.get("refinement_score")),
        reward=number(row.get("reward")),
        rewards={str(k): v for k, raw in rewards.items() if (v := number(raw)) is not None}
        if isinstance(rewards, dict)
        else {},
        credit=number(row.get("credit")),
        stop={str(k): _string(v) for k, v in stop.items()} if isinstance(stop, dict) else {},
        outcome=_string(row.get("outcome")) or "ok",
    )


def number(value: object) -> float | None:
    """A finite number as a float, and None for anything else (true and false count as 1 and 0)."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def _integer(value: object) -> int:
    """A step. One that no run reaches is no step."""
    found = number(value) or 0
    return int(found) if 0 <= found <= MAX_STEP else 0


def _name(value: object) -> str:
    """What stands in links: whole characters only."""
    return _string(value).encode(errors="replace").decode()


def _string(value: object) -> str:
    return "" if value is None else str(value)


def _optional(value: object) -> str | None:
    return None if value is None else str(value)
