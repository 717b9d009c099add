"""Settings of the process that a run needs: determinism, and signals that only ask it to stop."""

from __future__ import annotations

import os
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
    # Without a workspace of its own for each stream, cuBLAS may add up in another order from run to run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # cuDNN's attention has no deterministic gradient, and compiles anew for every shape.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # The same as `use_deterministic_algorithms(True, warn_only=True)`, which also imports the compiler: two seconds.
    torch.set_deterministic_debug_mode("warn")
    # Else every new tensor is written once before it is used: a tenth of an update's time. We read none unwritten.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if num_threads:
        torch.set_num_threads(num_threads)


@contextmanager
def exact_kernels(device: torch.device) -> Iterator[None]:
    """Within this block a GPU computes with deterministic kernels alone, attention's gradient included, or raises.

    Elsewhere an operation that has none only warns, and attention takes a faster gradient. It acts in processes that
    `set_determinism` has prepared.
    """
    if device.type != "cuda" or os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (":4096:8", ":16:8"):
        yield
        return
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def gpu_memory() -> dict[str, float]:
    """`memory/gpu_gib`: the most GiB that torch's tensors took in this process, on all GPUs, since the last call. Empty
    where no GPU is in use."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    peaks = []
    for device in range(torch.cuda.device_count()):
        peaks.append(torch.cuda.max_memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
    return {"memory/gpu_gib": sum(peaks) / 2**30}


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
