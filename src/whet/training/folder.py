"""The run folder: what a run leaves on disk, and the guard that keeps two runs out of one folder."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import torch

from whet.errors import WhetError

FILES = (
    "config.yaml", "env.json", "metrics.jsonl", "events.jsonl", "summary.json", "report.html", "answers.jsonl",
)  # fmt: skip
"""What a run leaves in its folder, beside `checkpoints/`, `traces/` and `eval/`."""


class RunError(WhetError, RuntimeError):
    """A run cannot start, go on or be saved: one sentence that says why and what to do."""


class RunFolder:
    """Appends metrics, events and traces; knows their lengths, so that a resumed run can cut what came after its
    checkpoint and write the same bytes again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, TextIO] = {}
        self._lock: TextIO | None = None

    def acquire(self) -> None:
        """Take the folder for this process.

        Raises: RunError where another process holds it, or it cannot be written.
        """
        try:
            (self.path / "traces").mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise RunError(f"cannot write into {self.path}: {error.strerror}; choose another --out") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(
                f"another process is writing into {self.path}; wait for it, or choose another --out"
            ) from error

    def release(self) -> None:
        for file in [*self._open.values(), *([self._lock] if self._lock else [])]:
            file.close()
        self._open.clear()
        self._lock = None

    def metrics(self, phase: str, step: int, values: Mapping[str, float | None]) -> None:
        broken = [name for name, value in values.items() if value is not None and not math.isfinite(value)]
        if broken:
            raise RunError(
                f"{phase} step {step}: {', '.join(broken)} came out as no finite number: the weights have diverged, so "
                "lower the learning rate; the last checkpoint is whole"
            )
        self._append("metrics.jsonl", {"phase": phase, "step": step, **values})

    def event(self, level: str, event: str, message: str, **extra: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._append("events.jsonl", {"time": now, "level": level, "event": event, "message": message, **extra})

    def traces(self, phase: str, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._append(f"traces/{phase}.jsonl", row)

    def write(self, name: str, text: str) -> None:
        """A whole small file, aside and renamed."""
        target = self.path / name
        try:
            aside = target.with_name(f".{target.name}.tmp")
            aside.write_text(text, encoding="utf-8")
            aside.replace(target)
        except OSError as error:
            raise disk_error(target, error) from error

    def lengths(self) -> dict[str, int]:
        """Bytes of every log so far."""
        for file in self._open.values():
            file.flush()
        names = ["metrics.jsonl", *sorted(f"traces/{p.name}" for p in (self.path / "traces").glob("*.jsonl"))]
        return {name: (self.path / name).stat().st_size for name in names if (self.path / name).exists()}

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Back to these lengths; logs not named did not exist then. Events stay: they say what really happened."""
        for name in self.lengths():
            if name in lengths:
                os.truncate(self.path / name, lengths[name])
            else:
                (self.path / name).unlink()

    def clear(self) -> None:
        """Delete what a run wrote here, and nothing else. The folder has to be acquired."""
        for name in ("checkpoints", "traces", "eval"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in FILES:
            (self.path / name).unlink(missing_ok=True)
        (self.path / "traces").mkdir()

    def read_metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        self.lengths()
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        try:
            if name not in self._open:
                self._open[name] = (self.path / name).open("a", encoding="utf-8", errors="backslashreplace")
            self._open[name].write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            self._open[name].flush()
        except OSError as error:
            raise disk_error(self.path / name, error) from error


def disk_error(path: Path, error: OSError) -> RunError:
    return RunError(
        f"could not write {path}: {error.strerror}; every whole checkpoint is kept: make room, then `whet resume` the "
        "run"
    )


def environment(seed: int, device: str) -> dict[str, Any]:
    """What a reader needs to judge or repeat the run's numbers."""
    packages = ("whet", "torch", "transformers", "tokenizers", "peft", "math-verify")
    root = Path(__file__).parent
    try:
        asked = ["git", "-C", str(root), "rev-parse", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        commit = ""
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(0) if device.startswith("cuda") else platform.processor() or "cpu",
        "num_threads": torch.get_num_threads(),
        "num_cores": os.cpu_count(),
        "commit": commit if commit and "site-packages" not in str(root) else None,
        "seed": seed,
        "command": shlex.join(["whet", *sys.argv[1:]]),
    }
