"""Free-running rollouts: each goes on as soon as its own answer is there, and its next request joins the running batch.

It is reproducible because it runs on *logical time*, counted in steps of the engines. An engine's answer comes when it
is written. The answer of another service, such as an environment, comes a set number of steps after the request (the
latency): an earlier answer waits, and a late one is waited for. So the composition of batches is a function of the
requests, and not of the wall clock. Without a set latency, answers come as they arrive, and the arrivals are recorded:
a run with the same arrivals repeats exactly.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeVar

from whet.rollout.driver import Ask, Beat, Rollout, RunningRollouts, Task, forget, release, remember
from whet.rollout.services import Service

T = TypeVar("T")


@dataclass
class Arrivals:
    """The log of a run without a set latency: by call of the driver, the step at which each ticket's answer came.

    Args:
        recorded: arrivals of another run, to repeat.
        write: called with a line, which has `play` and `arrivals`.
    """

    recorded: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    write: Callable[[Mapping[str, Any]], None] = lambda line: None
    _place: str = ""
    _numbers: Counter[str] = field(default_factory=Counter)

    def at(self, place: str) -> None:
        """Sets the place of the next calls: `train/12`, a phase and its step."""
        self._place = place
        self._numbers.clear()

    @contextmanager
    def clock(self, label: str = "") -> Iterator[Clock]:
        """The clock of the next call. Its arrivals are written at the end, in the order of the tickets.

        Args:
            label: of calls that are numbered apart, because a resumed run repeats some of them.
        """
        name = self.next_name(label)
        clock = Clock(default=None, arrivals=dict(self.recorded.get(name, {})))
        yield clock
        self.write({"play": name, "arrivals": dict(sorted(clock.arrivals.items()))})

    def next_name(self, label: str) -> str:
        """The name of the next call, in the log."""
        place = f"{self._place}/{label}" if label else self._place
        name = f"{place}/{self._numbers[place]}"
        self._numbers[place] += 1
        return name

    @staticmethod
    def read(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, int]]:
        """Arrivals by call, from the written lines."""
        return {row["play"]: {int(ticket): step for ticket, step in row["arrivals"].items()} for row in rows}


@dataclass
class Clock:
    """The logical time at which answers are handed over, and counts of late ones.

    Args:
        latency: by service, in steps. None: free, so answers come as they arrive. Other services have `default`.
        arrivals: of free services, the step of each ticket's answer. Given ones are repeated; others are added.
    """

    latency: Mapping[str, int | None] = field(default_factory=dict)
    default: int | None = 0
    arrivals: MutableMapping[int, int] = field(default_factory=dict)
    steps: int = 0
    num_late: dict[str, int] = field(default_factory=dict)
    """Answers that were waited for, by service."""
    seconds_late: dict[str, float] = field(default_factory=dict)

    def due(self, name: str, ticket: int) -> int | None:
        """The step at which an answer is handed over. None: whenever it arrives."""
        latency = self.latency.get(name, self.default)
        return self.steps + latency if latency is not None else self.arrivals.get(ticket)


def roll_out_free(
    rollouts: Iterable[Rollout[T]],
    services: Mapping[str, Service],
    clock: Clock | None = None,
    *,
    beat: Beat = lambda service: None,
) -> list[T]:
    """Run the rollouts to their ends, each as fast as its own answers come.

    Args:
        services: by name.
        clock: of logical time. None: a latency of 0 for all services.
        beat: called with a service's name before it is asked, for a watchdog.
    Returns: the rollouts' results, in order.
    Raises: what a service or a rollout raises, and a fault that no rollout has caught. All rollouts are closed then.
    """
    return _FreeRun(rollouts, services, clock or Clock(), beat).run()


class _FreeRun:
    """One call of `roll_out_free`."""

    def __init__(
        self, rollouts: Iterable[Rollout[Any]], services: Mapping[str, Service], clock: Clock, beat: Beat
    ) -> None:
        self.services, self.clock, self.beat = services, clock, beat
        self.num_asked = 0
        self.tasks: dict[int, Task] = {}
        """By open ticket."""
        self.stepped: dict[str, int] = {}
        """Open tickets of services that are stepped."""
        self.due: list[tuple[int, int, str]] = []
        """Step, ticket and service: a heap."""
        self.free: dict[str, set[int]] = {}
        """Open tickets whose answers come when they arrive."""
        self.early: dict[int, Any] = {}
        """Answers that have arrived, and are not due yet."""
        self.requests: dict[Task, list[tuple[str, Any]]] = {}
        """Service and payload, by the rollout given to the driver, for the services' `done`."""
        self.used: set[str] = set()
        """Names of services that were asked."""
        self.asks: dict[Task, tuple[int, str]] = {}
        """Ticket and service of each task that waits."""
        self.cancelled: set[int] = set()
        """Open tickets of closed rollouts."""
        self.rollouts = RunningRollouts(
            rollouts, self._ask, lambda task: release(services, self.requests.pop(task, [])), self._cancel
        )

    def run(self) -> list[Any]:
        try:
            self.rollouts.go()
            while self.rollouts.num_open:
                self._step()
                self._hand_over()
                self.rollouts.go()
            while self.cancelled:  # none stays behind in an engine
                self._step()
            forget(self.services, self._unanswered())
        except BaseException:
            forget(self.services, self.used)
            raise
        finally:
            self.rollouts.close()
        return self.rollouts.results

    def _unanswered(self) -> set[str]:
        """Names of services with open requests, which are those of closed rollouts once a run has ended."""
        due = {name for _, _, name in self.due}
        return due | {name for open_in in (self.free, self.stepped) for name, tickets in open_in.items() if tickets}

    def _ask(self, task: Task, request: Ask) -> None:
        ticket, self.num_asked = self.num_asked, self.num_asked + 1
        self.tasks[ticket], self.asks[task] = task, (ticket, request.service)
        self.used.add(request.service)
        service = self.services[request.service]
        remember(self.requests, task, request, service)
        if service.is_stepped:
            self.stepped[request.service] = self.stepped.get(request.service, 0) + 1
        elif (due := self.clock.due(request.service, ticket)) is None:
            self.free.setdefault(request.service, set()).add(ticket)
        else:
            heappush(self.due, (due, ticket, request.service))
        service.submit(ticket, request.payload)

    def _step(self) -> None:
        """Every engine with open tickets does one step. If none has any, time moves to the next answer."""
        working = [name for name, count in self.stepped.items() if count]
        for name in working:
            self.beat(name)
            for ticket, answer in self.services[name].advance(wait=False):
                self.stepped[name] -= 1
                self._answer(ticket, answer)
        self.clock.steps += 1
        if not working and self.due:
            self.clock.steps = max(self.clock.steps, self.due[0][0])

    def _hand_over(self) -> None:
        """Hands over the answers that are due, and those of free services that have arrived."""
        waiting = [name for name, tickets in self.free.items() if tickets]
        if waiting and not any(self.stepped.values()):
            self.beat(waiting[0])
        is_idle = not self.due and not any(self.stepped.values()) and not self.rollouts.is_ready
        while waiting:
            if self._take(waiting, wait=is_idle and len(waiting) == 1) or not is_idle:
                break
            time.sleep(0.001)
        queued, is_alone = [], not waiting and not any(self.stepped.values())
        while self.due and self.due[0][0] <= self.clock.steps:
            _, ticket, name = heappop(self.due)
            if ticket in self.services[name].queued:
                queued.append((self.clock.steps + 1, ticket, name))
                continue
            if ticket not in self.early:
                self._wait_for(ticket, name)
            self._answer(ticket, self.early.pop(ticket))
        if queued and is_alone and not self.due and not self.rollouts.is_ready:
            for name in sorted({name for *_, name in queued}):
                self._take([name], wait=True)  # no rollout is left that could make room: the service raises
        for entry in queued:  # its time begins when other rollouts make room
            heappush(self.due, entry)

    def _take(self, names: Iterable[str], *, wait: bool) -> bool:
        """Collects answers of services. Those of free services are handed over now, in the order of the tickets; the
        others wait until they are due.

        Returns: whether anything was handed over.
        """
        arrivals = [
            (ticket, name, answer) for name in names for ticket, answer in self.services[name].advance(wait=wait)
        ]
        for ticket, name, answer in sorted(arrivals, key=lambda arrival: arrival[0]):
            free = self.free.get(name, set())
            if ticket not in free:
                self.early[ticket] = answer
                continue
            free.remove(ticket)
            self.clock.arrivals[ticket] = self.clock.steps
            self._answer(ticket, answer)
        return any(ticket not in self.early for ticket, *_ in arrivals)

    def _wait_for(self, ticket: int, name: str) -> None:
        begun = time.perf_counter()
        self.beat(name)
        self._take([name], wait=False)
        if ticket in self.early:
            return
        while ticket not in self.early:
            self._take([name], wait=True)
        self.clock.num_late[name] = self.clock.num_late.get(name, 0) + 1
        self.clock.seconds_late[name] = self.clock.seconds_late.get(name, 0.0) + time.perf_counter() - begun

    def _answer(self, ticket: int, answer: Any) -> None:
        """Resumes the rollout that asked, unless it was closed."""
        task = self.tasks.pop(ticket)
        self.asks.pop(task, None)
        self.cancelled.discard(ticket)
        self.rollouts.answer(task, answer)

    def _cancel(self, task: Task) -> None:
        """A rollout was closed: an engine need not finish its request."""
        ticket, name = self.asks.pop(task, (-1, ""))
        cancel = getattr(self.services[name], "cancel", None) if name in self.stepped else None
        if cancel is not None:
            cancel([ticket])
            self.cancelled.add(ticket)
