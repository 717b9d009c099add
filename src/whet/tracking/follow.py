"""Follows the logs of a run, and sends each step to a tracker once.

The run's folder is only read, but for `tracking/`. A resumed run cuts its logs back and writes steps again; those have
the same bits, so what was sent stays. The step of a tracker counts on from phase to phase.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.report.health import health_notes
from whet.report.read import check_is_run, read_object, read_report_spec, read_run, read_settings, trace_of
from whet.report.records import Record, ReportError, TraceRecord, number
from whet.report.rows import columns_of, row_title, summary_rows
from whet.run_folder.files import TRACKING
from whet.run_folder.logs import EVENTS
from whet.tracking.protocol import Destination, Tracker, TrackError, check_kind, make
from whet.tracking.state import Sent, identity_of, load, save, state_file
from whet.tracking.tail import Tail

BATCH = 200
"""Steps that are sent before the state is saved. A killed follower sends at most so many again."""
POLL_S = 2.0
"""Seconds between two looks at the logs."""
NOTES_EVERY_S = 60.0
"""Seconds between two readings of a run's health while it goes on, at least. Each reads the whole folder."""
NOTES_SHARE = 0.02
"""Of the time: what these readings may take."""
ALERTS = {"warning": "warning", "error": "error", "critical": "error", "watch": "warning", "bad": "error"}
"""Levels of events and of health notes, as levels of alerts. Others are no alerts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackSettings:
    """How a run is sent to a tracker."""

    out: Path | None = None
    """The folder for the tracker's files. None: `tracking/NAME` in the run's folder; trackio's own for trackio."""
    project: str | None = None
    """As `Destination.project`."""
    num_traces: int = 4
    """Episodes of a step that are sent, at most."""


@dataclass
class Counts:
    """What was sent in this session."""

    steps: int = 0
    traces: int = 0
    alerts: int = 0
    tables: int = 0


