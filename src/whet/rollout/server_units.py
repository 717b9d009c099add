"""Units of rollouts on servers: their requests go on there while the run's own process trains.

New weights reach the servers between two updates. A reply under way goes on by them, and says which wrote which token.
So a unit may be of several versions; its age is that of the oldest. Rollouts of many turns take their next turn once
the update is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from whet.rollout.driver import Ask, RunningRollouts, Task, forget, release, remember
from whet.rollout.parcels import unpack
from whet.rollout.retries import EpisodeRecords
from whet.rollout.runtime import Call, FreeServices, Runtime
from whet.rollout.units import COUNTS, UnitResult, pack_unit, tokenizers

PAUSE_S = 0.002
"""Seconds between two looks whether an answer has come."""


class ServerUnits:
    """Servers of vLLM, as a `whet.rollout.async_units.UnitPool`.

    Args:
        policy: that is trained, and that the servers sample from.
    """

    def __init__(self, runtime: Runtime, policy: str) -> None:
        self.runtime, self.policy = runtime, policy
        self.services = FreeServices(runtime)
        self._running: dict[int, tuple[RunningRollouts, EpisodeRecords]] = {}
        self._open: dict[str, dict[int, tuple[int, Task]]] = {}
        """By service and ticket, the unit and the rollout that wait for an answer."""
        self._requests: dict[Task, list[tuple[str, Any]]] = {}
        """As in the drivers: what was asked, for the services' `done`."""
        self._num_asked = 0

    def renew(self) -> None:
        """Let open requests go on by new weights: the loop sends these to the servers after each update."""
        engine: Any = self.runtime.engine(self.policy)
        engine.goes_on = True

    def has_room(self) -> bool:
        engine = self.runtime.engine(self.policy)
        return engine.num_open < engine.capacity

    def begin(self, unit: int, calls: Sequence[Call[Any]]) -> None:
        names, records = tokenizers(self.runtime), EpisodeRecords()
        copied = unpack(pack_unit(calls, self.runtime, names, {}), {**names, COUNTS: records})

        def ask(task: Task, request: Ask) -> None:
            ticket, self._num_asked = self._num_asked, self._num_asked + 1
            service = self.services[request.service]
            remember(self._requests, task, request, service)
            self._open.setdefault(request.service, {})[ticket] = unit, task
            service.submit(ticket, request.payload)

        running = RunningRollouts(
            (call() for call in copied), ask, lambda task: release(self.services, self._requests.pop(task, []))
        )
        self._running[unit] = running, records
        running.go()

    def ended(self, wait_s: float) -> list[tuple[int, UnitResult | None]]:
        """Raises: what a rollout or a service raised. All rollouts are closed then."""
        until = time.monotonic() + wait_s
        try:
            while not (ended := self._hand_over()) and time.monotonic() < until:
                time.sleep(PAUSE_S)
        except BaseException:
            self._close()
            raise
        return ended

    def _hand_over(self) -> list[tuple[int, UnitResult | None]]:
        """Take in the answers that have come, and let their rollouts go on."""
        for name, waiting in self._open.items():
            for ticket, answer in self.services[name].advance(wait=False) if waiting else ():
                unit, task = waiting.pop(ticket)
                self._running[unit][0].answer(task, answer)
        for running, _ in self._running.values():
            running.go()
        over = [unit for unit, (running, _) in self._running.items() if not running.num_open]
        return [(unit, self._result(unit)) for unit in over]

    def _result(self, unit: int) -> UnitResult:
        running, records = self._running.pop(unit)
        return UnitResult(running.results, records.records, {})

    def _close(self) -> None:
        forget(self.services, list(self._open))
        for running, _ in self._running.values():
            running.close()
        self._running.clear()

    def go_on(self, turn: Callable[[float], None]) -> None:
        """Nothing to do: what was asked goes on at the servers."""

    def pause(self) -> None:
        """Nothing to do."""
