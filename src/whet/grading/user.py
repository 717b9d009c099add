"""Users' graders: a function that a plug-in registers, called in worker processes that can be killed.

The code is the user's, so no sandbox is around it. The processes are there because code that looks at replies can hang
or die of one. Such a reply gets no score, and is counted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from whet.grading.wishes import Wishes, missing_column
from whet.plugin_modules import PREFIX
from whet.plugins import PluginError, as_loaded
from whet.registry import Registry
from whet.sandbox.workers import NUM_WORKERS, Failure, Json, WorkerError, WorkerPool
from whet.types import Grade, Task

logger = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

_WORKER = Path(__file__).with_name("user_worker.py")


class Grader(Protocol):
    """Grades replies to tasks."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        """One grade a reply, in order. A task without a reference answer gives no score, unless none is needed."""
        ...

    def close(self) -> None:
        """Frees resources such as processes. To be called after the last use."""
        ...


class GraderMaker(Protocol):
    def __call__(self, *, timeout_s: float, num_workers: int) -> Grader: ...


GRADERS: Registry[GraderMaker] = Registry("grader")
"""Makers of graders, by name. See `whet.grading.make_grader`."""


def grader(name: str, *, says: str = "") -> Callable[[F], F]:
    """Registers a function that scores one reply, for `data.grader: NAME` in a config:

        @grader("mine")
        def score(completion: str, answer: str, **info) -> float:
            return float(answer in completion)

    Its parameters name what it gets: `completion` (the reply), `answer` (the task's reference), `prompt`, `task_id`,
    `info` (the row's other columns), or a key of info. `**` takes the rest. A run whose rows lack a column that the
    function has no default for does not begin. It may be async.
    It returns a number in [0, 1], or a `Grade`; a Grade whose score is None says that it could not tell. Where it has
    no default for `answer`, tasks without a reference get no score. Whatever else it does (raise, hang, exit, give NaN)
    is no score either: counted, shown with its reason, and left out of training.

    Args:
        says: a line about it. Empty: the docstring's first one.
    Raises: ValueError where it cannot be called like that.
    """

    def register(function: F) -> F:
        doc = (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
        GRADERS.add(name, UserFunction(name, function, Wishes.of(name, function)), says=says or doc)
        return function

    return register


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A registered function; called, it makes its grader."""

    name: str
    function: Callable[..., Any]
    wishes: Wishes

    @property
    def title(self) -> str:
        return f"grader {self.name!r} ({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def __call__(self, *, timeout_s: float, num_workers: int) -> UserGrader:
        return UserGrader(self, timeout_s=timeout_s, num_workers=num_workers)


class UserGrader:
    """Calls a registered function on every reply, in worker processes that import its module again.

    A context manager. The processes start with the first reply, and end with `close`. Importing counts into no reply's
    time; loading in the first call does.

    Args:
        timeout_s: wall-clock limit of one call.
        num_workers: calls at a time, each in a separate process.
    Raises: PluginError where another process cannot find the function.
    """

    num_timeouts: int
    """Replies without a score because the function took too long."""

    def __init__(self, function: UserFunction, *, timeout_s: float = 5.0, num_workers: int = NUM_WORKERS) -> None:
        self.num_timeouts = 0
        self._function = function
        self._has_warned = False
        # -P: our `types` must not pass for Python's. The worker gets our path.
        command = (sys.executable, "-P", str(_WORKER), json.dumps({**_place(function), "timeout_s": timeout_s}))
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._pool = WorkerPool(
            command,
            num_workers=num_workers,
            timeout_s=timeout_s,
            environment={"PYTHONPATH": path},
            name="its worker process",
        )

    def __enter__(self) -> UserGrader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        """One grade a reply, in order.

        Raises: PluginError where a worker cannot be started.
        """
        payloads = [self._payload(reply, task) for reply, task in items]
        try:
            outcomes = iter(self._pool.exchange([payload for payload in payloads if isinstance(payload, bytes)]))
        except WorkerError as error:
            raise PluginError(f"{self._function.title}: {str(error).splitlines()[-1]}") from error
        grades = [payload if isinstance(payload, Grade) else self._as_grade(next(outcomes)) for payload in payloads]
        for grade in grades:
            if grade.score is None and not self._has_warned:
                self._has_warned = True
                logger.warning("a reply has no score, and is left out: %s", grade.reason)
        return grades

    def check(self, tasks: Iterable[Task]) -> None:
        """Checks that the tasks have all columns that the function needs, before anything is graded.

        Raises: DataError, with the column, the first row without it, and what that row has.
        """
        self._function.wishes.check(self._function.title, tasks)

    def _payload(self, reply: str, task: Task) -> bytes | Grade:
        """A request, or the reason why the function cannot be asked."""
        wishes = self._function.wishes
        if task.answer is None and "answer" in wishes.needed:
            return Grade(score=None, reason=f"task {task.id} has no reference answer")
        if (name := wishes.lacking(task)) is not None:
            return _unscored(missing_column(self._function.title, name, task))
        try:
            return json.dumps(wishes.arguments(reply, task)).encode() + b"\n"
        except (TypeError, ValueError) as error:
            return _unscored(f"the {self._function.title} cannot be given task {task.id}: {error}")

    def _as_grade(self, outcome: Json | Failure) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            ended = "ended its process, or ran it out of memory" if outcome.kind == "died" else outcome.reason
            advice = "; raise data.timeout_s if it needs longer" if outcome.kind == "timeout" else ""
            return _unscored(f"the {self._function.title} {ended}{advice}")
        return Grade(**outcome)


def _unscored(reason: str) -> Grade:
    return Grade(score=None, reason=reason)


def _place(function: UserFunction) -> dict[str, Any]:
    """Where a worker finds the function: it is registered by name when the worker imports the module."""
    entry = GRADERS.entry(function.name)
    module = entry.module
    if module == "__main__":
        raise PluginError(
            f"the {function.title} was registered by a script or a notebook, where its worker process cannot find it: "
            "put it into a file of its own, and name that file under plugins"
        )
    if not module.startswith(PREFIX):
        return {"name": function.name, "module": module, "file": ""}
    # Also where a module that the plug-in imports has registered it.
    plugin, neighbours = as_loaded(Path(entry.origin))
    return {"name": function.name, "module": plugin.__name__, "file": entry.origin, "neighbours": dict(neighbours)}
