"""Units of rollouts that workers roll out while the run's own process trains.

New weights go to all workers at once, and each loads them between two units. A worker does what it is asked in order.
So a unit that was given after new weights is of these, and the answer to their probe is there before the unit's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from whet.cluster.processes import Member, ProcessDied
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.rollout.parcels import unpack
from whet.rollout.runtime import Call
from whet.rollout.units import UnitResult, pack_unit
from whet.trainer.selfchecks import PROBE_BUDGET, check_scores, probe_rows

if TYPE_CHECKING:
    from whet.cluster.workers import RayWorkers

WAIT_S = 0.2
"""The longest wait of a turn while the policy trains. `pause` waits as long."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A worker's scores to come of weights that it was sent."""

    policy: Policy
    asked: Any
    expected: Sequence[Tensor]


class RayUnits:
    """Workers, as a `whet.rollout.async_units.UnitPool`. Each has one unit at a time."""

    def __init__(self, workers: RayWorkers) -> None:
        self.workers = workers
        self._newest: dict[str, Any] = {}
        """Stamps of the weights that workers were sent last, by policy. A policy that trains has others meanwhile."""
        self._probes: dict[Member, list[Probe]] = {}
        """By worker, those that were not looked at yet, the oldest first."""
        self._owed: dict[int, list[Probe]] = {}
        """By unit, those of weights that its worker was sent before."""
        self._turns: Turns | None = None
        self._trains = False
        """Whether the policy may be changing: no weights are sent then."""

    # --- weights ------------------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Send the newest weights to all workers that lack them. Called while nothing trains."""
        started = time.perf_counter()
        members = self.workers.processes.members
        self._probes = {member: probes for member, probes in self._probes.items() if member in members and probes}
        for policy in self.workers.sampled():
            self._newest[policy.name] = stamp = stamp_of(policy)
            if lacking := self.workers.lacking(policy):
                expected = score(policy, probe_rows(policy), token_budget=PROBE_BUDGET)
                for member, asked in self.workers.send(policy, lacking):
                    self._probes.setdefault(member, []).append(Probe(policy, asked, expected))
                    member.has[policy.name] = stamp
        self.workers.spent("sync", time.perf_counter() - started)

    def _check(self, member: Member, probes: Sequence[Probe]) -> None:
        """Check that a worker holds what it was sent. Raises: RunError where it does not. ProcessDied."""
        unseen = self._probes.get(member, [])
        for probe in [probe for probe in probes if probe in unseen]:
            scores = self.workers.processes.answer(member, probe.asked)
            check_scores(probe.policy, scores, probe.expected)
            unseen.remove(probe)

    def check_what_came(self) -> None:
        """Check the probes of all workers but those that still have a unit of older weights. Raises: RunError."""
        processes = self.workers.processes
        for member in processes.idle:
            with suppress(ProcessDied):  # whoever asks it next starts another one
                self._check(member, self._probes.get(member, ()))

    # --- units --------------------------------------------------------------------------------------------------------

    def _ready(self) -> list[Member]:
        """Workers that have no unit, and were sent all weights."""
        return [member for member in self.workers.processes.idle if self._newest.items() <= member.has.items()]

    def has_room(self) -> bool:
        return bool(self._ready())

    def begin(self, unit: int, calls: Sequence[Call[Any]]) -> None:
        workers, member = self.workers, self._ready()[0]
        self._owed[unit] = list(self._probes.get(member, ()))
        parcel = pack_unit(calls, workers.runtime, workers.names, workers.stays)
        workers.processes.begin(unit, member, (parcel, None))

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        """Raises: what a rollout raised. RunError."""
        results: list[tuple[int, UnitResult | None]] = []
        for unit, member, answer in self.workers.processes.ended(wait_s):
            owed, result = self._owed.pop(unit), None
            with suppress(ProcessDied):
                if member is not None:
                    self._check(member, owed)
                    result = self._home(answer)
            results.append((unit, result))
        if not self._trains and len(self._ready()) < len(self.workers.processes.idle):
            self.renew()  # a new worker has started in the place of a dead one
        return results

    def _home(self, answer: tuple[str, Any, float]) -> UnitResult:
        kind, value, seconds = answer
        self.workers.spent("busy", seconds)
        if kind == "error":
            raise value
        result: UnitResult = unpack(value, self.workers.names)
        return result

    # --- while the policy trains --------------------------------------------------------------------------------------

    def go_on(self, turn: Callable[[float], None]) -> None:
        self._trains = True
        self._turns = Turns(turn)

    def pause(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.stop()
        self._trains = False


class Turns:
    """A thread that takes in units and begins others."""

    def __init__(self, turn: Callable[[float], None]) -> None:
        self._turn, self._is_over = turn, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="units of rollouts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._turn(WAIT_S)
        except BaseException as error:  # raised again in the run's own thread
            self._error = error

    def stop(self) -> None:
        """Raises: what a turn raised."""
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def stamp_of(policy: Policy) -> tuple[int, int]:
    """Tells a policy's weights from all others that it had in this run."""
    return policy.version, policy.num_loads
