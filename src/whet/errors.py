"""What users can cause, as exceptions: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations


class WhetError(Exception):
    """Base of the errors that the command line shows as their sentence alone, without a traceback."""

    exit_code = 1
    """Of the command that fails with it. 2: what was asked for cannot be; 1: it began and could not go on."""
