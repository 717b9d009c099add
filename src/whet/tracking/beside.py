"""Trackers beside a run: each is a process of its own, which the run starts and never waits for.

The process reads the run's files, and writes to a log in `tracking/`. The one pipe is its standard input, into which
the run writes nothing: when it closes, the run has ended.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whet.run_folder.files import TRACKING
from whet.tracking.protocol import missing

_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that still send what an earlier run of this process has written."""


@dataclass
class Beside:
    """The trackers of a run in progress."""

    run: Path
    kinds: Sequence[str]
    warn: Callable[[str], None]
    """Is given a sentence on each tracker that cannot start, or dies."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start a process for each tracker. One that cannot start is reported, and the run goes on."""
        _left_behind[:] = [process for process in _left_behind if process.poll() is None]
        for kind in dict.fromkeys(self.kinds):
            if problem := missing(kind):
                self.warn(f"{problem}; the run goes on without it")
                continue
            try:
                self._processes[kind] = self._start(kind)
            except OSError as error:
                self.warn(f"the tracker {kind} cannot start ({error.strerror or error}); the run goes on without it")

    def look(self) -> None:
        """Report trackers that have died since, each once. Never waits."""
        for kind, process in list(self._processes.items()):
            if process.poll() is not None:
                del self._processes[kind]
                _close(process)
                self.warn(
                    f"the tracker {kind} {_end_of(process.returncode)}{self._last_line(kind)}; the run goes on without "
                    f"it: see {self._log(kind)}, and `whet track {self.run} --to {kind}` sends the rest"
                )

    def close(self) -> None:
        """Let the trackers send what is left, and end. Never waits."""
        self.look()
        for process in self._processes.values():
            _close(process)
            _left_behind.append(process)
        self._processes = {}

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        (self.run / TRACKING).mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        log = os.open(self._log(kind), flags, 0o666)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "whet.tracking", str(self.run.absolute()), kind],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the run's terminal is not for it
            )
        finally:
            os.close(log)

    def _log(self, kind: str) -> Path:
        return self.run / TRACKING / f"{kind}.log"

    def _last_line(self, kind: str) -> str:
        """The last line of a tracker's log, in brackets."""
        try:
            with self._log(kind).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last = re.sub(r"^[\d-]{10} [\d:]{8} ", "", next((line.strip() for line in reversed(lines) if line.strip()), ""))
        return f" ({last[:300]})" if last else ""


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "it has a pipe"
    process.stdin.close()


def _end_of(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
