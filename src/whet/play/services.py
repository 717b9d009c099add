"""What flows ask: engines, graders, environments, a user's functions. A service takes tickets, and gives answers when
it has them; one that failed gives a `Failure`, which is a value like any other."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from whet.types import Failure, FaultKind

BatchFunction = Callable[[Sequence[Any]], Sequence[Any]]
"""Answers a batch of payloads, one answer each, in order."""
Answers = list[tuple[int, Any]]
"""Tickets with their answers or failures."""


class Fault(Exception):
    """Raised in a flow where a service failed it, for the flow to catch: what nobody catches ends the play."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Service(Protocol):
    """Answers tickets, in any order."""

    is_stepped: bool
    """True: it computes in `advance`, a step at a time, in the caller's thread: the steps are the play's clock."""

    @property
    def queued(self) -> Collection[int]:
        """Tickets that wait for room which other flows hold: they are not begun, and so nobody waits for them."""
        ...

    def submit(self, ticket: int, payload: Any) -> None:
        """Ask for something, by a number that no open question has."""
        ...

    def advance(self, *, wait: bool) -> Answers:
        """What has been answered since the last call.

        Args:
            wait: until there is something, where something is asked.
        """
        ...

    def done(self, payloads: Sequence[Any]) -> None:
        """The flow that asked these has ended: what is held for it can go."""
        ...

    def restart(self) -> None:
        """Nobody waits for anything that was asked: no answer to it is ever given."""
        ...


@dataclass
class Batched:
    """A function that answers a batch of payloads, one answer each, in order; run in the caller's thread."""

    answer: BatchFunction
    is_stepped: bool = False
    queued: Collection[int] = ()
    _asked: list[tuple[int, Any]] = field(default_factory=list)

    def submit(self, ticket: int, payload: Any) -> None:
        self._asked.append((ticket, payload))

    def advance(self, *, wait: bool) -> Answers:
        """All that was asked. What the function raises goes to the caller."""
        asked, self._asked = self._asked, []
        answers = self.answer([payload for _, payload in asked]) if asked else []
        return [(ticket, answer) for (ticket, _), answer in zip(asked, answers, strict=True)]

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        """As `Service.restart`."""
        self._asked = []


def service_of(given: Service | BatchFunction) -> Service:
    """A function that answers batches, as a service."""
    return Batched(given) if callable(given) else given


class Pool:
    """A function of one payload, run by threads: environments, tools, a user's judge.

    What it raises, and what takes too long, is a failure of its kind. A thread cannot be stopped: one that is late is
    left alone, another one takes its place, and its answer is dropped. None keeps the process from ending.

    Args:
        kind: of what the function raises.
        workers: payloads at one time, those that are late not counted.
        timeout_s: from when a payload is begun. None: no limit.
        retries: how often one that failed is tried again.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(
        self, answer: Callable[[Any], Any], *, kind: FaultKind = "env_error", workers: int = 32,
        timeout_s: float | None = None, retries: int = 0,
    ) -> None:  # fmt: skip
        self.answer, self.kind, self.timeout_s, self.retries = answer, kind, timeout_s, retries
        self.num_retried = 0
        self._workers, self._num_threads = workers, 0
        self._open: set[int] = set()
        self._asked: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._came: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._begun: dict[int, float] = {}
        """When, by ticket; without those that are late."""
        self._lock = threading.Lock()

    def submit(self, ticket: int, payload: Any) -> None:
        self._open.add(ticket)
        self._asked.put((ticket, payload))
        self._hire()

    def _hire(self) -> None:
        """As many threads as there is work for."""
        while self._num_threads < min(self._workers, len(self._open)):
            self._num_threads += 1
            threading.Thread(target=self._run, name="pool", daemon=True).start()

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            ticket, payload = asked
            with self._lock:
                self._begun[ticket] = time.monotonic()
            try:
                answer = self._work(ticket, payload)
            except BaseException as error:
                answer = _Raised(error)
            with self._lock:
                if self._begun.pop(ticket, None) is None:
                    return  # it was late, and another thread has its place
                self._came.put((ticket, answer))

    def _work(self, ticket: int, payload: Any) -> Any:
        for attempt in range(self.retries + 1):
            try:
                return self.answer(payload)
            except Exception as error:
                if attempt == self.retries:
                    reason = f"{type(error).__name__}: {error}"
                    return Failure(kind=self.kind, reason=reason, trace=traceback.format_exc())
                with self._lock:
                    if ticket not in self._begun:
                        return None
                    self.num_retried += 1
                    self._begun[ticket] = time.monotonic()
        raise AssertionError

    def advance(self, *, wait: bool) -> Answers:
        found = self._arrived()
        while wait and self._open and not found:
            with suppress(Empty):
                found = self._taken([self._came.get(timeout=self._until_next_timeout())])
            found += self._arrived()
        return found

    def _arrived(self) -> Answers:
        came = []
        while not self._came.empty():  # nobody else takes from it
            came.append(self._came.get())
        return self._taken(came) + self._late()

    def _taken(self, came: Answers) -> Answers:
        for ticket, answer in came:
            self._open.discard(ticket)
            if isinstance(answer, _Raised):
                raise answer.error
        return came

    def _late(self) -> Answers:
        if self.timeout_s is None:
            return []
        with self._lock:
            last = time.monotonic() - self.timeout_s
            late = [ticket for ticket, begun in self._begun.items() if begun < last]
            for ticket in late:
                del self._begun[ticket]
        self._open.difference_update(late)
        self._num_threads -= len(late)
        self._hire()
        return [(ticket, Failure(kind="timeout", reason=f"no answer within {self.timeout_s:g} s")) for ticket in late]

    def _until_next_timeout(self) -> float | None:
        if self.timeout_s is None:
            return None
        with self._lock:
            first = min(self._begun.values(), default=time.monotonic())
        return max(0.001, first + self.timeout_s - time.monotonic())

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        """As `Service.restart`: what is being worked on is late, and its thread replaced."""
        for queue in (self._asked, self._came):
            with suppress(Empty):
                while True:
                    queue.get_nowait()
        with self._lock:
            self._num_threads -= len(self._begun)
            self._begun.clear()
        with suppress(Empty):  # what came meanwhile
            while True:
                self._came.get_nowait()
        self._open.clear()

    def close(self) -> None:
        """Begin nothing more."""
        with suppress(Empty):
            while True:
                self._asked.get_nowait()
        for _ in range(self._num_threads):
            self._asked.put(None)


@dataclass(frozen=True)
class _Raised:
    """What is no failure of a service, such as an exit: it goes on in the caller's thread."""

    error: BaseException
