"""Synchronous and asynchronous training with 8 to 1,024 workers: the run's own scheduler under a simulated clock.

    python benchmarks/scale.py             # real workers that sleep beside their simulation, then the simulation
    python benchmarks/scale.py --simulate  # the simulation alone; the real runs stay as the result file has them

Both parts drive `AsyncUnits` and `UnitSchedule`, which `whet train` drives. Real workers are Ray's, by the library's
`Processes`. In the simulation the clock, the workers and the trainer are numbers.

A unit takes 30 s on average (lognormal, standard deviation 0.6 of the mean); 1 % take six times as long; none takes
over 4 times the mean. A step trains on 4 units a worker. An update takes as long as half of these (or as all of them),
and new weights take 2 s. A worker dies once in 24 h, loses its unit, and is back a minute later. The run's own process
spends 1.7 ms on a unit (`cluster_cost.py`). Real runs have the same figures in a 75th of the time, and nobody dies.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from study import RESULTS, machine_now
from whet.cluster.ahead import Turns
from whet.cluster.processes import Processes
from whet.cluster.ray_start import connect, facts_of_this_process
from whet.config.parts import ClusterConfig, EngineConfig, FaultsConfig
from whet.rollout.async_units import AsyncUnits
from whet.rollout.runtime import Runtime
from whet.rollout.unit_schedule import UnitSchedule
from whet.rollout.units import UnitResult

UNIT_S, SPREAD, MOST, SLOW_SHARE, SLOWER = 30.0, 0.6, 4.0, 0.01, 6.0
UNITS_A_WORKER, PUSH_S, CONTROLLER_S, MTBF_S, RESTART_S = 4, 2.0, 0.0017, 86400.0, 60.0
NUM_STEPS, FIRST, BEFORE_LAST = 16, 3, 4
"""Steps of a run. Work is counted from the end of step FIRST to BEFORE_LAST steps before the end, where all regimes run
as they do for ever."""
SHARES = (0.5, 1.0)
"""Of the time of an update, in that of a step's rollouts."""
FASTER = 75.0
"""Real runs take so much less time."""
REGIMES = {"synchronous": 0, "max_age 1": 1, "max_age 2": 2}


def durations(count: int, seed: int) -> list[float]:
    """Seconds of each unit."""
    rng = random.Random(seed)
    sigma = math.sqrt(math.log(1 + SPREAD**2))
    drawn = [rng.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(count)]
    drawn = [value * (SLOWER if rng.random() < SLOW_SHARE else 1.0) for value in drawn]
    return [UNIT_S * min(MOST, value) for value in drawn]


@dataclass
class Work:
    """What the workers of a run did."""

    useful: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each unit that came home."""
    lost_s: float = 0.0
    updated: list[float] = field(default_factory=list)
    """The end of each update."""
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    """The log."""
    held_s: float = 0.0

    def figures(self, workers: int) -> dict[str, float]:
        """Shares of the workers' time, ages in steps, seconds."""
        begun, ended = self.updated[FIRST - 1], self.updated[-1 - BEFORE_LAST]
        inside = sum(max(0.0, min(end, ended) - max(begin, begun)) for begin, end in self.useful)
        ages = [row["step"] - begun_in for row in self.rows for _, begun_in in row["units"]]
        return {
            "workers": workers,
            "efficiency": inside / (workers * (ended - begun)),
            "step_s": (ended - begun) / (len(self.updated) - BEFORE_LAST - FIRST),
            "age_mean": sum(ages) / len(ages),
            "age_max": max(ages),
            "lost": self.lost_s / (self.lost_s + sum(end - begin for begin, end in self.useful)),
            "held_s_a_step": self.held_s / len(self.updated),
        }


