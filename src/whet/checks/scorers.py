"""Scores replies by a grader or a reward term, and says what went wrong where there is no number."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from whet.errors import WhetError
from whet.grading import GRADERS, make_grader
from whet.grading.user import UserFunction
from whet.plugin_modules import PREFIX
from whet.rewards import REWARDS
from whet.sandbox.workers import Failure, WorkerError, WorkerPool
from whet.tasks.files import DataError
from whet.types import Grade, Task

Kind = Literal["grader", "reward"]
MATHEMATICS = "math_verify"
GRADE_LIMIT_S = 1.0
"""Of the grade in the episode that a reward term gets."""
_WORKER = Path(__file__).with_name("reward_worker.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reward gave for one reply."""

    value: float | None
    trouble: str = ""
    """Where there is no value: crashed, hung, no score, no number, not finite, or out of range."""
    reason: str = ""
    seconds: float = 0.0


class Scorer(Protocol):
    """Scores replies one after the other."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    def score(self, reply: str, task: Task) -> Outcome: ...

    def restart(self) -> None:
        """Starts again in a fresh process, where there is one."""
        ...

    def close(self) -> None: ...


class RewardTestError(WhetError):
    """A reward cannot be tested."""

    exit_code = 2


def scorer_of(kind: Kind, name: str, tasks: Sequence[Task], timeout_s: float) -> Scorer:
    """The scorer of a registered grader or reward term.

    Args:
        tasks: those that it will be asked about.
        timeout_s: wall-clock seconds of one call.
    Raises: UnknownName; DataError where rows lack a column that a grader asks for.
    """
    if name == "reasoning_gym":
        raise RewardTestError("reasoning_gym scores the questions of its own generators alone: name another grader")
    if name == MATHEMATICS:
        return MathScorer(timeout_s)
    function = GRADERS.get(name) if kind == "grader" else None
    if isinstance(function, UserFunction):
        try:
            function.wishes.check(function.title, tasks)
        except DataError as error:
            raise DataError(f"{error}; or give rows that have it, with --data FILE") from error
    return FunctionScorer(kind, name, timeout_s)


class MathScorer:
    """The grader of mathematics, whose worker processes have limits of their own."""

    name = MATHEMATICS
    kind: Kind = "grader"

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._grader = make_grader(MATHEMATICS, timeout_s=timeout_s)

    def score(self, reply: str, task: Task) -> Outcome:
        begun = time.monotonic()
        try:
            (grade,) = self._grader.grade([(reply, task)])
        except Exception as error:
            return Outcome(None, "crashed", f"raised {type(error).__name__}: {str(error)[:200]}")
        seconds = time.monotonic() - begun
        if grade.score is None:
            return Outcome(None, "no score", grade.reason[:200], seconds)
        return Outcome(grade.score, seconds=seconds)

    def restart(self) -> None:
        self.close()
        self._grader = make_grader(MATHEMATICS, timeout_s=self._timeout_s)

    def close(self) -> None:
        self._grader.close()


class FunctionScorer:
    """A function or a grader without processes, in a worker process that is killed where it hangs.

    A reward term gets an episode of one reply. Its grade is `math_verify`'s.
    """

    def __init__(self, kind: Kind, name: str, timeout_s: float) -> None:
        self.kind: Kind = kind
        self.name = name
        entry = (GRADERS if kind == "grader" else REWARDS).entry(name)
        file = entry.origin if entry.module.startswith(PREFIX) else ""
        place = {"kind": kind, "name": name, "module": entry.module, "file": file, "timeout_s": timeout_s}
        self._command = (sys.executable, "-P", str(_WORKER), json.dumps(place))
        self._timeout_s = timeout_s
        self._num_starts = 0
        self._grader = make_grader(MATHEMATICS, timeout_s=GRADE_LIMIT_S) if kind == "reward" else None
        self._pool = self._start()

    def score(self, reply: str, task: Task) -> Outcome:
        request = {"reply": reply, "task": _plain(task), "grade": self._graded(reply, task)}
        begun = time.monotonic()
        try:
            (answer,) = self._pool.map([request])
        except WorkerError as error:
            raise RewardTestError(f"the {self.kind} {self.name!r} cannot be called: {error}") from error
        seconds = time.monotonic() - begun
        if not isinstance(answer, Failure):
            return Outcome(answer.get("value"), answer.get("trouble", ""), answer.get("reason", ""), seconds)
        if answer.kind == "timeout":
            return Outcome(None, "hung", f"took more than {self._timeout_s:g} s, and was killed", seconds)
        return Outcome(None, "crashed", "ended its process, or ran it out of memory", seconds)

    def restart(self) -> None:
        self._pool.close()
        self._pool = self._start()

    def close(self) -> None:
        self._pool.close()
        if self._grader is not None:
            self._grader.close()

    def _start(self) -> WorkerPool:
        """Each start hashes texts by another seed, as two runs of Python do."""
        self._num_starts += 1
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {"PYTHONPATH": path, "PYTHONHASHSEED": str(self._num_starts)}
        return WorkerPool(
            self._command, num_workers=1, timeout_s=self._timeout_s, environment=environment, name="its worker process"
        )

    def _graded(self, reply: str, task: Task) -> dict[str, Any] | None:
        if self._grader is None:
            return None
        (grade,) = self._grader.grade([(reply, task)])
        return _plain(grade)


def _plain(record: Task | Grade) -> dict[str, Any]:
    """Its fields, for JSON."""
    return json.loads(json.dumps(asdict(record), default=str))
