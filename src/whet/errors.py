"""What users can cause, as exceptions: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import sys


class WhetError(Exception):
    """Base of the errors that the command line shows as their sentence alone, without a traceback."""

    exit_code = 1
    """Of the command that fails with it. 2: what was asked for cannot be; 1: it began and could not go on."""


class RunError(WhetError, RuntimeError):
    """A run cannot start, go on or be saved: one sentence that says why and what to do."""


class TooManyFailures(WhetError):
    """A play has ended for cause, such as failures past a budget. What was done before it stands, and is saved."""


def text_of(error: BaseException) -> str:
    """What an error says. A class of a user's own may break even there."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own, CUDA's (a class of torch's, loaded if it was raised), and torch's on a CPU (a RuntimeError)."""
    torch = sys.modules.get("torch")
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in text_of(error)
