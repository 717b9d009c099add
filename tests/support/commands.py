"""Whole runs through the real command, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from support.forked import forked
from whet.config import load
from whet.methods import METHODS
from whet.methods.registry import preset_of

TIMES = ("time/", "throughput/")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Quiet:
    """Watches a run and says nothing."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: object) -> None: ...
    def tell(self, level: str, text: str) -> None: ...
    def end(self) -> None: ...


def config_of(name: str, *settings: str) -> Any:
    """What a name starts from, with settings over it."""
    assert name in METHODS
    preset = preset_of(name).config
    return load(type(preset), None, settings, base=preset)


def whet(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = forked([str(each) for each in arguments], ENVIRONMENT)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def killed_when(run: Path, is_time: Callable[[], bool], *arguments: object) -> None:
    """`whet` with these arguments in a process of its own, which gets SIGKILL as soon as it is time."""
    command = [sys.executable, "-m", "whet.cli", *map(str, arguments)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not is_time():
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (run / "summary.json").exists()


def has_logged(run: Path, phase: str, step: int) -> bool:
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return any(line.startswith(f'{{"phase": "{phase}", "step": {step},') for line in lines)


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def metrics(run: Path) -> list[dict[str, Any]]:
    """All but times and speeds."""
    return [{key: value for key, value in row.items() if not key.startswith(TIMES)} for row in logged(run)]


def weights(run: Path) -> dict[str, torch.Tensor]:
    latest = run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()
    return {
        f"{file.parent.name}/{name}": value
        for file in sorted((latest / "policies").glob("*/*.safetensors"))
        for name, value in load_file(file).items()
    }


def same_bits(a: Path, b: Path) -> None:
    """Metrics, weights, traces and the table of two finished runs."""
    assert metrics(a) == metrics(b)
    left, right = weights(a), weights(b)
    assert left
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    for trace in (a / "traces").iterdir():
        assert trace.read_bytes() == (b / "traces" / trace.name).read_bytes()
    rows = [json.loads((run / "summary.json").read_text())["rows"] for run in (a, b)]
    assert rows[0] == rows[1]


def events(run: Path, kind: str) -> list[str]:
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [row["message"] for row in rows if row["event"] == kind]
