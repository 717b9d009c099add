"""Whole runs whose rollouts workers make: any number of them, killed or not, gives the bits of units in process.

python tests/cluster/worker_cases.py                        # all methods below: 1, 2 and 4 workers, then killed
python tests/cluster/worker_cases.py grpo --workers 2 --kills 3
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import same_numbers
from support.outcome import outcome
from whet.cluster import workers as cluster_workers
from whet.run_folder.logs import Logs

METHODS = ("grpo", "bapo", "critique_rl", "agent_gradient")
"""Of `same_numbers.RUNS`. agent_grpo is a preset of agent_gradient."""
UNIT = 3


def run(name: str, folder: Path, num_workers: int, *more: str, kills: int = 0) -> dict[str, Any]:
    """Makes one of `same_numbers.RUNS` in units.

    Args:
        kills: workers that are killed meanwhile, one each time that all are there.
    Returns: metrics of all steps, and digests of the weights that the run ends with.
    """
    has_ended = threading.Event()
    killer = threading.Thread(target=_kill, args=(kills, has_ended))
    killer.start()
    try:
        same_numbers.run(name, folder, f"cluster.unit={UNIT}", f"cluster.workers={num_workers}", *more)
    finally:
        has_ended.set()
        killer.join()
    return outcome(folder)


def deaths(folder: Path) -> list[Mapping[str, Any]]:
    """The events of workers that died."""
    return [event for event in Logs(folder).rows("events.jsonl") if event.get("event") == "worker_died"]


POOLS: list[Any] = []


def _kill(count: int, has_ended: threading.Event) -> None:
    rng, killed = random.Random(0), set[int]()
    while len(killed) < count and not has_ended.wait(0.05):
        members = [m for pool in POOLS if pool._processes is not None for m in pool._processes.members]
        busy = [m.facts["pid"] for m in members if (m.taken or m.ahead) and m.facts["pid"] not in killed]
        if busy:
            killed.add(pid := rng.choice(busy))
            os.kill(pid, signal.SIGKILL)
            time.sleep(1)


def watch_pools() -> None:
    """Keeps the pools that runs make, so that their workers can be found."""
    make = cluster_workers.RayWorkers.__init__

    def noted(self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        POOLS[:] = [self]

    cluster_workers.RayWorkers.__init__ = noted  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=2)
    arguments = parser.parse_args()
    watch_pools()
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.methods:
            expected = run(name, Path(place) / f"{name}-0", 0)
            for count in arguments.workers:
                started = time.perf_counter()
                is_same = run(name, Path(place) / f"{name}-{count}", count) == expected
                print(
                    f"{name}: {count} workers, same bits: {is_same}, {time.perf_counter() - started:.0f} s", flush=True
                )
            folder = Path(place) / f"{name}-killed"
            is_same = run(name, folder, 2, "cluster.restarts=50", kills=arguments.kills) == expected
            print(f"{name}: 2 workers, {len(deaths(folder))} killed, same bits: {is_same}", flush=True)


if __name__ == "__main__":
    main()
