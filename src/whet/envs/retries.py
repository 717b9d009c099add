"""Environments for scripted agents: each call has a time limit, and a failed attempt is repeated in a new instance."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from whet.envs.protocol import EnvError, Environment, begun
from whet.errors import text_of

T = TypeVar("T")
SEED, SHOWN = 1, 80
"""The seed of compared resets, and the characters that a message quotes of each."""
_Jobs = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


CLOSE_S = 10.0
"""Seconds that an environment has to close, where no settings say."""


class Call(Protocol):
    """Calls a function of an environment, in the thread and within the time limit that belong to it."""

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...


def direct(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function in this thread, without a time limit."""
    return function(*args, **kwargs)


class Late(EnvError):
    """An environment did not answer in time."""


class Attempts:
    """An environment for attempts; after a failed one, a new environment replaces it.

    All its calls run in one thread, and coroutines in that thread's loop. A call that takes too long cannot be stopped:
    its thread and its environment are abandoned.

    Args:
        make: makes an environment, once one is needed.
        retries: how often a failed attempt is repeated.
        timeout_s: seconds of one call. None: no limit.
    """

    def __init__(self, make: Callable[[], Environment], *, retries: int = 0, timeout_s: float | None = None) -> None:
        self.retries, self.timeout_s = retries, timeout_s
        self._make = make
        self._env: Environment | None = None
        self._jobs: _Jobs | None = None

    def run(self, play: Callable[[Environment, Call], T]) -> T:
        """The result of the first attempt that does not fail.

        Args:
            play: gets an environment, and the `Call` through which it has to use it.
        Raises: Late, or whatever the last attempt raised.
        """
        for left in range(self.retries, -1, -1):
            try:
                if self._env is None:
                    self._env = self._called(self._make)
                return play(self._env, self._called)
            except Exception:
                self.close()
                if not left:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Close the environment. One that raises meanwhile is gone either way."""
        try:
            if self._env is not None and self._jobs is not None:  # without a thread it hangs
                self._called(self._env.close)
        except Exception:
            pass
        self._env = None
        self._leave()

    def _called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name="by rule", daemon=True).start()
        answer: Future[Any] = Future()
        self._jobs.put((answer, lambda: function(*args, **kwargs)))
        came = False
        try:
            came = bool(wait([answer], self.timeout_s).done)
        finally:  # also where the caller is interrupted
            if not came:
                self._leave()
        if not came:
            raise Late(f"no answer within {self.timeout_s:g} s (pool.timeout_s)")
        error = answer.exception()
        if error is not None and not isinstance(error, Exception):  # an environment may not end the run
            raise EnvError(f"{type(error).__name__}: {text_of(error)}") from error
        return answer.result()

    def _leave(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None


def close_within(closes: Sequence[Callable[[], Any]], timeout_s: float) -> int:
    """Call functions that close something, all at once, and wait for them together. Their errors are dropped.

    Args:
        timeout_s: seconds, for all of them.
    Returns: how many still hang. Their threads are daemons, so that they do not hold the process.
    """
    answers: list[Future[None]] = []
    for close in closes:
        answer: Future[None] = Future()
        answers.append(answer)
        threading.Thread(target=_close, args=(close, answer), name="close", daemon=True).start()
    return len(wait(answers, timeout_s).not_done)


def _close(close: Callable[[], Any], answer: Future[None]) -> None:
    with contextlib.suppress(BaseException):  # an exit would print on the console, and end nothing
        close()
    answer.set_result(None)


def beginnings(attempts: Attempts, items: Iterable[int]) -> list[str]:
    """The first observations of items. Items that fail are left out.

    Raises: the first error, where all items have failed.
    """

    def observed(item: int, env: Environment, call: Call) -> str:
        return begun(call(env.reset, item))[0]

    seen, failed = list[str](), list[Exception]()
    for item in items:
        try:
            seen.append(attempts.run(partial(observed, item)))
        except Exception as error:  # users' environments raise anything
            failed.append(error)
    if failed and not seen:
        raise failed[0]
    return seen


def other_start(attempts: Attempts, items: Iterable[int]) -> str | None:
    """Whether an environment begins one of the items in two ways under one seed. A sentence, or None.

    Items that cannot be begun are left out; `beginnings` reports those.
    """

    def twice(item: int, env: Environment, call: Call) -> tuple[str, str]:
        one, other = (begun(call(env.reset, item, seed=SEED))[0] for _ in range(2))
        return one, other

    for item in items:
        try:
            one, other = attempts.run(partial(twice, item))
        except Exception:  # users' environments raise anything
            continue
        if one != other:
            return (
                f"begins item {item} in two ways under one seed: {one[:SHOWN]!r} and {other[:SHOWN]!r}. Draw whatever "
                "it leaves to chance from item and seed in reset"
            )
    return None


def _work(jobs: _Jobs) -> None:
    with asyncio.Runner() as runner:
        while (job := jobs.get()) is not None:
            answer, function = job
            try:
                result = function()
                answer.set_result(runner.run(_awaited(result)) if inspect.isawaitable(result) else result)
            except BaseException as error:  # for the caller
                answer.set_exception(error)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
