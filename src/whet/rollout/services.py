"""Services that rollouts use: engines, graders, environments and users' functions.

A service takes tickets, and gives answers when it has them. The answer to a failed request is a `Failure`, a value.
"""

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
"""With this many late threads, a pool begins nothing more."""
IDLE_S = 10.0
"""A thread without work for this long ends."""


def trace_of(error: BaseException) -> str:
    """The stack trace as Python prints it. Empty for our own errors, whose message is enough."""
    return "" if isinstance(error, WhetError) else "".join(traceback.format_exception(error))


class Fault(Exception):
    """Raised in a rollout whose service failed. The rollout may catch it; otherwise the driver raises it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    def __reduce__(self) -> tuple[type[Fault], tuple[Failure]]:  # an exception travels by its arguments
        return type(self), (self.failure,)


class Service(Protocol):
    """Answers tickets, in any order."""

    is_stepped: bool
    """True: it computes in `advance`, one step a call, in the caller's thread. The steps are the logical time."""

    @property
    def queued(self) -> Collection[int]:
        """Tickets that wait for room which other rollouts hold. They are not begun, so the driver does not wait."""
        ...

    def submit(self, ticket: int, payload: Any) -> None:
        """Make a request. No open one has the same ticket."""
        ...

    def advance(self, *, wait: bool) -> Sequence[tuple[int, Any]]:
        """The answers since the last call: tickets with their answers or failures.

        Args:
            wait: until there is an answer, if a request is open.
        """
        ...

    def done(self, payloads: Sequence[Any]) -> None:
        """The rollout of these requests has ended: what is held for it can be released."""
        ...

    def restart(self) -> None:
        """Drop all open requests: `advance` never returns them, and their tickets may be used again."""
        ...


@dataclass(eq=False, slots=True)
class _Job:
    """An open request of a pool."""

    ticket: int
    payload: Any
    begun: float | None = None
    """Start of its latest attempt, by `time.monotonic`. None: it waits for a thread."""
    is_dropped: bool = False
    """Its answer is no longer needed, and another thread replaces the one that works on it."""


class Pool:
    """A function of one payload, run by threads: environments, tools, a user's judge.

    An error, or a timeout, is a failure of its kind. A thread cannot be stopped: a late one's answer is dropped, and
    its payload is not retried. Another thread takes its place, so that the queue goes on. While `MAX_HUNG` threads are
    late, every new request fails at once.

    Args:
        kind: of failures by an error.
        workers: payloads at one time, without those of late threads.
        timeout_s: seconds of each attempt; waiting for a thread is not counted. None: no limit.
        retries: how often a failed attempt is repeated.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(
        self,
        answer: Callable[[Any], Any],
        *,
        kind: FaultKind = "env_error",
        workers: int = 32,
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> None:
        self.answer, self.kind, self.timeout_s, self.retries = answer, kind, timeout_s, retries
        self.workers = workers
        self.num_retried = 0
        self.num_hung = 0
        """Threads that work on dropped requests."""
        self._num_threads = self._num_idle = 0
        """Other threads, and those of them that wait for work."""
        self._jobs: dict[int, _Job] = {}
        """By ticket: queued or running."""
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
                answers = self._arrived()
                if answers or not wait or not self._jobs:
                    return answers
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
        answers, self._ended = sorted(self._ended, key=lambda answer: answer[0]), []
        now = time.monotonic()
        if self.timeout_s is None:
            return answers
        for job in [job for job in self._jobs.values() if self._is_late(job, now)]:
            self._drop(self._jobs.pop(job.ticket))
            self._staff()
            answers.append((job.ticket, self._timeout()))
        return answers

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
        """Start a thread for the queue, if there is room for one."""
        if self._num_idle < len(self._queue) and self._num_threads < self.workers:
            self._num_threads += 1
            # A daemon: otherwise a hung thread would keep the process from ending.
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
            except BaseException as error:  # an exit would end this thread silently
                has_failed = True
                answer = Failure(
                    kind=self.kind, reason=f"{type(error).__name__}: {text_of(error)}", trace=trace_of(error)
                )
            with self._lock:
                # Judged here: a busy caller looks late, so that a late answer would pass on slow machines only.
                if self._is_late(job, time.monotonic()):
                    return self._timeout()
                if not has_failed or attempt == self.retries or job.is_dropped:
                    return answer
                self.num_retried += 1
                job.begun = time.monotonic()
        raise AssertionError
