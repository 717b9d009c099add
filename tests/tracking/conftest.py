"""A tracker whose files are lines of JSON, and runs whose logs a test writes line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whet.methods.report_specs import load_report
from whet.report.spec import to_json
from whet.run_folder.folder import RunFolder
from whet.tracking.protocol import TRACKERS, Destination


class Lines:
    """Writes each call as a line. `fails_at`: the step whose numbers it refuses."""

    fails_at: int | None = None

    def __init__(self, destination: Destination) -> None:
        self.folder = destination.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_id = destination.run_id

    def _write(self, what: str, *values: Any) -> None:
        with (self.folder / "lines.jsonl").open("a") as file:
            file.write(json.dumps([what, *values]) + "\n")

    def begin(self, config, name, next_step):
        self._write("begin", config, name, next_step, self.run_id)

    def log(self, step, numbers):
        if step == self.fails_at:
            raise ConnectionError("the server is gone")
        self._write("log", step, numbers)

    def traces(self, step, episodes):
        self._write("traces", step, [episode.task for episode in episodes])

    def table(self, name, rows):
        self._write("table", name, list(rows))

    def alert(self, level, sentence):
        self._write("alert", level, sentence)

    def flush(self): ...

    def end(self, summary):
        self._write("end", summary is not None)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> type[Lines]:
    """The tracker, registered as `json`: a package of that name is always there."""
    monkeypatch.setattr(Lines, "fails_at", None)
    TRACKERS.add("json", Lines, says="lines of JSON")
    monkeypatch.setattr("whet.tracking.follow.POLL_S", 0.01)
    yield Lines
    del TRACKERS._entries["json"]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run's folder with the files that it has before its first step."""
    folder = RunFolder(tmp_path / "run")
    folder.acquire()
    folder.write("config.yaml", "method: grpo\nseed: 3\n")
    folder.write("report_spec.json", to_json(load_report("solve")))
    folder.event("info", "started", "it starts")
    yield folder
    folder.release()


@pytest.fixture
def step(run: RunFolder) -> Callable[..., None]:
    """Writes a step as the loop does: its traces, then its metrics."""

    def write(phase: str, number: int, **more: float) -> None:
        rows = [{"phase": phase, "step": number, "split": "train", "task": f"{phase}{number}{i}"} for i in "abc"]
        run.traces(phase, rows)
        run.metrics(phase, number, {"reward/mean": number / 10, **more})

    return write
