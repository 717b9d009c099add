"""Runs rollouts: plain coroutines that ask services (`await Ask(...)`) and branch (`await together(...)`).

Two drivers run the same rollouts. *Lockstep* (`roll_out`) gathers all requests to one service, has them answered, and
goes on. *Free-running* (`whet.rollout.free`) resumes each rollout as soon as its own answer is there. Both are
single-threaded and first-in-first-out. So the result is a pure function of rollouts and services: the same requests
reach the engines in the same order every time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from whet.rollout.services import Answers, BatchFunction, Fault, Service
from whet.types import Failure

GRADER = "grader"
"""The service that grades: payloads `(reply, task)`, answers `Grade`."""
T = TypeVar("T")
Rollout = Coroutine[Any, Any, T]
Beat = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ask:
    """`await Ask(service, payload)` gives the service's answer, or raises `Fault`."""

    service: str
    payload: Any

    def __await__(self) -> Generator[Ask, Any, Any]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class _Fork:
    rollouts: tuple[Rollout[Any], ...]

    def __await__(self) -> Generator[_Fork, Any, Any]:
        return (yield self)


async def together(rollouts: Iterable[Rollout[T]]) -> list[T]:
    """Run rollouts side by side. Returns: their results, in order.

    If one of them ends in a fault, the others are closed, and the fault is raised here.
    """
    return await _Fork(tuple(rollouts))


@dataclass(eq=False)
class Task:
    """A running rollout."""

    rollout: Rollout[Any]
    parent: Task | None
    place: int
    children: list[Task] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    """Of the rollouts that it forked."""
    missing: int = 0
    is_closed: bool = False

    @property
    def origin(self) -> Task:
        """The rollout given to the driver, which this one is part of."""
        return self if self.parent is None or self.parent.parent is None else self.parent.origin


class RunningRollouts:
    """Rollouts that run until they wait for a service.

    Args:
        ask: called with each request.
        ended: called with each rollout given to the driver, once it has ended.
        closed: called with each rollout that is ended from outside. Its request is no longer needed.
    """

    def __init__(
        self,
        rollouts: Iterable[Rollout[Any]],
        ask: Callable[[Task, Ask], None],
        ended: Callable[[Task], None],
        closed: Callable[[Task], None] = lambda task: None,
    ) -> None:
        self._ask, self._ended, self._closed = ask, ended, closed
        self._root = Task(_nothing(), None, 0)
        self._root.rollout.close()
        self._ready: deque[tuple[Task, Any]] = deque()
        self._fork(self._root, tuple(rollouts))

    @property
    def results(self) -> list[Any]:
        """Of the rollouts, in order. None for those that have not ended."""
        return self._root.results

    @property
    def num_open(self) -> int:
        """Rollouts given to the driver that have not ended."""
        return self._root.missing

    @property
    def is_ready(self) -> bool:
        """Whether any rollout can go on."""
        return bool(self._ready)

    def answer(self, task: Task, value: Any) -> None:
        """Resume a rollout with its answer. A `Failure` is raised in it."""
        if not task.is_closed:
            self._ready.append((task, value))

    def go(self) -> None:
        """Run all rollouts until they wait or end."""
        while self._ready:
            self._advance(*self._ready.popleft())

    def close(self) -> None:
        """End all rollouts that have not ended."""
        self._close(self._root)

    def _advance(self, task: Task, value: Any) -> None:
        if task.is_closed:
            return
        try:
            awaited = task.rollout.throw(Fault(value)) if isinstance(value, Failure) else task.rollout.send(value)
        except StopIteration as end:
            self._finish(task, end.value)
            return
        except Fault as fault:
            self._fail(task, fault.failure)
            return
        if isinstance(awaited, Ask):
            self._ask(task, awaited)
        else:
            self._fork(task, awaited.rollouts)

    def _finish(self, task: Task, result: Any) -> None:
        parent = task.parent
        assert parent is not None
        task.is_closed = True
        parent.results[task.place] = result
        parent.missing -= 1
        if parent is self._root:
            self._ended(task)
        elif parent.missing == 0:
            self._ready.append((parent, parent.results))

    def _fail(self, task: Task, failure: Failure) -> None:
        """Raises the failure in the rollout that forked this one."""
        parent = task.parent
        assert parent is not None
        if parent is self._root:
            raise Fault(failure)
        for child in parent.children:
            self._close(child)
        self._ready.append((parent, failure))

    def _fork(self, parent: Task, rollouts: tuple[Rollout[Any], ...]) -> None:
        parent.results, parent.missing = [None] * len(rollouts), len(rollouts)
        parent.children = [Task(rollout, parent, place) for place, rollout in enumerate(rollouts)]
        self._ready.extend((child, None) for child in parent.children)
        if not rollouts and parent is not self._root:
            self._ready.append((parent, []))

    def _close(self, task: Task) -> None:
        for child in task.children:
            self._close(child)
        if not task.is_closed:
            task.is_closed = True
            task.rollout.close()
            self._closed(task)


