"""Limits of a child: time, memory, processes, files."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

SCRATCH = "/scratch"
"""The only folder that a child can write to: in memory, of its own, empty at first, and gone with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one child."""

    wall_s: float = 10.0
    """Wall-clock seconds. Each of its processes gets as many of CPU time, rounded up, and one more."""
    memory_gib: float = 2.0
    """Address space of each of its processes, including that of the warm parent (some 0.3). 0: no limit."""
    processes: int = 1
    """It may have so many at a time, itself and threads included. Linux before 5.14 counts the user's others too."""
    scratch_mib: float = 16.0
    """All files in `SCRATCH` together."""
    open_files: int = 64


def set_limits(limits: Limits) -> None:
    """Sets the caller's limits that any POSIX system has."""
    import resource  # Windows has none

    cpu_s, file_size = math.ceil(limits.wall_s) + 1, int(limits.scratch_mib * 2**20)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = int(limits.memory_gib * 2**30)
    if memory and sys.platform == "linux":  # macOS refuses
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