@dataclass
class Feed:
    """Sends one run to one tracker."""

    run: Path
    kind: str
    settings: TrackSettings
    counts: Counts = field(default_factory=Counts)
    _tracker: Tracker | None = None
    _last_steps: dict[str, int] = field(default_factory=dict)
    """The last step of each phase up to the position in metrics.jsonl, in the order of the phases."""
    _step: int = 0
    """The tracker's step at the position in metrics.jsonl."""
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _traces: dict[tuple[str, int], list[TraceRecord]] = field(default_factory=dict)
    """Episodes by phase and step, whose step is not sent yet."""
    _trace_steps: dict[str, int] = field(default_factory=dict)
    """By phase, the step of the last trace that was read."""
    _num_events: int = 0
    """Lines before the position in events.jsonl."""
    _notes_at: float = field(default_factory=lambda: time.monotonic() + NOTES_EVERY_S)
    """When the run's health is looked at next."""

    def __post_init__(self) -> None:
        check_kind(self.kind)
        check_is_run(self.run)
        places = (str(self.settings.out.resolve()) if self.settings.out else "", self.settings.project or "")
        self.file = state_file(self.run, self.kind, "\n".join(places) if any(places) else "")
        self.sent = Sent()

    def load(self, *, anew: bool = False) -> None:
        """Read what the tracker has. Call it once the state's file is locked.

        Args:
            anew: send everything again, though the tracker has it.
        """
        sent = load(self.file, self.run)
        self.sent = Sent(run=sent.run, run_id=sent.run_id) if anew else sent

    def in_words(self) -> str:
        """What was sent in this session, in a line."""
        counts = self.counts
        if not any((counts.steps, counts.alerts, counts.tables)):
            return f"{self.kind}: nothing new"
        folder = self.settings.out or self.run / TRACKING / self.kind
        place = "" if self.kind == "trackio" and self.settings.out is None else f" to {folder}"
        table = ", the table" if counts.tables else ""
        parts = f"{counts.steps:,} steps, {counts.traces:,} traces, {counts.alerts:,} alerts{table}"
        return f"{self.kind}: sent {parts}{place}"

    def pump(self) -> None:
        """Send what the logs have gained.

        Raises: whatever the tracker raises; TrackError where another run has begun in the folder.
        """
        self._check_same_run()
        while rows := self._new_steps():
            for start in range(0, len(rows), BATCH):
                for row in rows[start : start + BATCH]:
                    self._send_step(row)
                self._save()
        self._send_events()
        if time.monotonic() > self._notes_at and self._tracker is not None:
            started = time.process_time()
            self._send_notes()
            self._save()
            self._notes_at = time.monotonic() + max(NOTES_EVERY_S, (time.process_time() - started) / NOTES_SHARE)

    def finish(self) -> None:
        """Send the final table and the run's health, and end the tracker.

        Raises: whatever the tracker raises.
        """
        file = self.run / "summary.json"
        summary = read_object(file)
        digest = "" if summary is None else sha256(file.read_bytes()).hexdigest()[:16]
        if summary is not None and digest != self.sent.summary:
            self._send_table(summary)
            self._send_notes()
            self.sent.summary = digest
            self._save()
        elif self._tracker is not None:
            self._send_notes()
            self._save()
        if self._tracker is not None:
            self._tracker.end(summary)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _tail(self, path: Path) -> Tail:
        return self._tails.setdefault(path, Tail(path))

    def _check_same_run(self) -> None:
        identity = identity_of(self.run)
        if identity and not self.sent.run:
            self.sent = load(self.file, self.run)
        elif identity != self.sent.run:
            raise TrackError(f"another run has begun in {self.run}: track it anew")

    def _new_steps(self) -> list[tuple[str, int, Record]]:
        """The next rows of metrics.jsonl with their tracker's steps. Those that were sent are counted and left out."""
        tail = self._tail(self.run / "metrics.jsonl")
        while True:
            rows, was_cut = tail.read()
            if was_cut:
                self._last_steps = {}
            new: list[tuple[str, int, Record]] = []
            for row in rows:
                phase, step = str(row.get("phase", "run")), int(number(row.get("step")) or 0)
                self._last_steps[phase] = step
                total = step + self._steps_before(phase)
                if not self.sent.has(phase, step):
                    new.append((phase, total, row))
                else:
                    self._step = max(self._step, total)
            if new or not rows:
                return new

    def _steps_before(self, phase: str) -> int:
        """The steps of all phases that came before one."""
        phases = list(self._last_steps)
        return sum(self._last_steps[name] for name in phases[: phases.index(phase)])

    def _traces_of(self, phase: str, step: int) -> list[TraceRecord]:
        """The first traces of a step that is not sent yet. Reads no further than it has to."""
        while phase == Path(phase).name and self._trace_steps.get(phase, -1) <= step:
            rows, was_cut = self._tail(self.run / "traces" / f"{phase}.jsonl").read()
            if was_cut:
                self._trace_steps.pop(phase, None)
                self._traces = {key: value for key, value in self._traces.items() if key[0] != phase}
            if not rows:
                break
            who = self._report_spec().who
            for trace in (trace_of(row, who) for row in rows):
                self._trace_steps[phase] = trace.step
                several = self._traces.setdefault((phase, trace.step), [])
                if trace.step >= step and len(several) < self.settings.num_traces:
                    several.append(trace)
        return self._traces.pop((phase, step), [])

    def _report_spec(self) -> Any:
        try:
            return read_report_spec(self.run)
        except ReportError as error:
            raise TrackError(str(error)) from error

    # --- sending ------------------------------------------------------------------------------------------------------

    def _open(self) -> Tracker:
        """The tracker, which begins when there is something to send."""
        if self._tracker is None:
            folder = self.settings.out or self.run / TRACKING / self.kind
            destination = Destination(
                project=self.settings.project,
                folder=folder.resolve(),
                is_default=self.settings.out is None,
                run_id=self.sent.run_id,
            )
            tracker = make(self.kind, destination)
            tracker.begin(read_settings(self.run), self.run.resolve().name, self._step + bool(self.sent.steps))
            self._tracker = tracker
        return self._tracker

    def _send_step(self, row: tuple[str, int, Record]) -> None:
        phase, total, values = row
        step = int(number(values.get("step")) or 0)
        tracker = self._open()
        numbers = {
            f"{phase}/{key}": value
            for key, raw in values.items()
            if key not in ("phase", "step") and not isinstance(raw, bool) and (value := number(raw)) is not None
        }
        tracker.log(total, numbers)
        if episodes := self._traces_of(phase, step):
            tracker.traces(total, episodes)
            self.counts.traces += len(episodes)
        self._step = total
        self.sent.steps[phase] = step
        self.counts.steps += 1

    def _send_events(self) -> None:
        """Send warnings and errors of the events as alerts."""
        while rows := self._tail(self.run / EVENTS).read()[0]:
            first, self._num_events = self._num_events, self._num_events + len(rows)
            for row in rows[max(0, self.sent.num_events - first) :]:
                if (level := ALERTS.get(str(row.get("level")))) is not None:
                    self._open().alert(level, str(row.get("message", "")))
                    self.counts.alerts += 1
            if self._num_events > self.sent.num_events:
                self.sent.num_events = self._num_events
                self._save()

    def _send_notes(self) -> None:
        """Send health notes as alerts, each once."""
        # Without events: those became alerts of their own.
        for note in health_notes(replace(read_run(self.run), events=())):
            key = re.sub(r"[\d.,+–%-]+", "#", f"{note.title}: {note.text}")[:200]
            if (level := ALERTS.get(note.level)) is not None and key not in self.sent.notes:
                self._open().alert(level, f"{note.title}: {note.text}")
                self.sent.notes.append(key)
                self.counts.alerts += 1

    def _send_table(self, summary: Record) -> None:
        report_spec = self._report_spec()
        rows = summary_rows(summary, report_spec)
        titles = {column.key: column.title for column in columns_of(report_spec, rows)} | {"n": "n"}
        table: list[Mapping[str, float | str | None]] = [
            {report_spec.who: row_title(report_spec, name), **{title: row[key] for key, title in titles.items()}}
            for name, row in rows.items()
        ]
        if table:
            self._open().table("results", table)
            self.counts.tables += 1

    def _save(self) -> None:
        if self._tracker is not None:
            self._tracker.flush()
        save(self.file, self.sent)


def follow(feeds: Sequence[Feed], has_ended: Callable[[], bool], *, report: Callable[[Feed, Exception], None]) -> None:
    """Send runs to trackers until they have ended. A tracker that fails is left out from then on.

    Args:
        has_ended: whether nothing more is written. What was written before is sent still.
        report: is given each failed feed and its error.
    """
    active = list(feeds)

    def all_of(work: Callable[[Feed], None]) -> None:
        for feed in list(active):
            try:
                work(feed)
            except Exception as error:  # a tracker's: any
                active.remove(feed)
                report(feed, error)

    while active:
        ended = has_ended()  # asked first, so that the last lines are read
        all_of(Feed.pump)
        if ended:
            break
        time.sleep(POLL_S)
    all_of(Feed.finish)
