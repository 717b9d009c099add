"""Reports rollouts that make no progress, with the service they wait for and all thread stacks."""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)


class Watchdog:
    """Watches one call of a driver at a time.

    Args:
        seconds: without progress, after which it reports, and again after each further such time. 0: never.
        say: called with the report, from the watchdog's thread.
        stacks: the file to which the stacks of all threads are added. None: they are not written.
    """

    def __init__(self, seconds: float, say: Callable[[str], None] = logger.warning, stacks: Path | None = None) -> None:
        self.seconds, self.say, self.stacks = seconds, say, stacks
        self._since, self._waits_for = time.monotonic(), ""

    def beat(self, service: str) -> None:
        """The rollouts make progress, and are about to ask or wait for this service."""
        self._since, self._waits_for = time.monotonic(), service

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the rollouts run."""
        if not self.seconds:
            yield
            return
        over = threading.Event()
        self.beat("")
        thread = threading.Thread(target=self._watch, args=(over,), name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        spoken = 0
        while not over.wait(min(1.0, self.seconds / 4)):
            quiet = time.monotonic() - self._since
            if quiet < self.seconds:
                spoken = 0
            elif quiet >= self.seconds * (spoken + 1):
                spoken += 1
                self._speak(quiet)

    def _speak(self, quiet: float) -> None:
        hint = ""
        if self.stacks is not None:
            with self.stacks.open("a", encoding="utf-8") as file:
                file.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S')}: waiting for {self._waits_for}\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            hint = f"; what every thread is doing is in {self.stacks}"
        self.say(f"nothing has come from the service {self._waits_for!r} for {quiet:.0f} s{hint}")
