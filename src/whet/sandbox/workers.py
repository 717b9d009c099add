"""Worker processes that can be killed: requests in, answers out, each within its own wall-clock limit.

Graders run code that a model's text can send into an endless loop or out of memory, and Python cannot stop a thread.
So worker processes do the work, one JSON object a line over pipes. The parent keeps the clock. It replaces a worker
that is late or dies, and that worker's request comes back as a `Failure`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Literal

Json = dict[str, Any]
START_LIMIT_S = 120.0
"""A worker that takes longer to import what it needs is broken."""
PAUSES_S = (0.2, 1.0)
"""Pauses before a worker that died while it started is started again, as memory or processes may have been short. Once
they are used up, it is broken."""

NUM_WORKERS = max(3, min(4, os.cpu_count() or 1))
"""At a time, unless told otherwise: the cores, but enough for a few endless requests to cost one time limit."""


class WorkerError(RuntimeError):
    """No worker can be started: the tool is broken, and no request is to blame."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without an answer."""

    kind: Literal["timeout", "died", "broken"]
    """The worker was late, it died, or it says itself that it could not."""
    reason: str


class WorkerPool:
    """Up to `num_workers` processes that answer requests. They start as requests need them, and stay until `close`, the
    end of the program, or the pool itself is gone. A context manager; safe to share between threads, which then take
    turns.

    Args:
        command: starts a worker. It prints the line `ready`, then answers each line it reads (a JSON object) with one
            line (another). It must leave SIGINT alone and end when its input ends.
        timeout_s: wall-clock limit of a request, above 0.
        environment: variables of the workers, on top of ours.
        slots: requests that a worker has at a time. With more than one, they go through `exchange`.
        name: the workers' name in messages. None: their command.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        num_workers: int,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        slots: int = 1,
        name: str | None = None,
    ) -> None:
        if num_workers < 1 or slots < 1 or timeout_s <= 0:
            raise ValueError(
                f"num_workers={num_workers} and slots={slots} must be at least 1, and timeout_s={timeout_s} above 0"
            )
        self._command = tuple(command)
        self._name = name or f"the worker process {' '.join(command)}"
        self._num_workers = num_workers
        self._slots = slots
        self._timeout_s = timeout_s
        self._environment = {**os.environ, **(environment or {})}
        self._events: Events = SimpleQueue()
        self._workers: list[_Worker] = []
        self._num_lost_starts = 0  # in a row
        self._lock = threading.Lock()
        weakref.finalize(self, _stop_all, self._workers)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers and waits for them, after any `map` that is under way. Another one starts new workers."""
        with self._lock:
            _stop_all(self._workers)

    def map(self, requests: Sequence[Json]) -> list[Json | Failure]:
        """The answers, in the order of the requests.

        Raises: WorkerError where a worker cannot be started.
        """
        return self.exchange([json.dumps(request).encode() + b"\n" for request in requests])

    def exchange(self, payloads: Sequence[bytes]) -> list[Json | Failure]:
        """`map` for requests as the worker reads them. An answer whose `ticket` is n belongs to the n-th of them; from
        a worker with one slot it needs none.

        Raises: WorkerError.
        """
        with self._lock:
            try:
                return self._exchange(payloads)
            except BaseException:  # above all KeyboardInterrupt: no caller waits for the requests under way
                _stop_all(self._workers)
                raise

    def _exchange(self, payloads: Sequence[bytes]) -> list[Json | Failure]:
        answers: list[Json | Failure | None] = [None] * len(payloads)
        waiting = deque(range(len(payloads)))
        while not self._events.empty():  # of workers that ended, or wrote something, since nobody waited for them
            self._heard(*self._events.get())
        while waiting or any(worker.deadlines for worker in self._workers):
            self._staff(len(waiting))
            for worker in self._workers:
                while waiting and worker.ready and len(worker.deadlines) < self._slots:
                    index = waiting.popleft()
                    worker.send(index, payloads[index], self._timeout_s)
            for index, answer in self._next_answers():
                answers[index] = answer
        return [answer for answer in answers if answer is not None]

    def _staff(self, num_waiting: int) -> None:
        """Starts workers for requests that no slot is free for."""
        num_free = sum(self._slots - len(worker.deadlines) for worker in self._workers)
        num_missing = math.ceil((num_waiting - num_free) / self._slots)
        for _ in range(min(num_missing, self._num_workers - len(self._workers))):
            try:
                self._workers.append(_Worker(self._command, self._environment, self._events))
            except OSError as error:
                self._lost_start(str(error))

    def _lost_start(self, words: str) -> None:
        """Waits a while before the next try. Raises: WorkerError where there have been enough."""
        if self._num_lost_starts == len(PAUSES_S):
            self._num_lost_starts = 0
            raise WorkerError(f"{self._name} did not start: {words}")
        time.sleep(PAUSES_S[self._num_lost_starts])
        self._num_lost_starts += 1

    def _next_answers(self) -> list[tuple[int, Json | Failure]]:
        """Waits for one event: a line, the end of a worker, or a deadline."""
        first = min((worker.deadline for worker in self._workers), default=0.0)
        try:
            worker, line = self._events.get(timeout=min(max(first - time.monotonic(), 0.0), START_LIMIT_S))
        except Empty:
            late = [worker for worker in self._workers if worker.deadline <= time.monotonic()]
            limit = f"timed out after {self._timeout_s:g} s"
            return [answer for worker in late for answer in self._lost(worker, Failure("timeout", limit))]
        return self._heard(worker, line)

    def _heard(self, worker: _Worker, line: bytes) -> list[tuple[int, Json | Failure]]:
        """The answers that a line gives; an empty one is the end of a worker."""
        if worker not in self._workers:  # the last words of one that was stopped
            return []
        if not line:
            return self._lost(worker, Failure("died", "the worker process died, perhaps out of memory"))
        if not worker.ready:
            worker.ready, self._num_lost_starts = True, 0
            return []
        try:
            answer = json.loads(line)
            index = answer.pop("ticket") if self._slots > 1 else next(iter(worker.deadlines))
            del worker.deadlines[index]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, StopIteration):
            return self._lost(worker, Failure("broken", "wrote what is no answer where its answers belong"))
        return [(index, answer)]

    def _lost(self, worker: _Worker, failure: Failure) -> list[tuple[int, Json | Failure]]:
        """Takes a worker out; the requests that it had come back as the failure."""
        self._workers.remove(worker)
        words = worker.stop()
        if not worker.ready:
            self._lost_start(words or failure.reason)
        return [(index, failure) for index in worker.deadlines]


