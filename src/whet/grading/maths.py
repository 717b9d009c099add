"""Grades free-form mathematics: `mathgrade` reads the answers, and compares them in processes that can be killed.

Math-Verify parses LaTeX and simplifies with SymPy, and both can run for hours on a short text such as `9^{9^{9^9}}`.
Its time limit is an alarm that only the main thread can set and that a long C call ignores. So it is switched off, and
the limit is kept from outside (`whet.sandbox.workers`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mathgrade import Comparison, Result, examine
from whet.sandbox.workers import NUM_WORKERS, Failure, WorkerPool
from whet.types import Grade

_WORKER = Path(__file__).with_name("math_worker.py")
Item = tuple[str, str]
"""A reply and its reference."""
Outcome = dict[str, Any] | Failure
"""A worker's answer to a comparison."""


class MathGrader:
    r"""Compares the final answers of replies with references, numbers or LaTeX, also multiple-choice letters.

    `mathgrade.grade` says what an answer is and what is equal; this adds the limits. A reply that runs the comparison
    with a readable reference out of time or memory is wrong (score 0, `Grade.exhausted`). No score (`None`, with the
    reason) is given where the reference is empty or cannot be read. The same holds where even a plain number cannot be
    compared with it within the limits.

    A context manager. The processes start with the first answer that needs them, and end with `close`.

    Args:
        timeout_s: wall-clock limit of one comparison.
        memory_gib: address space of a worker, where the system can limit it. 0: no limit.
    """

    num_timeouts: int
    """Replies without a score because even their reference ran out of time."""

    def __init__(self, num_workers: int = NUM_WORKERS, timeout_s: float = 5.0, *, memory_gib: float = 4.0) -> None:
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

    def grade(self, items: Sequence[Item], *, questions: Sequence[str] | None = None) -> list[Grade]:
        """Grades `(reply, reference)` pairs, in their order. Equal answers to equal references are compared once.

        Args:
            questions: one an item. The noun that a question counts (`How many kumquats ...?`) may follow its answer.
        Raises: WorkerError where the worker cannot be started, as when Math-Verify is not installed.
        """
        texts = questions if questions is not None else [""] * len(items)
        grades: dict[int, Grade] = {}
        hard: dict[Comparison, list[int]] = {}
        for index, ((reply, reference), question) in enumerate(zip(items, texts, strict=True)):
            examined = examine(reply, reference, question=question)
            if isinstance(examined, Result):
                grades[index] = _as_grade(examined)
            else:
                hard.setdefault(examined, []).append(index)
        for comparison, outcome in zip(hard, self._compare(list(hard)), strict=True):
            for index in hard[comparison]:
                grades[index] = self._grade_of(comparison, outcome)
        return [grades[index] for index in range(len(items))]

    def _compare(self, comparisons: Sequence[Comparison]) -> list[Outcome]:
        """The workers' answers. Where one was lost, the reference is compared with a plain number: if that goes well,
        the answer was to blame."""
        outcomes = self._ask(comparisons)
        controls = list(
            dict.fromkeys(
                comparison.control()
                for comparison, outcome in zip(comparisons, outcomes, strict=True)
                if isinstance(outcome, Failure)
            )
        )
        fine = {
            control
            for control, outcome in zip(controls, self._ask(controls), strict=True)
            if not isinstance(outcome, Failure) and outcome["score"] is not None
        }
        blamed = {"score": 0.0, "exhausted": True}
        return [
            {**blamed, "reason": outcome.reason}
            if isinstance(outcome, Failure) and comparison.control() in fine
            else outcome
            for comparison, outcome in zip(comparisons, outcomes, strict=True)
        ]

    def _ask(self, comparisons: Sequence[Comparison]) -> list[Outcome]:
        return self._pool.map([{**comparison.request(), "timeout_s": self._timeout_s} for comparison in comparisons])

    def _grade_of(self, comparison: Comparison, outcome: Outcome) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            return Grade(score=None, reason=outcome.reason, extracted=comparison.answer.key)
        return _as_grade(comparison.result(outcome))


def _as_grade(result: Result) -> Grade:
    return Grade(score=result.score, reason=result.reason, extracted=result.extracted, exhausted=result.exhausted)
