"""Runs whose logs a test writes line by line, and a tracker whose files are lines of JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.lines_tracker import Lines
from whet.methods.report_specs import load_report
from whet.report.spec import to_json
from whet.run_folder.folder import RunFolder
from whet.tracking.protocol import KINDS


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> type[Lines]:
    """The tracker, under the name `json`: a package of that name is always there."""
    monkeypatch.setattr(Lines, "fails_at", None)
    monkeypatch.setitem(KINDS, "json", "support.lines_tracker:Lines")
    monkeypatch.setattr("whet.tracking.follow.POLL_S", 0.01)
    return Lines


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