async def _nothing() -> None: ...


def roll_out(
    rollouts: Iterable[Rollout[T]],
    services: Mapping[str, Service | BatchFunction],
    *,
    beat: Beat = lambda service: None,
) -> list[T]:
    """Run the rollouts to their ends, in lockstep.

    Args:
        services: by name. For an engine, its `generate`, which answers a whole batch.
        beat: called with a service's name before it is asked, for a watchdog.
    Returns: the rollouts' results, in order.
    Raises: what a service or a rollout raises, and a fault that no rollout has caught. All rollouts are closed then.
    """
    waiting: dict[str, list[tuple[Task, Any]]] = {}
    requests: dict[Task, list[tuple[str, Any]]] = {}
    used: set[str] = set()

    def ask(task: Task, request: Ask) -> None:
        waiting.setdefault(request.service, []).append((task, request.payload))
        remember(requests, task, request, services[request.service])

    running = RunningRollouts(rollouts, ask, lambda task: release(services, requests.pop(task, [])))
    try:
        running.go()
        while waiting:
            # The longest queue first: the others can only grow meanwhile, so that batches stay large.
            name = max(waiting, key=lambda service: len(waiting[service]))
            tasks = waiting.pop(name)
            used.add(name)
            service, answers = service_of(services[name]), dict[int, Any]()
            for ticket, (_, payload) in enumerate(tasks):
                service.submit(ticket, payload)
            while len(answers) < len(tasks):
                beat(name)
                answers |= service.advance(wait=True)
            for ticket, (task, _) in enumerate(tasks):
                running.answer(task, answers[ticket])
            running.go()
    except BaseException:
        forget(services, used)
        raise
    finally:
        running.close()
    return running.results


def forget(services: Mapping[str, Service | BatchFunction], names: Iterable[str]) -> None:
    """Restart services that may have open requests of a run that is over. The next one reuses its ticket numbers."""
    for name in names:
        service_of(services[name]).restart()


def remember(
    requests: dict[Task, list[tuple[str, Any]]], task: Task, request: Ask, service: Service | BatchFunction
) -> None:
    """Record a request's payload for the service's `done`.

    A service with `remembered` reduces the payload first, as a rollout of many turns would hold its context once a
    turn. None and payloads of functions are not recorded.
    """
    payload = getattr(service, "remembered", lambda payload: payload)(request.payload)
    if payload is not None and not callable(service):
        requests.setdefault(task.origin, []).append((request.service, payload))


def release(services: Mapping[str, Service | BatchFunction], requests: Iterable[tuple[str, Any]]) -> None:
    """Tell the services that the rollout behind these requests has ended."""
    payloads: dict[str, list[Any]] = {}
    for name, payload in requests:
        payloads.setdefault(name, []).append(payload)
    for name, service_payloads in payloads.items():
        service_of(services[name]).done(service_payloads)


@dataclass
class Batched:
    """A service that is a function of a batch: an engine's `generate`, a grader, a user's function.

    Args:
        answer: gives one answer a payload, in order. It runs in the caller's thread.
    """

    answer: BatchFunction
    is_stepped: bool = False
    queued: Collection[int] = ()
    _pending: list[tuple[int, Any]] = field(default_factory=list)

    def submit(self, ticket: int, payload: Any) -> None:
        self._pending.append((ticket, payload))

    def advance(self, *, wait: bool) -> Answers:
        """Answers all pending requests. What the function raises goes to the caller."""
        pending, self._pending = self._pending, []
        answers = self.answer([payload for _, payload in pending]) if pending else []
        return [(ticket, answer) for (ticket, _), answer in zip(pending, answers, strict=True)]

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        self._pending = []


def service_of(service: Service | BatchFunction) -> Service:
    """A function that answers batches, as a service."""
    return Batched(service) if callable(service) else service
