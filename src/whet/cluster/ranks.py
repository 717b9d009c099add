"""Which ranks a run has, by its settings and by how its process was started."""

from __future__ import annotations

import os
from typing import Protocol

from whet.cluster.ray_ranks import RayRanks
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig
from whet.errors import RunError
from whet.trainer.sharded import Ranks


class StartedRanks(Ranks, Protocol):
    """Ranks that torchrun has started, for one run after another."""

    def start(self, num_threads: int | None) -> None:
        """Prepare them for a run."""
        ...


HERE: StartedRanks | None = None
"""The ranks of this process, if torchrun started it through `whet.cluster`."""


def ranks_of(settings: ClusterConfig, num_threads: int | None) -> Ranks | None:
    """The ranks that train a run's policies. None: the run's own process does.

    Args:
        num_threads: CPU threads of each rank. None: torch's choice.
    Raises: ConfigError where Ray cannot start them, or the settings are not those of this torchrun.
    """
    here = HERE
    if here is None:
        return RayRanks(settings, num_threads) if settings.ranks else None
    if settings.ranks != here.size:
        raise ConfigError(
            f"cluster.ranks = {settings.ranks}, but torchrun started {here.size} processes: leave cluster.ranks out"
        )
    for name in ("workers", "servers"):
        if getattr(settings, name):
            raise ConfigError(
                f"torchrun starts ranks only: for cluster.{name} start `whet train` itself, which asks Ray"
            )
    here.start(num_threads)
    return here


def check_launcher() -> None:
    """Raises: RunError where torchrun started this program, and not through `whet.cluster`."""
    if "TORCHELASTIC_RUN_ID" in os.environ and HERE is None:
        raise RunError(
            f"torchrun started this program {os.environ.get('WORLD_SIZE', 'several')} times, each of which would be a "
            "run of its own: start ranks with `torchrun --nproc-per-node N -m whet.cluster train ...`"
        )
