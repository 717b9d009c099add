"""Worlds for players by rule, which are no flows: each call is given so long, and what fails is tried again in a new
world."""

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
"""Of resets that are compared, and characters that a sentence quotes of each."""
_Jobs = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


CLOSE_S = 10.0
"""Seconds that an environment has to close, where no settings say."""


class Call(Protocol):
    """Calls a function of a world, in whatever place and time that world is to be called."""

    def __call__(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any: ...


def direct(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Here and now."""
    return function(*given, **named)


class Late(EnvError):
    """A world did not answer in time."""


class Attempts:
    """A world in which things are tried; where one of them fails, a new world takes its place.

    All that is asked of it runs in one thread, and what answers by coroutines in that thread's loop. A call that takes
    too long cannot be stopped: its thread and its world are left to themselves.

    Args:
        make: makes a world, once one is needed.
        retries: how often what failed is tried again.
        timeout_s: of one call. None: no limit.
    """

    def __init__(self, make: Callable[[], Environment], *, retries: int = 0, timeout_s: float | None = None) -> None:
        self.retries, self.timeout_s = retries, timeout_s
        self._make = make
        self._env: Environment | None = None
        self._jobs: _Jobs | None = None

    def run(self, play: Callable[[Environment, Call], T]) -> T:
        """What a play comes to that does not fail.

        Args:
            play: of a world; whatever it asks of it goes through the call that it is given.
        Raises: Late, or whatever the last try raised.
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
        """Let the world go; one that raises as it is closed is gone either way."""
        try:
            if self._env is not None and self._jobs is not None:  # without a thread it hangs
                self._called(self._env.close)
        except Exception:
            pass
        self._env = None
        self._leave()

    def _called(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name="by rule", daemon=True).start()
        answer: Future[Any] = Future()
        self._jobs.put((answer, lambda: function(*given, **named)))
        came = False
        try:
            came = bool(wait([answer], self.timeout_s).done)
        finally:  # also where the one who waits is interrupted
            if not came:
                self._leave()
        if not came:
            raise Late(f"no answer within {self.timeout_s:g} s (pool.timeout_s)")
        error = answer.exception()
        if error is not None and not isinstance(error, Exception):  # a world may not end the run
            raise EnvError(f"{type(error).__name__}: {text_of(error)}") from error
        return answer.result()

    def _leave(self) -> None:
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None


def close_within(closes: Sequence[Callable[[], Any]], timeout_s: float) -> int:
    """Call functions that close something, all at once, and wait for them together. What they raise is dropped: what
    they close is gone either way.

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
    with contextlib.suppress(BaseException):  # one that exits would say so on the console, and end nothing
        close()
    answer.set_result(None)


def beginnings(attempts: Attempts, items: Iterable[int]) -> list[str]:
    """The first observations of items. A world may fail now and then, as it may in play.

    Raises: what the first of them met, where all have failed.
    """

    def observed(item: int, env: Environment, call: Call) -> str:
        return begun(call(env.reset, item))[0]

    seen, failed = list[str](), list[Exception]()
    for item in items:
        try:
            seen.append(attempts.run(partial(observed, item)))
        except Exception as error:  # the world is anybody's
            failed.append(error)
    if failed and not seen:
        raise failed[0]
    return seen


def other_start(attempts: Attempts, items: Iterable[int]) -> str | None:
    """Whether a world begins one of the items in two ways under one seed. A sentence, or None.

    An item that cannot be begun is left: `beginnings` asks for those.
    """

    def twice(item: int, env: Environment, call: Call) -> tuple[str, str]:
        one, other = (begun(call(env.reset, item, seed=SEED))[0] for _ in range(2))
        return one, other

    for item in items:
        try:
            one, other = attempts.run(partial(twice, item))
        except Exception:  # the world is anybody's
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
                found = function()
                answer.set_result(runner.run(_awaited(found)) if inspect.isawaitable(found) else found)
            except BaseException as error:  # for the one who asked
                answer.set_exception(error)


async def _awaited(found: Any) -> Any:
    return await found