class _Worker:
    """One process, and a thread that passes its lines on. An empty line says that it ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], events: Events) -> None:
        self.ready = False
        self.deadlines: dict[int, float] = {}
        """Of the requests under way."""
        self._start_deadline = time.monotonic() + START_LIMIT_S
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                process_group=0 if os.name == "posix" else None,  # Ctrl-C at the terminal is for the parent alone
            )
        except OSError:
            self._errors.close()
            raise
        self._reader = threading.Thread(target=self._read, args=(events.put,), daemon=True)
        self._reader.start()

    @property
    def deadline(self) -> float:
        """When it is late, with its start or with the first of its requests."""
        return min(self.deadlines.values(), default=math.inf) if self.ready else self._start_deadline

    def _read(self, put: Callable[[tuple[_Worker, bytes]], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            put((self, line))
        put((self, b""))

    def send(self, index: int, payload: bytes, timeout_s: float) -> None:
        self.deadlines[index] = time.monotonic() + timeout_s
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(payload)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died just now; its end is on its way through the events

    def stop(self) -> str:
        """Kills the process and those that it started, waits for its end and closes every pipe. Returns the end of
        its stderr."""
        if os.name == "posix":
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass  # the rest of the buffer had no reader left
        with self._errors as errors:
            errors.seek(0)
            return errors.read().decode(errors="replace").strip()[-500:]


Events = SimpleQueue[tuple[_Worker, bytes]]


def _stop_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().stop()
