"""The process beside a run: follows it to its end, sends what is left, and gives up where its tracker hangs."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from whet.errors import text_of
from whet.tracking.follow import POLL_S, Feed, TrackSettings, follow
from whet.tracking.state import locked

GIVE_UP_S = 600.0
"""Seconds after the end of a run in which its last lines have to be sent. `whet track` sends what is left."""


def main(run: Path, kind: str) -> int:
    """Follow a run until the process that started this one closes its pipe or ends.

    Returns: the exit code.
    """
    has_ended = _run_ended()
    threading.Thread(target=_give_up, args=(has_ended,), daemon=True).start()
    failures: list[Exception] = []
    try:
        feed = Feed(run, kind, TrackSettings())
        with locked(feed.file, wait=lambda: not has_ended()):
            feed.load()
            follow([feed], has_ended, report=lambda _, error: failures.append(error))
    except Exception as error:
        failures.append(error)
    for failure in failures:
        _log(f"{type(failure).__name__}: {text_of(failure)}")
    if not failures:
        _log(feed.in_words())
    return 1 if failures else 0


def _run_ended() -> Callable[[], bool]:
    """Whether the run has ended: its pipe to this process is closed, or another process is the parent now."""
    parent = os.getppid()

    def has_ended() -> bool:
        if os.getppid() != parent:
            return True
        is_ready, _, _ = select.select([0], [], [], 0)
        return bool(is_ready) and not os.read(0, 1)

    return has_ended


def _give_up(has_ended: Callable[[], bool]) -> None:
    """End this process where its tracker hangs after the run's end."""
    while not has_ended():
        time.sleep(POLL_S)
    time.sleep(GIVE_UP_S)
    _log(f"gave up {GIVE_UP_S:.0f} s after the end of the run")
    os._exit(1)


def _log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stderr.flush()
