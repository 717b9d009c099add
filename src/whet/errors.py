"""Exceptions that users can cause: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import sys


class WhetError(Exception):
    """Base of the errors that the command line shows as their sentence alone, without a traceback."""

    exit_code = 1
    """Of the command that fails with it. 2: the request is impossible. 1: it began and could not continue."""


class RunError(WhetError, RuntimeError):
    """A run cannot start, continue or be saved: one sentence that says why and what to do."""


class ConstraintError(WhetError):
    """The form that a reply has to have cannot be followed: one sentence that says why."""


class TooManyFailures(WhetError):
    """A run ends for a cause such as failures past a budget. Its work so far stands, and is saved."""


def text_of(error: BaseException) -> str:
    """An error's text. A user's class may break even there."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def is_out_of_memory(error: BaseException) -> bool:
    """Python's error, CUDA's (a class of torch's, loaded if it was raised), or torch's on a CPU (a RuntimeError)."""
    torch = sys.modules.get("torch")
    kinds = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in text_of(error)
