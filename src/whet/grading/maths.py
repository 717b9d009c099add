"""Grades free-form mathematics: plain numbers here and exactly, everything else by Math-Verify in killable processes.

Math-Verify parses LaTeX and simplifies with SymPy, and both can run for hours on a short text such as `9^{9^{9^9}}`.
Its own time limit is an alarm that only the main thread can set and that a long C call ignores, so it is switched off
and the limit is kept from outside (see `workers`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from whet.grading.answers import choice, final_answer, is_choice, is_row_of_numbers, number, reference_answer, same_text
from whet.grading.workers import Failure, WorkerPool
from whet.types import Grade

_WORKER = Path(__file__).with_name("math_worker.py")
MAX_EXTRA_CHARS = 2000
"""An answer longer than its reference by more than this is none; a degenerate reply must not cost a time limit."""

Pair = tuple[str, str]
"""A cleaned answer and its cleaned reference."""


class MathGrader:
    r"""Compares the final answers of replies with references, numbers or LaTeX, also multiple-choice letters.

    The answer is what `answers.final_answer` finds. A reply without one scores 0. Percent and currency signs and units
    are not compared; sets (`1, 2`) and points are compared as such; plain numbers must be equal exactly, and decimals
    against other forms to six places. A reply that is its reference to the letter always scores 1.

    No score (`None`, with the reason) is given where the reference is empty or cannot be read, where Math-Verify
    breaks, and where it runs out of time or, unless it swallows that itself, of memory.

    A context manager. The processes start with the first answer that needs them, and end with `close`.

    Args:
        timeout_s: wall-clock limit of one comparison.
        memory_gib: address space of a worker, where the system can limit it. 0: no limit.
    """

    num_timeouts: int
    """Replies without a score because their comparison ran out of time."""

    def __init__(self, num_workers: int = 1, timeout_s: float = 5.0, *, memory_gib: float = 4.0) -> None:
        self.num_timeouts = 0
        self._timeout_s = timeout_s
        # -P: the worker's own folder is not on its path, where our `maths` or `types` could pass for another module.
        command = (sys.executable, "-P", str(_WORKER), str(memory_gib))
        self._pool = WorkerPool(command, num_workers=num_workers, timeout_s=timeout_s)

    def __enter__(self) -> MathGrader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def grade(self, items: Sequence[Pair]) -> list[Grade]:
        """Grades `(reply, reference)` pairs, in their order. Equal answers to equal references are compared once.

        Raises: WorkerError where the worker cannot be started, as when Math-Verify is not installed.
        """
        grades: dict[int, Grade] = {}
        hard: dict[Pair, list[int]] = {}
        for index, (reply, reference) in enumerate(items):
            pair, grade = _grade_easy(reply, reference)
            if grade is None:
                hard.setdefault(pair, []).append(index)
            else:
                grades[index] = grade
        for (answer, _), indices, outcome in zip(hard, hard.values(), self._compare(list(hard)), strict=True):
            for index in indices:
                grades[index] = self._as_grade(answer, outcome)
        return [grades[index] for index in range(len(items))]

    def _compare(self, pairs: Sequence[Pair]) -> list[dict[str, object] | Failure]:
        requests = [{"answer": a, "reference": r, "timeout_s": self._timeout_s} for a, r in pairs]
        return self._pool.map(requests)

    def _as_grade(self, answer: str, outcome: dict[str, object] | Failure) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            return Grade(score=None, reason=outcome.reason, extracted=answer)
        score = outcome["score"]
        assert score is None or isinstance(score, float), "the worker's protocol"
        return Grade(score=score, reason=str(outcome["reason"]), extracted=answer)


def _grade_easy(reply: str, reference: str) -> tuple[Pair, Grade | None]:
    """The cleaned pair, and its grade where that takes no mathematics."""
    gold = reference_answer(reference)
    if not gold:
        return ("", gold), Grade(score=None, reason="the reference is empty")
    if same_text(reply, reference):
        return (gold, gold), Grade(score=1.0, extracted=gold)
    answer = final_answer(reply)
    if answer is None:
        return ("", gold), Grade(score=0.0, reason="no final answer found")
    pair = (answer, gold)
    if same_text(answer, gold):
        return pair, Grade(score=1.0, extracted=answer)
    if len(answer) > len(gold) + MAX_EXTRA_CHARS:
        return pair, Grade(score=0.0, reason=f"the answer has {len(answer)} characters", extracted=answer[:100])
    if is_row_of_numbers(answer):
        return pair, Grade(score=0.0, reason="several numbers side by side", extracted=answer)
    numbers = number(answer), number(gold)
    if None not in numbers:
        return pair, Grade(score=float(numbers[0] == numbers[1]), extracted=answer)
    picked = choice(answer) if is_choice(gold) else None
    if picked is not None:
        return pair, Grade(score=float(picked == choice(gold)), extracted=picked)
    return pair, None
