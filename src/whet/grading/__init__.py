"""Grading: text in, `Grade` out. Exact checks, mathematics by `mathgrade`, puzzles by reasoning-gym, verdicts of
critiques, published verifiers, and users' functions.

A reply that could not be graded has no score and a reason, and no reply can make a grader hang. Nothing here needs
torch. Math-Verify, reasoning-gym and users' functions run in worker processes only, which start with the first answer
that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import get_args

from mathgrade.published import SetName, extract, same_answer
from whet.grading.adapters import from_trl, from_verl
from whet.grading.basics import BasicsGrader
from whet.grading.gym import GymGrader
from whet.grading.maths import MathGrader
from whet.grading.user import GRADERS, Grader, GraderMaker, UserGrader, grader
from whet.sandbox.workers import NUM_WORKERS
from whet.tasks.chains import ANSWER_LINE
from whet.types import Grade, Task

__all__ = [
    "GRADERS",
    "BasicsGrader",
    "ChainGrader",
    "Grader",
    "GymGrader",
    "MathTaskGrader",
    "PublishedGrader",
    "UserGrader",
    "from_trl",
    "from_verl",
    "grader",
    "make_grader",
]


def make_grader(name: str, *, timeout_s: float = 5.0, num_workers: int = NUM_WORKERS) -> Grader:
    """The grader of that name, one of ours or of a plug-in's (`GRADERS`).

    Args:
        timeout_s, num_workers: for graders with worker processes; the others ignore them. Workers start as answers
            need them.
    Raises: UnknownName for another name.
    """
    return GRADERS.get(name)(timeout_s=timeout_s, num_workers=num_workers)


class ChainGrader:
    """Exact, for the tiny world: the last line must be `The answer is D` with D the digit, and nothing else."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        return [_without_reference(task) or self._grade(reply, task.answer) for reply, task in items]

    def close(self) -> None:
        """Holds nothing."""

    def _grade(self, reply: str, answer: str | None) -> Grade:
        match = re.fullmatch(rf"{ANSWER_LINE} ([0-9])", reply.rpartition("\n")[2])
        if not match:
            return Grade(score=0.0, reason=f"the last line is not '{ANSWER_LINE} D'")
        return Grade(score=float(match[1] == answer), extracted=match[1])


class MathTaskGrader:
    """`MathGrader` for tasks."""

    def __init__(self, *, timeout_s: float = 5.0, num_workers: int = NUM_WORKERS) -> None:
        self._maths = MathGrader(num_workers, timeout_s)

    @property
    def num_timeouts(self) -> int:
        """Replies without a score because their comparison ran out of time."""
        return self._maths.num_timeouts

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        answerable = [(reply, task) for reply, task in items if task.answer is not None]
        pairs = [(reply, task.answer or "") for reply, task in answerable]
        grades = iter(self._maths.grade(pairs, questions=[task.prompt for _, task in answerable]))
        return [_without_reference(task) or next(grades) for _, task in items]

    def close(self) -> None:
        self._maths.close()


class PublishedGrader:
    """The published rule-based verifier, for comparison with published numbers. See `mathgrade.published`."""

    def __init__(self, set_name: SetName) -> None:
        self._set_name = set_name

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        return [_without_reference(task) or self._grade(reply, task.answer or "") for reply, task in items]

    def close(self) -> None:
        """Holds nothing."""

    def _grade(self, reply: str, answer: str) -> Grade:
        # The rules expect a worked solution; on a bare answer such as \frac{1}{2} they would take its last number.
        reference = f"\\boxed{{{answer}}}" if self._set_name == "math" else f"The answer is {answer}"
        same = same_answer(self._set_name, reference, reply)
        return Grade(score=float(same), extracted=extract(self._set_name, reply) or None)


def _without_reference(task: Task) -> Grade | None:
    if task.answer is not None:
        return None
    return Grade(score=None, reason=f"task {task.id} has no reference answer")


def _without_workers(make: Callable[[], Grader]) -> GraderMaker:
    def maker(*, timeout_s: float, num_workers: int) -> Grader:
        return make()

    return maker


GRADERS.add("chains", _without_workers(ChainGrader), says="The tiny world's: the last line is the answer, exactly.")
GRADERS.add("basics", _without_workers(BasicsGrader), says="Numbers and lists of words, exactly.")
GRADERS.add("math_verify", MathTaskGrader, says="Numbers exactly, other mathematics by Math-Verify.")
for _name in get_args(SetName):
    GRADERS.add(
        f"published:{_name}",
        _without_workers(partial(PublishedGrader, _name)),
        says="By the rules of the authors' code, to compare with its numbers.",
    )
GRADERS.add("reasoning_gym", GymGrader, says="By the scorer of the generator that made the question.")
