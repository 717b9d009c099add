"""The run folder: the files of a run, a lock that keeps two runs out of one folder, and a size limit for traces."""

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
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import torch

from whet.distribution import version
from whet.errors import RunError
from whet.files import ASIDE, write_link
from whet.run_folder.files import BEST, TRACKING, check_places, disk_error, write_atomic
from whet.run_folder.logs import EVENTS, LOGS, Logs
from whet.types import shortened

ROUNDS = "rounds.json"
"""The outcomes of the episodes that a policy explored, round by round."""
SELF_TALK = "self_talk.jsonl"
"""Records of self-correction that a policy learns from, one a line."""
CRITIQUES = "critiques.jsonl"
"""Accepted critiques with their questions and answers, for a critic's warm start."""
FILES = (
    "config.yaml",
    "env.json",
    "report_spec.json",
    *LOGS,
    "events.jsonl",
    "summary.json",
    "report.html",
    "stalls.txt",
    ROUNDS,
    SELF_TALK,
    CRITIQUES,
    "dropped.jsonl",
    "mathcritique.json",
    "trl.jsonl",
    "first_errors.json",
    "manifest.json",
)
FOLDERS = ("checkpoints", "traces", "eval")
"""Files and folders that a run writes into its folder."""


class RunFolder:
    """Appends metrics, events and traces to its logs, and locks out other processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = Logs(path)
        self.max_trace_bytes = 1_000_000
        """Size of one episode in the traces, as `RunConfig.max_trace_bytes`."""
        self._lock: int | None = None
        self._folder: int | None = None
        self._was_there = True

    def acquire(self) -> None:
        """Lock the folder for this process.

        Raises: RunError where another process holds it, it cannot be written, or links lead out of it.
        """
        check_places(self.path, (*FILES, ".lock", "checkpoints/latest"), FOLDERS)
        self._was_there = self.path.exists()
        try:
            (self.path / "traces").mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / ".lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise RunError(
                f"cannot write into {self.path}: {error.strerror}; allow it, or choose another --out"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._folder = os.open(self.path, os.O_RDONLY)  # a lock that nobody can delete
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise RunError(
                f"another process is writing into {self.path}; wait for it, or choose another --out"
            ) from error

    def release(self) -> None:
        """Close the logs and unlock the folder."""
        self.logs.close()
        for descriptor in (self._lock, self._folder):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self._folder = None

    def metrics(self, phase: str, step: int, values: Mapping[str, float | None]) -> None:
        """Append the metrics of a step.

        Raises: RunError where one is not finite.
        """
        broken = [name for name, value in values.items() if value is not None and not math.isfinite(value)]
        if broken:
            raise RunError(
                f"{phase} step {step}: {', '.join(broken)} came out as no finite number: the weights have diverged, so "
                "lower the learning rate; the last checkpoint is whole"
            )
        self.logs.append("metrics.jsonl", {"phase": phase, "step": step, **values})

    def event(self, level: str, event: str, message: str, **extra: Any) -> None:
        """Append an event with the time.

        Args:
            level: info, warning or error.
            event: its kind, one word.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.logs.append(EVENTS, {"time": now, "level": level, "event": event, "message": message, **extra})

    def traces(self, phase: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append the traces of episodes, none above `max_trace_bytes`."""
        for row in rows:
            self.logs.append(f"traces/{phase}.jsonl", trace_within(row, self.max_trace_bytes))

    def write(self, name: str, text: str) -> None:
        """Write a whole small file: to another name first, then renamed."""
        write_atomic(self.path / name, text)

    def lengthen(self, config: str) -> None:
        """Make a finished run unfinished, with these settings. After a kill in between, the longer run resumes."""
        self.write("config.yaml", config)
        for name in ("summary.json", "report.html", BEST):
            (self.path / name).unlink(missing_ok=True)

    def link_best(self, place: Path) -> str | None:
        """Make `best` a link to a policy's folder in a checkpoint. It is relative, so that copies of the run are whole
        and nothing is stored twice.

        Returns: None, or a sentence on why there is no link.
        """
        link = self.path / BEST
        if link.exists() and not link.is_symlink():
            return f"{link} is none of the run's, so it stays as it is: the best policy is in {place}"
        try:
            write_link(link, place.relative_to(self.path))
        except OSError as error:
            return f"{link} could not be made a link ({error.strerror or error}): the best policy is in {place}"
        return None

    def clear(self) -> None:
        """Delete the run's files, and nothing else. The folder has to be acquired. `summary.json` goes first and
        `config.yaml` last, so that after a kill the run can start again.

        Raises: RunError where something cannot be deleted.
        """
        self.logs.close()
        try:
            (self.path / "summary.json").unlink(missing_ok=True)
            if (self.path / BEST).is_symlink():
                (self.path / BEST).unlink()
            for name in FOLDERS:
                if (self.path / name).exists():
                    shutil.rmtree(self.path / name)
            # A tracker may write there still. It is no part of the run, so what is left does not matter.
            shutil.rmtree(self.path / TRACKING, ignore_errors=True)
            for name in sorted(FILES, key=lambda name: name == "config.yaml"):
                for aside in self.path.glob(f".{name}.*{ASIDE}"):  # left by a killed process
                    aside.unlink()
                (self.path / name).unlink(missing_ok=True)
            (self.path / "traces").mkdir()
        except OSError as error:
            raise disk_error(self.path, error) from error

    def discard(self) -> None:
        """Delete the files of a run that made no step, and the folder if the run created it. So the next run starts
        afresh. Errors are ignored, because the reason for discarding the run is the one to report."""
        with suppress(RunError, OSError):
            self.clear()
            (self.path / "traces").rmdir()
            (self.path / ".lock").unlink()
            if not self._was_there:
                self.path.rmdir()

    def read_traces(self, phase: str) -> list[dict[str, Any]]:
        return self.logs.rows(f"traces/{phase}.jsonl")

    def read_metrics(self) -> list[dict[str, Any]]:
        return self.logs.rows("metrics.jsonl")


def environment(seed: int, device: str) -> dict[str, Any]:
    """Versions, hardware and command: what a reader needs to judge or repeat the run's numbers."""
    packages = ("torch", "transformers", "tokenizers", "peft", "math-verify")
    root = Path(__file__).parent
    try:
        git_command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        commit = subprocess.run(git_command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        commit = ""
    return {
        "whet": version(),
        **{name: package_version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(0) if device.startswith("cuda") else platform.processor() or "cpu",
        "num_threads": torch.get_num_threads(),
        "num_cores": os.cpu_count(),
        "commit": commit if commit and "site-packages" not in str(root) else None,
        "seed": seed,
        "command": command_line(),
    }


def command_line() -> str:
    """The command that started this process: whet, or a script that imports it."""
    program = Path(sys.argv[0])
    is_module = program.parts[-2:] == ("whet", "__main__.py") or program.parts[-3:] == ("whet", "cli", "__main__.py")
    is_ours = program.name == "whet" or is_module
    return shlex.join(["whet", *sys.argv[1:]] if is_ours else ["python", *sys.argv])


# --- the size of traces -----------------------------------------------------------------------------------------------


MAX_CHAR_BYTES = 6
"""Bytes of a character in JSON, at most: a control character is `\\u0000`."""
SHORTEST = 64
"""Texts of at most so many characters are never cut."""


def trace_within(row: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any]:
    """The trace. If it is too large, the middle of its longest texts is left out.

    Args:
        max_bytes: of its line of JSON. A trace stays above it if its texts exceed it at `SHORTEST` characters each.
    """
    if MAX_CHAR_BYTES * _num_chars(row) <= max_bytes:  # most are small, and need not be serialised twice
        return row
    max_chars, cut = max_bytes, row
    while _num_bytes(cut) > max_bytes and max_chars > SHORTEST:
        max_chars = max(SHORTEST, max_chars // 2)
        cut = _cut(row, max_chars)
    return cut


def _num_bytes(row: Any) -> int:
    return len(json.dumps(row, ensure_ascii=False, default=str).encode(errors="replace"))


def _num_chars(value: Any) -> int:
    """The number of characters in all texts of a value. Any other value counts 8."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_num_chars(name) + _num_chars(inner) for name, inner in value.items())
    return sum(map(_num_chars, value)) if isinstance(value, list | tuple) else 8


def _cut(value: Any, max_chars: int) -> Any:
    """A copy with at most `max_chars` characters of each text."""
    if isinstance(value, str):
        return shortened(value, max_chars)
    if isinstance(value, Mapping):
        return {name: _cut(inner, max_chars) for name, inner in value.items()}
    return [_cut(inner, max_chars) for inner in value] if isinstance(value, list | tuple) else value
