"""A thread for each environment that may block, with a time limit on its calls."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from whet.envs.protocol import EnvError
from whet.errors import text_of

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Late(Exception):
    """An environment did not answer in time. Its thread may still be at work."""


class Thread:
    """Calls functions in a thread of its own, one at a time. Coroutines run in that thread's loop.

    The thread starts with the first call. It is a daemon, so that one that hangs does not hold the process.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] | None = None

    async def call(self, function: Callable[[], Any], timeout_s: float | None) -> Any:
        """The function's answer.

        Args:
            timeout_s: seconds. None: no limit.
        Raises: Late, or what the function raised.
        """
        answer = self._submit(function)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            if answer.done() and not answer.cancelled():  # the function's own error
                raise
            raise Late from error

    def end(self, close: Callable[[], Any]) -> asyncio.Future[Any]:
        """Calls a last function once the present call has returned, and ends the thread.

        Returns: when it has ended, the function's answer.
        """
        ended = self._submit(close)
        assert self._jobs is not None
        self._jobs.put(None)
        return ended

    def _submit(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name="environment", daemon=True).start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((loop, answer, function))
        return answer


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    runner: asyncio.Runner | None = None
    while (job := jobs.get()) is not None:
        loop, answer, function = job
        result, problem = None, None
        try:
            result = function()
            if inspect.isawaitable(result):
                runner = runner or asyncio.Runner()
                result = runner.run(_awaited(result))
        except Exception as error:
            problem = error
        except BaseException as error:  # an environment may not end the server
            problem = EnvError(f"{type(error).__name__}: {text_of(error)}")
        try:
            loop.call_soon_threadsafe(_tell, answer, result, problem)
        except RuntimeError:  # the server has stopped
            break
        del job, answer, function, result, problem  # or this thread would keep the environment while it waits
    if runner is not None:
        runner.close()


def _tell(answer: asyncio.Future[Any], result: Any, problem: Exception | None) -> None:
    if answer.done():  # nobody waits any more
        return
    if problem is None:
        answer.set_result(result)
    else:
        answer.set_exception(problem)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
