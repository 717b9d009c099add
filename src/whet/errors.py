"""What users can cause, as exceptions: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations


class WhetError(Exception):
    """Base of the errors that the command line shows as their sentence alone, without a traceback."""

    exit_code = 1
    """Of the command that fails with it. 2: what was asked for cannot be; 1: it began and could not go on."""


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own, CUDA's (a class of torch's), and torch's on a CPU (a RuntimeError)."""
    kind = type(error).__name__
    return isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in str(error)
