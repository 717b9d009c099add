"""Keeps code that a run calls (environments, reward terms, plug-ins) from ending the run's process.

Such code runs in threads of the run's process, where `os._exit(0)` would end the run with the exit code of success.
Ends of a process below Python (`_exit` of the C library, a signal) are out of reach here.
"""

from __future__ import annotations

import os
import posix
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from whet.errors import WhetError

NAMES = ("_exit", "abort")
"""Functions of `os` that end the process at once, past every `except` and `finally`."""


class ProcessExit(WhetError, RuntimeError):
    """Code that a run called tried to end the process."""


_lock = threading.Lock()
_num_blocks = 0
_real: dict[str, Callable[..., NoReturn]] = {name: getattr(os, name) for name in NAMES}


@contextmanager
def exits_refused() -> Iterator[None]:
    """Within this block `os._exit` and `os.abort` raise in the thread that calls them. Forked children may end.

    Blocks may be nested, and several threads may be in one.

    Raises: ProcessExit where such a call, or an exception that is no `Exception`, leaves the block. `sys.exit(0)` is no
        success of a run, and `CancelledError` has no message. A `KeyboardInterrupt` passes.
    """
    _count(+1)
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ProcessExit(
            f"code that the run called ended it by {error!r}{_place(error)}: raise another error there"
        ) from error
    finally:
        _count(-1)


def _count(change: int) -> None:
    """Puts the refusals in place with the first block, and the real functions back with the last."""
    global _num_blocks
    with _lock:
        _num_blocks += change
        if _num_blocks == (1 if change > 0 else 0):
            for name, real in _real.items():
                function = _refusing(name, real, os.getpid()) if change > 0 else real
                setattr(os, name, function)
                setattr(posix, name, function)


def _refusing(name: str, real: Callable[..., NoReturn], pid: int) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any) -> NoReturn:
        if os.getpid() != pid:  # a forked child
            real(*arguments)
        caller = sys._getframe(1)
        called = f"os.{name}({', '.join(map(repr, arguments))})"
        raise ProcessExit(
            f"{called} in {caller.f_code.co_filename}, line {caller.f_lineno}, would end the run's process: raise an "
            "error there"
        )

    return refuse


def _place(error: BaseException) -> str:
    """Where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" in {trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
