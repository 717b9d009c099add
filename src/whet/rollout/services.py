"""What flows ask: engines, graders, environments, a user's functions. A service takes tickets, and gives answers when
it has them; one that failed gives a `Failure`, which is a value like any other."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whet.errors import WhetError, text_of
from whet.types import Failure, FaultKind

BatchFunction = Callable[[Sequence[Any]], Sequence[Any]]
"""Answers a batch of payloads, one answer each, in order."""
Answers = list[tuple[int, Any]]
"""Tickets with their answers or failures."""
MAX_HUNG = 512
"""Threads of a pool that are late at one time, past which it begins nothing."""
IDLE_S = 10.0
"""A thread that has had nothing to do for so long ends."""


def trace_of(error: BaseException) -> str:
    """As Python prints it; empty where the error is a sentence that says all."""
    return "" if isinstance(error, WhetError) else "".join(traceback.format_exception(error))


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

    def advance(self, *, wait: bool) -> Sequence[tuple[int, Any]]:
        """What has been answered since the last call: tickets with their answers or failures.

        Args:
            wait: until there is something, where something is asked.
        """
        ...

    def done(self, payloads: Sequence[Any]) -> None:
        """The flow that asked these has ended: what is held for it can go."""
        ...

    def restart(self) -> None:
        """Nobody waits for anything that was asked: `advance` never returns it, and its numbers may be used again."""
        ...


@dataclass(eq=False, slots=True)
class _Job:
    """Something that a pool was asked, while somebody waits for it."""

    ticket: int
    payload: Any
    begun: float | None = None
    """When its newest try was. None: it waits for a thread."""
    is_dropped: bool = False
    """Nobody waits for it any more, and another thread has the place of the one that works on it."""


class Pool:
    """A function of one payload, run by threads: environments, tools, a user's judge.

    What it raises, and what takes too long, is a failure of its kind, whenever the caller looks. A thread cannot be
    stopped: the answer of one that is late is dropped, its payload is not tried again, and another thread takes its
    place, so that those in the queue go on. Where `MAX_HUNG` are late at one time, what is begun then is a failure at
    once.

    Args:
        kind: of what the function raises.
        workers: payloads at one time, not counting those that nobody waits for.
        timeout_s: of each try, from when it is begun; waiting for a thread is not counted. None: no limit.
        retries: how often one that failed is tried again.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(
        self, answer: Callable[[Any], Any], *, kind: FaultKind = "env_error", workers: int = 32,
        timeout_s: float | None = None, retries: int = 0,
    ) -> None:  # fmt: skip
        self.answer, self.kind, self.timeout_s, self.retries = answer, kind, timeout_s, retries
        self.workers = workers
        self.num_retried = 0
        self.num_hung = 0
        """Threads that work on what nobody waits for."""
        self._num_threads = self._num_idle = 0
        """Of the others; and those of them that wait for work."""
        self._jobs: dict[int, _Job] = {}
        """By ticket: queued or in work."""
        self._queue: deque[_Job] = deque()
        self._ended: Answers = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._work, self._came = threading.Condition(self._lock), threading.Condition(self._lock)

    # --- a service ----------------------------------------------------------------------------------------------------

    def submit(self, ticket: int, payload: Any) -> None:
        with self._lock:
            assert not self._is_closed
            assert ticket not in self._jobs
            self._jobs[ticket] = _Job(ticket, payload)
            self._queue.append(self._jobs[ticket])
            self._staff()

    def advance(self, *, wait: bool) -> Answers:
        with self._lock:
            while True:
                found = self._arrived()
                if found or not wait or not self._jobs:
                    return found
                self._came.wait(self._until_next_timeout())

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        with self._lock:
            for job in self._jobs.values():
                self._drop(job)
            self._jobs.clear()
            self._queue.clear()
            self._ended.clear()

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()
            self._work.notify_all()

    # --- with the lock held -------------------------------------------------------------------------------------------

    def _arrived(self) -> Answers:
        found, self._ended = sorted(self._ended, key=lambda each: each[0]), []
        now = time.monotonic()
        if self.timeout_s is None:
            return found
        for job in [each for each in self._jobs.values() if self._is_late(each, now)]:
            self._drop(self._jobs.pop(job.ticket))
            self._staff()
            found.append((job.ticket, self._timeout()))
        return found

    def _is_late(self, job: _Job, now: float) -> bool:
        return self.timeout_s is not None and job.begun is not None and now - job.begun > self.timeout_s

    def _timeout(self) -> Failure:
        return Failure(kind="timeout", reason=f"no answer within {self.timeout_s:g} s")

    def _until_next_timeout(self) -> float | None:
        if self.timeout_s is None:
            return None
        begun = [job.begun for job in self._jobs.values() if job.begun]
        return max(0.001, min(begun) + self.timeout_s - time.monotonic()) if begun else self.timeout_s

    def _drop(self, job: _Job) -> None:
        job.is_dropped = True
        if job.begun:
            self.num_hung += 1
            self._num_threads -= 1

    def _staff(self) -> None:
        """A thread for what is queued, where there is room for one."""
        if self._num_idle < len(self._queue) and self._num_threads < self.workers:
            self._num_threads += 1
            # A daemon: one that hangs would hold the process at its end.
            threading.Thread(target=self._serve, name="pool", daemon=True).start()
        self._work.notify()

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._num_idle += 1
                has_work = self._work.wait_for(lambda: self._queue or self._is_closed, IDLE_S)
                self._num_idle -= 1
                if not has_work or self._is_closed:
                    self._num_threads -= 1
                    return
                job = self._queue.popleft()
                job.begun = time.monotonic()
            answer = self._answered(job)
            with self._lock:
                if job.is_dropped:
                    self.num_hung -= 1
                    return
                del self._jobs[job.ticket]
                self._ended.append((job.ticket, answer))
                self._came.notify()
            del job, answer  # not held while there is nothing to do

    def _answered(self, job: _Job) -> Any:
        if self.num_hung >= MAX_HUNG:
            return Failure(kind="timeout", reason=f"not begun: {self.num_hung} before it were late and still run")
        for attempt in range(self.retries + 1):
            has_failed = False
            try:
                answer = self.answer(job.payload)
            except BaseException as error:  # a function that exits would end this thread, and nothing would be said
                has_failed = True
                answer = Failure(
                    kind=self.kind, reason=f"{type(error).__name__}: {text_of(error)}", trace=trace_of(error)
                )
            with self._lock:
                # Judged here: a caller who is busy looks late, and a late answer would pass on a slow machine alone.
                if self._is_late(job, time.monotonic()):
                    return self._timeout()
                if not has_failed or attempt == self.retries or job.is_dropped:
                    return answer
                self.num_retried += 1
                job.begun = time.monotonic()
        raise AssertionError
