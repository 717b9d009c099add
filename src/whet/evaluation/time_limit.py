"""A time limit for code of the user that runs in this process, such as a benchmark's `grade`.

A grader runs in worker processes, because it is a function that they can import. A benchmark is an object with a state,
so its methods run here, and an alarm interrupts them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AGAIN_S = 1.0
"""The alarm repeats after so many seconds, in case the code caught it."""


class TimeLimitPassed(BaseException):
    """The code took too long. No `Exception`, so that the code does not catch it by accident."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupts what runs in it after so many seconds.

    Only the main thread can be interrupted, and only where there are interval timers (not on Windows). Elsewhere there
    is no limit.

    Raises: TimeLimitPassed, inside.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(*_: object) -> None:
        raise TimeLimitPassed

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # once more: the alarm may have come before the line above
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
