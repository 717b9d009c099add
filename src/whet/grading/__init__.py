"""Grading: text in, `Grade` out. Exact checks, mathematics by Math-Verify, puzzles by reasoning-gym, verdicts of
critiques, published verifiers.

A grader never runs in the dark: what it could not grade has no score and a reason, and no reply can make it hang.
Nothing here needs torch; Math-Verify and reasoning-gym are imported by worker processes only, and they start with the
first answer that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, get_args

from whet.grading.gym import GymGrader
from whet.grading.maths import MathGrader
from whet.grading.published import SET_NAMES, SetName, extract, same_answer
from whet.sandbox.workers import NUM_WORKERS
from whet.tasks.chains import ANSWER_LINE
from whet.types import Grade, Task

__all__ = ["ChainGrader", "Grader", "GymGrader", "MathTaskGrader", "PublishedGrader", "make_grader"]

GRADER_NAMES = ("chains", "math_verify", *(f"published:{name}" for name in SET_NAMES), "reasoning_gym")


class Grader(Protocol):
    """Grades replies to tasks."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        """One grade a reply, in order. A task without a reference answer gives no score."""
        ...

    def close(self) -> None:
        """Frees what the grader holds, such as processes. To be called once it is done with."""
        ...


def make_grader(name: str, *, timeout_s: float = 5.0, num_workers: int = NUM_WORKERS) -> Grader:
    """The grader of that name, one of `GRADER_NAMES`.

    Args:
        timeout_s, num_workers: of `math_verify` and `reasoning_gym`; the others do without. Workers start as answers
            need them.
    Raises: ValueError for another name.
    """
    if name == "chains":
        return ChainGrader()
    if name == "math_verify":
        return MathTaskGrader(timeout_s=timeout_s, num_workers=num_workers)
    if name == "reasoning_gym":
        return GymGrader(timeout_s=timeout_s, num_workers=num_workers)
    for set_name in get_args(SetName):
        if name == f"published:{set_name}":
            return PublishedGrader(set_name)
    raise ValueError(f"there is no grader {name!r}; choose one of {', '.join(GRADER_NAMES)}")


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
        known = [(reply, task) for reply, task in items if task.answer is not None]
        pairs = [(reply, task.answer or "") for reply, task in known]
        grades = iter(self._maths.grade(pairs, questions=[task.prompt for _, task in known]))
        return [_without_reference(task) or next(grades) for _, task in items]

    def close(self) -> None:
        self._maths.close()


class PublishedGrader:
    """The published rule-based verifier, for comparison with published numbers. See `published`."""

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
