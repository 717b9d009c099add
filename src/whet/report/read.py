"""Reads a run folder into one frozen record, even if the run is unfinished or was killed while it wrote.

A line that cannot be read is left out, and `RunRecord.flaws` says so. Nothing is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from whet.config.yaml_text import NotYaml, load
from whet.report.records import Event, PhaseRecord, Record, ReportError, RunRecord, TraceRecord, Turn, number
from whet.report.spec import ReportSpec, of_json
from whet.run_folder.files import older_layout

MAX_STEP = 10**9
"""More steps than any run makes."""


def read_run(folder: Path | str) -> RunRecord:
    """Read a run folder. It needs `report_spec.json` and one of `config.yaml`, `env.json`, `metrics.jsonl`.

    Raises: ReportError where there is no folder, or it holds no run of this layout.
    """
    folder, reader = check_is_run(folder), _Reader()
    config = reader.text(folder / "config.yaml")
    settings, summary = _settings(config), reader.object(folder / "summary.json")
    phases = _phases(reader.lines(folder / "metrics.jsonl"), reader.flaws)
    report_spec = read_report_spec(folder)
    return RunRecord(
        folder=folder,
        report_spec=report_spec,
        config=config,
        settings=settings,
        env=reader.object(folder / "env.json") or {},
        phases=phases,
        events=tuple(_event(row) for row in reader.lines(folder / "events.jsonl")),
        exchanges=tuple(
            trace_of(row, report_spec.who)
            for path in sorted((folder / "traces").glob("*.jsonl"))
            for row in reader.lines(path)
        ),
        summary=summary,
        flaws=tuple(reader.flaws),
    )


def check_is_run(folder: Path | str) -> Path:
    """The folder, if a run is in it.

    Raises: ReportError.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"{folder} is no folder; give the folder of a run, such as runs/NAME.")
    marks = ("config.yaml", "env.json", "metrics.jsonl")
    if not any((folder / name).is_file() for name in marks):
        raise ReportError(
            f"{folder} holds no run (none of {', '.join(marks)}); give the folder of one, such as runs/NAME."
        )
    return folder


def read_settings(folder: Path) -> Record:
    """The settings in `config.yaml`; empty where it cannot be read."""
    return _settings(_Reader().text(folder / "config.yaml"))


def read_rows(path: Path) -> Iterator[Record]:
    """The lines of a log; empty where there is none. Unreadable ones are left out."""
    return _Reader().lines(path)


def read_object(path: Path) -> Record | None:
    """A small file of JSON; None where there is none, or it cannot be read."""
    return _Reader().object(path)


def read_report_spec(folder: Path | str) -> ReportSpec:
    """The report spec in a run's `report_spec.json`.

    Raises: ReportError where it is missing, or cannot be read.
    """
    folder = Path(folder)
    file = folder / "report_spec.json"
    if not file.is_file():
        raise ReportError(older_layout(folder, folder))
    try:
        return of_json(_Reader().text(file))
    except ValueError as error:
        raise ReportError(f"{file} is damaged: put it back from a copy, or let `whet resume` write it") from error


@dataclass(slots=True)
class _Reader:
    """Reads files and records what it could not read."""

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
        # Not splitlines(): models' texts may hold U+2028 and others that it takes for line ends.
        lines = self.text(path).split("\n")
        for at, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = _parsed(line)
            if row is not None:
                yield row
            elif at == len(lines):  # it lacks its newline: the writer was stopped in the middle of it
                self.flaws.append(f"{path.name} ends in a torn line, which is left out: the run was killed or goes on.")
            else:
                self.flaws.append(f"{path.name}, line {at}, is not a JSON object and is left out.")


def _parsed(text: str) -> Record | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _settings(text: str) -> Record:
    try:
        value = load(text)
    except (NotYaml, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _phases(rows: Iterable[Record], flaws: list[str]) -> tuple[PhaseRecord, ...]:
    """Merges the rows of one phase and step: training and validation may each write one. If a resumed run wrote a step
    again, the later row counts."""
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
    return tuple(PhaseRecord(name=name, steps=dict(sorted(steps.items()))) for name, steps in phases.items())


def _event(row: Record) -> Event:
    return Event(
        time=_string(row.get("time")),
        level=_string(row.get("level")) or "info",
        event=_string(row.get("event")) or "event",
        message=_string(row.get("message")),
        phase=_string(row.get("phase")),
        command=_string(row.get("command")),
        step=None if (step := number(row.get("step"))) is None else int(step),
    )


def trace_of(row: Record, who: str) -> TraceRecord:
    """Read a trace.

    Args:
        who: the key of its writer, as in `ReportSpec.who`.
    """
    phase = _name(row.get("phase"))
    rewards, stop, turns = row.get("rewards"), row.get("stop"), row.get("turns")
    return TraceRecord(
        phase=phase,
        step=_integer(row.get("step")),
        split=_name(row.get("split")) or "train",
        writer=_name(row.get(who)) or phase,
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
        reason=_string(row.get("reason")),
        fate=_name(row.get("fate")),
        turns=tuple(_turn(turn) for turn in turns if isinstance(turn, dict)) if isinstance(turns, list) else (),
    )


def _turn(row: Record) -> Turn:
    return Turn(
        role=_name(row.get("role")),
        text=_string(row.get("text")),
        stop=_string(row.get("stop")),
        reward=number(row.get("reward")),
        credit=number(row.get("credit")),
        note=_string(row.get("note")),
        picture=_picture(picture) if (picture := row.get("picture")) else (),
    )


def _picture(value: object) -> tuple[tuple[str, ...], ...]:
    rows = value if isinstance(value, list) else []
    return tuple(tuple(_string(cell) for cell in row) for row in rows if isinstance(row, list))


def _integer(value: object) -> int:
    """A step. 0 for one that no run reaches."""
    step = number(value) or 0
    return int(step) if 0 <= step <= MAX_STEP else 0


def _name(value: object) -> str:
    """A name for links: whole characters only."""
    text = _string(value)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _string(value: object) -> str:
    return "" if value is None else str(value)


def _optional(value: object) -> str | None:
    return None if value is None else str(value)
