"""What flows ask: engines, graders, environments, a user's functions. A service takes tickets, and gives answers when
it has them; one that failed gives a `Failure`, which is a value like any other."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
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


def service_of(given: Service | BatchFunction) -> Service:
    """A function that answers batches, as a service."""
    return Batched(given) if callable(given) else given


class Pool:
    """A function of one payload, run by threads: environments, tools, a user's judge.

    What it raises, and what takes too long, is a failure of its kind. A thread cannot be stopped: one that is late
    keeps its place until it returns, and its answer is dropped.

    Args:
        kind: of what the function raises.
        workers: payloads at one time.
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
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="pool")
        self._futures: dict[int, Future[Any]] = {}
        self._begun: dict[int, float] = {}
        self._lock = threading.Lock()

    def submit(self, ticket: int, payload: Any) -> None:
        self._futures[ticket] = self._threads.submit(self._work, ticket, payload)

    def _work(self, ticket: int, payload: Any) -> Any:
        for attempt in range(self.retries + 1):
            self._begun[ticket] = time.monotonic()
            try:
                return self.answer(payload)
            except Exception as error:
                if attempt == self.retries:
                    reason = f"{type(error).__name__}: {error}"
                    return Failure(kind=self.kind, reason=reason, trace=traceback.format_exc())
                with self._lock:
                    self.num_retried += 1
        raise AssertionError

    def advance(self, *, wait: bool) -> Answers:
        while True:
            found = self._arrived()
            if found or not wait or not self._futures:
                return found
            wait_for_first(self._futures.values(), self._until_next_timeout())

    def _arrived(self) -> Answers:
        now = time.monotonic()
        late = [
            ticket for ticket, begun in list(self._begun.items())
            if self.timeout_s is not None and now - begun > self.timeout_s and not self._futures[ticket].done()
        ]  # fmt: skip
        found: Answers = [(ticket, self._take(ticket).result()) for ticket in self._tickets_done()]
        for ticket in late:
            if ticket in self._futures:
                self._take(ticket)
                found.append((ticket, Failure(kind="timeout", reason=f"no answer within {self.timeout_s:g} s")))
        return found

    def _tickets_done(self) -> list[int]:
        return [ticket for ticket, future in self._futures.items() if future.done()]

    def _take(self, ticket: int) -> Future[Any]:
        self._begun.pop(ticket, None)
        return self._futures.pop(ticket)

    def _until_next_timeout(self) -> float | None:
        if self.timeout_s is None:
            return None
        begun = list(self._begun.values())
        return max(0.001, min(begun) + self.timeout_s - time.monotonic()) if begun else self.timeout_s

    def done(self, payloads: Sequence[Any]) -> None: ...

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def wait_for_first(futures: Collection[Future[Any]], seconds: float | None = None) -> None:
    """Until one of them is done."""
    wait(list(futures), seconds, FIRST_COMPLETED)
