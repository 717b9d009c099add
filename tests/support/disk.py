"""Writes do not wait for the disk: no test cuts the power, and a kill loses nothing that was written.

A tiny run calls `fsync` about a hundred times. Each call waits 1 to 20 ms for the disk and takes no CPU. Tests of what
is synced, and before what, watch these calls (`test_files.py`, `trainer/test_checkpoint.py`).
"""

from __future__ import annotations

import os

real_fsync = os.fsync


def without_waiting(descriptor: int) -> None:
    """In place of `os.fsync`. Raises: OSError, where the descriptor is not open."""
    os.fstat(descriptor)


def never_wait() -> None:
    """From here on, in this process."""
    os.fsync = without_waiting