class SimulatedWorkers:
    """Workers of a clock that only counts, as a `UnitPool`.

    Args:
        unit_s: seconds of each unit.
        update_s: seconds of an update.
        mtbf_s: mean seconds between two deaths of a worker. None: none dies.
    """

    def __init__(
        self, workers: int, unit_s: Sequence[float], update_s: float, push_s: float, controller_s: float,
        mtbf_s: float | None, seed: int,
    ) -> None:  # fmt: skip
        self.unit_s, self.update_s, self.push_s, self.controller_s, self.mtbf_s = (
            unit_s, update_s, push_s, controller_s, mtbf_s,
        )  # fmt: skip
        self.now = self.busy_until = 0.0
        self.trained_at = math.inf
        """When the update under way ends."""
        self.work, self.rng = Work(), random.Random(seed)
        self.idle = list(range(workers))
        self.held = [-1] * workers
        """The weights that each worker has."""
        self.version = 0
        self._events: list[tuple[float, int, int, float]] = []
        """Time, worker, unit (-1: it is back) and when the unit began; a negative begin is that of a death."""
        self._turn: Callable[[float], None] = lambda wait_s: None

    def clock(self) -> float:
        return self.now

    def renew(self) -> None:
        self.version += 1

    def has_room(self) -> bool:
        return bool(self.idle)

    def begin(self, unit: int, calls: Any) -> None:
        worker = self.idle.pop()
        self.busy_until = begun = max(self.now, self.busy_until) + self.controller_s
        if self.held[worker] != self.version:
            self.held[worker], begun = self.version, begun + self.push_s
        end = begun + self.unit_s[unit]
        dies = begun + self.rng.expovariate(1 / self.mtbf_s) if self.mtbf_s else math.inf
        heapq.heappush(self._events, (min(end, dies), worker, unit, begun if end <= dies else -begun))

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        if not self._events or self._events[0][0] > self.trained_at:
            self.now = self.trained_at
            return []
        self.now, worker, unit, begun = heapq.heappop(self._events)
        if unit < 0:
            self.idle.append(worker)
            return []
        if begun >= 0:
            self.idle.append(worker)
            self.work.useful.append((begun, self.now))
            return [(unit, UnitResult([], [], {}))]
        self.work.lost_s += self.now + begun
        self.held[worker] = -1
        heapq.heappush(self._events, (self.now + RESTART_S, worker, -1, 0.0))
        return [(unit, None)]

    def go_on(self, turn: Callable[[float], None]) -> None:
        self._turn, self.trained_at = turn, self.now + self.update_s

    def pause(self) -> None:
        while self.now < self.trained_at < math.inf:
            self._turn(0.0)
        self.trained_at = math.inf

    def train(self) -> None:
        """Until the update is made."""
        self.pause()
        self.work.updated.append(self.now)


class Sleeper:
    """A Ray worker whose service sleeps."""

    def facts(self) -> Any:
        return facts_of_this_process()

    def start(self) -> None:
        """It has nothing to make."""

    def update_weights(self, seconds: float) -> None:
        time.sleep(seconds)

    def run(self, seconds: float) -> tuple[float, float]:
        """When it began and ended, by this machine's clock."""
        begun = time.time()
        time.sleep(seconds)
        return begun, time.time()


