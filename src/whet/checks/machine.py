"""What this machine is: versions, devices, memory, disk, and the sizes of model that it can train."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil
import torch

from whet.checks.findings import Finding
from whet.distribution import has_extra, version

GIB = 2**30
PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
EXTRAS = (
    "data", "serve", "remote", "endpoint", "vllm", "gym", "ray", "envs", "sciworld", "household", "track", "wandb",
)  # fmt: skip
FLOAT32, BFLOAT16 = (16.0, 4.5), (18.0, 2.5)
"""Bytes a weight by type, where all weights train, and where an adapter does: weights, gradients, Adam's moments, and
for bfloat16 float32 copies."""
FOR_WEIGHTS = 0.6
"""Share of the memory that is for these; activations and keys and values take the rest."""
LEAST_DISK = 2 * GIB
SIZES = (("0.1B", 1e8), ("0.5B", 5e8), ("1.5B", 1.5e9), ("3B", 3e9), ("7B", 7e9), ("14B", 1.4e10), ("32B", 3.2e10))
"""Usual sizes of models, in weights."""


def machine_findings(folder: Path) -> Iterator[Finding]:
    """Findings about this machine.

    Args:
        folder: an existing one, on whose disk runs will be.
    """
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    yield Finding("ok", "versions", f"whet {version()}, Python {platform.python_version()}, {versions}")
    there = [name for name in EXTRAS if has_extra(name)]
    missing = [name for name in EXTRAS if name not in there]
    text = f"extras installed: {', '.join(there) or 'none'}"
    yield Finding(
        "ok", "versions", text + (f"; make setup EXTRAS={','.join(missing)} adds the others" if missing else "")
    )
    cores = usable_cores()
    yield Finding("ok", "machine", f"{cores} cores, torch uses {torch.get_num_threads()} threads")
    memory = psutil.virtual_memory()
    yield from _sizes("cpu", memory.available, FLOAT32)
    for index in range(torch.cuda.device_count()):
        free, _ = torch.cuda.mem_get_info(index)
        yield from _sizes(f"cuda:{index} ({torch.cuda.get_device_name(index)})", free, BFLOAT16)
    free_disk = shutil.disk_usage(folder).free
    if free_disk > LEAST_DISK:
        yield Finding("ok", "machine", f"{free_disk / GIB:.1f} GiB free on disk")
    else:
        text = f"{free_disk / GIB:.1f} GiB free on disk: checkpoints may not fit, so free some or choose another --out"
        yield Finding("warning", "machine", text)


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sizes(device: str, free: int, needs: tuple[float, float]) -> Iterator[Finding]:
    fitting = [[name for name, count in SIZES if count * each <= FOR_WEIGHTS * free] for each in needs]
    largest = [names[-1] if names else "the tiny model alone" for names in fitting]
    yield Finding(
        "ok",
        "machine",
        f"{device}: {free / GIB:.1f} GiB free; all weights train up to {largest[0]}, a LoRA adapter up to {largest[1]} "
        "(estimates, for short texts)",
    )
