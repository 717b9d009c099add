"""Grades free-form mathematics: plain numbers here and exactly, everything else by Math-Verify in killable processes.

Math-Verify parses LaTeX and simplifies with SymPy, and both can run for hours on a short text such as `9^{9^{9^9}}`.
Its own time limit is an alarm that only the main thread can set and that a long C call ignores, so it is switched off
and the limit is kept from outside (`whet.sandbox.workers`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.grading.answers import Answer, find_answer, find_reference, key_of
from whet.grading.options import choice, is_choice
from whet.grading.reading import Member, Reading, Unreadable
from whet.grading.reading.phrases import changes_value
from whet.grading.texts import is_prose, same_text
from whet.sandbox.workers import NUM_WORKERS, Failure, WorkerPool
from whet.types import Grade

_WORKER = Path(__file__).with_name("math_worker.py")
MAX_EXTRA_CHARS = 2000
"""An answer longer than its reference by more than this is none; a degenerate reply must not cost a time limit."""

ANOTHER = "another value than the reference's"
"""Said of an answer that was read and is wrong."""
Item = tuple[str, str]
"""A reply and its reference."""
Comparison = dict[str, Any] | Failure


class MathGrader:
    r"""Compares the final answers of replies with references, numbers or LaTeX, also multiple-choice letters.

    The answer is what `answers.find_answer` finds, and all of it has to be accounted for (`reading`): a reply without
    one, or with one that cannot be accounted for, scores 0. Percent and currency signs and units are compared where
    both sides have one; sets (`1, 2`) and points are compared as such; plain numbers must be equal exactly, and
    decimals against other forms to six places, and to six digits below 0.1. A reply that is its reference to the letter
    always scores 1.

    Whose fault a failure is: where the reference was read and it is the reply that runs the comparison out of time or
    memory, the reply is wrong (score 0, `Grade.exhausted`). No score (`None`, with the reason) is given where the
    reference is empty or cannot be read, or where even a plain number cannot be held against it within the limits.

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
            questions: one an item; what a question counts (`How many kumquats ...?`) may stand behind its answer.
        Raises: WorkerError where the worker cannot be started, as when Math-Verify is not installed.
        """
        asked = questions if questions is not None else [""] * len(items)
        grades: dict[int, Grade] = {}
        hard: dict[tuple[Reading, Reading], list[int]] = {}
        for index, ((reply, reference), question) in enumerate(zip(items, asked, strict=True)):
            found = _grade_easy(reply, reference, counted_nouns(question))
            if isinstance(found, Grade):
                grades[index] = found
            else:
                hard.setdefault(found, []).append(index)
        for (answer, _), indices, outcome in zip(hard, hard.values(), self._compare(list(hard)), strict=True):
            for index in indices:
                grades[index] = self._as_grade(answer.key, outcome)
        return [grades[index] for index in range(len(items))]

    def _compare(self, pairs: Sequence[tuple[Reading, Reading]]) -> list[Comparison]:
        """What the workers say. Where one was lost, the reference is held against a plain number: if that goes well,
        the answer was to blame."""
        outcomes = self._pool.map([self._request(answer, gold) for answer, gold in pairs])
        lost = {gold: None for (_, gold), outcome in zip(pairs, outcomes, strict=True) if isinstance(outcome, Failure)}
        controls = self._pool.map([self._request(_PLAIN, gold) for gold in lost])
        fine = {
            gold
            for gold, outcome in zip(lost, controls, strict=True)
            if not isinstance(outcome, Failure) and outcome["score"] is not None
        }
        blamed = {"score": 0.0, "exhausted": True}
        return [
            {**blamed, "reason": outcome.reason} if isinstance(outcome, Failure) and gold in fine else outcome
            for (_, gold), outcome in zip(pairs, outcomes, strict=True)
        ]

    def _request(self, answer: Reading, gold: Reading) -> dict[str, Any]:
        return {"answer": _members(answer), "reference": _members(gold), "timeout_s": self._timeout_s}

    def _as_grade(self, answer: str, outcome: Comparison) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            return Grade(score=None, reason=outcome.reason, extracted=answer)
        reason = outcome["reason"] or (ANOTHER if outcome["score"] == 0 else "")
        return Grade(score=outcome["score"], reason=reason, extracted=answer, exhausted=outcome["exhausted"])


_PLAIN = Reading((Member(("7",)),))


def _members(reading: Reading) -> list[dict[str, Any]]:
    return [{**asdict(m), "unit": [m.unit.dimension, str(m.unit.size)]} for m in reading.members]


def _grade_easy(reply: str, reference: str, nouns: frozenset[str]) -> Grade | tuple[Reading, Reading]:
    """The grade, where that takes no mathematics, else what answer and reference say."""
    wanted = find_reference(reference)
    if not wanted.text.strip(" \t\n$"):
        return Grade(score=None, reason="the reference is empty")
    if same_text(reply, reference):
        return Grade(score=1.0, extracted=key_of(wanted, nouns))
    found = find_answer(reply)
    if found is None:
        return Grade(score=0.0, reason="no final answer found")
    if len(found.text) > len(wanted.text) + MAX_EXTRA_CHARS:
        return Grade(score=0.0, reason=f"the answer has {len(found.text)} characters", extracted=found.text[:100])
    if same_text(found.text, wanted.text):
        return Grade(score=1.0, extracted=key_of(found, nouns))
    if is_choice(wanted.text):
        return _grade_choice(found, wanted)
    try:
        gold = wanted.read(nouns)
    except Unreadable as refusal:
        if is_prose(wanted.text):
            return Grade(score=0.0, reason="the reference is a text, and the answer another", extracted=key_of(found))
        reason = f"cannot read the reference {wanted.text[:80]!r}: {refusal}"
        return Grade(score=None, reason=reason, extracted=key_of(found))
    try:
        answer = found.read(nouns)
    except Unreadable as refusal:
        return Grade(score=0.0, reason=f"cannot read the answer: {refusal}", extracted=key_of(found)[:200])
    same = _same_numbers(answer, gold)
    if same is None:
        return answer, gold
    return Grade(score=float(same), reason="" if same else ANOTHER, extracted=answer.key)


def _grade_choice(found: Answer, wanted: Answer) -> Grade:
    picked = found.option()
    if picked is None:
        return Grade(score=0.0, reason="the answer picks no single option", extracted=key_of(found)[:200])
    return Grade(score=float(picked == choice(wanted.text)), extracted=picked)


def _same_numbers(answer: Reading, gold: Reading) -> bool | None:
    """Whether two plain numbers are the same, exactly. None: that is not all there is to compare."""
    if len(answer.members) > 1 or len(gold.members) > 1:
        return None
    one, other = answer.members[0], gold.members[0]
    if one.is_ratio and other.number is not None:  # `4 to 2` is not 2
        return False
    if one.number is None or other.number is None or one.name or other.name or _differ(one, other):
        return None
    return one.number == other.number


def _differ(one: Member, other: Member) -> bool:
    """Of an answer and a reference: whether units or bases have to be looked at."""
    units = bool(one.unit.dimension and other.unit.dimension and one.unit != other.unit)
    return units or (one.base is not None and one.base != other.base)


def counted_nouns(question: str) -> frozenset[str]:
    """The words of a question that may stand behind a number: plain ones, outside of mathematics, of four letters at
    least, but for those that may change its value."""
    prose = re.sub(r"\$[^$]*\$|\\[A-Za-z]+", " ", question)
    words = set(re.findall(r"(?<![A-Za-z\\])[a-z]{4,}(?![A-Za-z])", prose))
    return frozenset(word for word in words if not changes_value(word))