class SleepingWorkers:
    """Real workers, as a `UnitPool`. Arguments as those of `SimulatedWorkers`."""

    def __init__(self, ray: Any, workers: int, unit_s: Sequence[float], update_s: float, push_s: float) -> None:
        actor = ray.remote(Sleeper).options(num_cpus=0)
        self.processes = Processes(ray, actor.remote, workers, restarts=0, kind="worker", tell=print)
        self.unit_s, self.update_s, self.push_s, self.work = unit_s, update_s, push_s, Work()
        self._turns: Turns | None = None

    clock = staticmethod(time.time)

    def renew(self) -> None:
        for member in self.processes.members:
            member.actor.update_weights.remote(self.push_s)

    def has_room(self) -> bool:
        return bool(self.processes.idle)

    def begin(self, unit: int, calls: Any) -> None:
        self.processes.begin(unit, self.processes.idle[0], (self.unit_s[unit],))

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        ended = self.processes.ended(wait_s)
        self.work.useful += [answer for _, _, answer in ended]
        return [(unit, UnitResult([], [], {})) for unit, _, _ in ended]

    def go_on(self, turn: Callable[[float], None]) -> None:
        self._turns = Turns(turn)

    def pause(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.stop()

    def train(self) -> None:
        time.sleep(self.update_s)
        self.work.updated.append(time.time())


def run(pool: SimulatedWorkers | SleepingWorkers, workers: int, max_age: int) -> dict[str, float]:
    """A run to its end, and its figures."""
    schedule = UnitSchedule(UNITS_A_WORKER * workers, max_age, NUM_STEPS)
    runtime = Runtime({}, lambda batch: [], EngineConfig(), faults=FaultsConfig(stall_s=0))
    units = AsyncUnits(schedule, pool, runtime, lambda unit: [], pool.work.rows.append, pool.clock)
    for step in range(1, NUM_STEPS + 1):
        _, _, metrics = units.next_batch(step)
        pool.work.held_s += metrics["time/held"]
        units.go_on()
        pool.train()
    pool.pause()
    return pool.work.figures(workers)


def simulated(workers: int, max_age: int, share: float, *, seed: int = 0, faster: float = 1.0) -> dict[str, float]:
    """Args: faster: than the figures above, and nobody dies, as in a real run."""
    unit_s = [seconds / faster for seconds in durations(NUM_STEPS * UNITS_A_WORKER * workers, seed)]
    update_s, mtbf_s = share * UNIT_S * UNITS_A_WORKER / faster, MTBF_S if faster == 1 else None
    pool = SimulatedWorkers(workers, unit_s, update_s, PUSH_S / faster, CONTROLLER_S, mtbf_s, seed)
    return run(pool, workers, max_age)


def slept(ray: Any, workers: int, max_age: int, share: float, *, seed: int = 0) -> dict[str, float]:
    unit_s = [seconds / FASTER for seconds in durations(NUM_STEPS * UNITS_A_WORKER * workers, seed)]
    update_s = share * UNIT_S * UNITS_A_WORKER / FASTER
    pool = SleepingWorkers(ray, workers, unit_s, update_s, PUSH_S / FASTER)
    try:
        return run(pool, workers, max_age)
    finally:
        pool.processes.close()


def beside(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Real runs, each beside its simulation."""
    ray = connect(ClusterConfig(workers=max(counts)))
    rows = []
    for workers in counts:
        for regime, max_age in REGIMES.items():
            real = slept(ray, workers, max_age, SHARES[0])
            there = simulated(workers, max_age, SHARES[0], faster=FASTER)
            rows.append({"regime": regime, "workers": workers, "real": real, "simulated": there,
                         "step_ratio": there["step_s"] / real["step_s"]})  # fmt: skip
            print(
                f"{regime}, {workers}: real {real['step_s']:.2f} s a step, simulated {there['step_s']:.2f}", flush=True
            )
    ray.shutdown()
    return rows


def table(found: Mapping[str, Any]) -> str:
    lines = ["# Scale", "", "By `python benchmarks/scale.py`, whose first lines say what a unit is.", "",
             "Real workers that sleep, beside their simulation:", "",
             "| regime | workers | real: s a step | simulated | ratio | efficiency, real | simulated |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in found["beside"]:
        real, there = row["real"], row["simulated"]
        lines.append(f"| {row['regime']} | {row['workers']} | {real['step_s']:.2f} | {there['step_s']:.2f} | "
                     f"{row['step_ratio']:.2f} | {real['efficiency']:.2f} | {there['efficiency']:.2f} |")  # fmt: skip
    for share in SHARES:
        lines += ["", f"Simulated; an update takes {share:g} of a step's rollouts:", "",
                  "| regime | workers | efficiency | mean age | largest | lost work, % | s a step that age held |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
        for row in (row for row in found["simulated"] if row["share"] == share):
            lines.append(f"| {row['regime']} | {row['workers']:,} | {row['efficiency']:.2f} | {row['age_mean']:.2f} | "
                         f"{row['age_max']} | {100 * row['lost']:.3f} | {row['held_s_a_step']:.1f} |")  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="no real runs")
    arguments, file = parser.parse_args(), RESULTS / "scale.json"
    former = json.loads(file.read_text()) if file.exists() else {}
    rows = [
        {"regime": regime, "share": share, **simulated(workers, max_age, share)}
        for share in SHARES
        for regime, max_age in REGIMES.items()
        for workers in (8, 64, 1024)
    ]
    real = former.get("beside", []) if arguments.simulate else beside((1, 2, 4))
    found = {"command": "python benchmarks/scale.py", "machine": machine_now(), "beside": real, "simulated": rows}
    file.write_text(json.dumps(found, indent=1) + "\n")
    file.with_suffix(".md").write_text(table(found))
    print(table(found))
    far = [row for row in real if not 0.85 <= row["step_ratio"] <= 1.15]
    if far:
        sys.exit(f"{len(far)} of {len(real)} simulations are more than 15 % from their real runs")


if __name__ == "__main__":
    main()
