"""Settings of the process that a run needs: determinism, and signals that only ask it to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def set_determinism(num_threads: int | None) -> None:
    """Same seed, same bits: deterministic kernels, and a fixed number of threads, on which sums depend.

    Args:
        num_threads: of torch. None or 0: as it is.
    """
    # The same as `use_deterministic_algorithms(True, warn_only=True)`, which also imports the compiler: two seconds.
    torch.set_deterministic_debug_mode("warn")
    if num_threads:
        torch.set_num_threads(num_threads)


@contextmanager
def interruptible(ask_to_stop: Callable[[], None]) -> Iterator[None]:
    """Within this block, SIGINT (Ctrl-C) and SIGTERM call `ask_to_stop` and end nothing.

    Python delivers signals to the main thread alone, so in another thread the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    # A shell makes background runs ignore Ctrl-C. That stays so.
    before = {name: handler for name, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for name in before:
            signal.signal(name, lambda signum, frame: ask_to_stop())
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
