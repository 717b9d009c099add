"""What a run asks of its process: the same bits from the same seed, and to be asked before it is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def set_determinism(num_threads: int | None) -> None:
    """Same seed, same bits: deterministic kernels, and a fixed number of threads (sums depend on it)."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    if num_threads:
        torch.set_num_threads(num_threads)


@contextmanager
def interruptible(ask: Callable[[], None]) -> Iterator[None]:
    """Within this block Ctrl-C and a polite kill only ask. Python tells the main thread alone of signals: a run in
    another one is not told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    # A run started in the background of a shell has Ctrl-C ignored for it; that is respected.
    before = {name: handler for name, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for name in before:
            signal.signal(name, lambda signum, frame: ask())
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
