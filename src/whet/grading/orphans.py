"""Ends a worker process whose parent died in the middle of a request."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_if_orphaned(timeout_s: float) -> Iterator[None]:
    """Arms an alarm for the time of one request. The parent keeps the clock, and kills the worker long before.

    The alarm's default action is death. It also ends a function that hangs in C code. Without effect on Windows.

    Args:
        timeout_s: the parent's limit of a request, in seconds.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
