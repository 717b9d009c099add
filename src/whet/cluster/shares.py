"""How many GPUs a run's processes ask for, and which of them is kept for the run's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from whet.config.parts import ClusterConfig


def trains_beside_servers(settings: ClusterConfig) -> bool:
    """Whether the run's own process trains, with the first GPU where there is one, and servers must not take that."""
    return bool(settings.servers and not settings.ranks)


def num_asked(settings: ClusterConfig) -> int:
    """GPUs of a run's other processes, one each. On a CPU, places among its cores."""
    return settings.ranks + settings.workers + settings.servers


def what_is_asked(settings: ClusterConfig, what: str) -> str:
    """A clause: cluster.ranks = 3 and cluster.workers = 2 ask for 5 GPUs."""
    counts = {name: getattr(settings, name) for name in ("ranks", "workers", "servers")}
    named = " and ".join(f"cluster.{name} = {count}" for name, count in counts.items() if count)
    total = num_asked(settings)
    verb = "asks" if list(counts.values()).count(0) == 2 else "ask"
    return f"{named} {verb} for {total} {what}{'s' if total > 1 else ''}"


@contextmanager
def without_first_gpu() -> Iterator[None]:
    """Ray that is started within knows all GPUs of this machine but the first, on which this process trains."""
    import torch

    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = before.split(",") if before else [str(number) for number in range(torch.cuda.device_count())]
    if not visible:
        yield
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[1:])
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
