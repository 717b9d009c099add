r"""Whether the final answer of a reply is the reference: by texts and exact numbers here, else by Math-Verify.

`examine` decides cases without mathematics, in time linear in the texts. For others it returns a `Comparison`, for
`symbolic.comparing`, which may take hours over a short text such as `9^{9^{9^9}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mathgrade.answers import Answer, find_answer, find_reference, key_of
from mathgrade.options import choice, is_choice
from mathgrade.questions import asked_base, counted_nouns
from mathgrade.reading import Member, Reading, Unreadable
from mathgrade.texts import is_prose, same_text

MAX_EXTRA_CHARS = 2000
"""An answer longer than its reference by more than this scores 0; a degenerate reply must not cost a time limit."""
ANOTHER = "another value than the reference's"
"""The reason for an answer that was read and is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of comparing a reply with a reference."""

    score: float | None
    """1: the answer is the reference's; 0: it is not, or there is none. None: no verdict, for no fault of the reply."""
    reason: str = ""
    """Why the score is not 1."""
    extracted: str | None = None
    """The final answer in the form that majority votes count. None: there is none."""
    exhausted: bool = False
    """The answer exhausted the comparison's memory. That is the reply's fault, so it scores 0."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An answer and a reference that were read, and that need Math-Verify to compare."""

    answer: Reading
    reference: Reading

    def request(self) -> dict[str, Any]:
        """The arguments of `symbolic.comparing.compare`, as JSON values."""
        return {"answer": _members(self.answer), "reference": _members(self.reference)}

    def result(self, outcome: Mapping[str, Any]) -> Result:
        """
        Args:
            outcome: returned by `symbolic.comparing.compare`: `score`, `reason` and `exhausted`.
        """
        score = outcome["score"]
        reason = outcome["reason"] or (ANOTHER if score == 0 else "")
        return Result(score=score, reason=reason, extracted=self.answer.key, exhausted=outcome["exhausted"])

    def control(self) -> Comparison:
        """A plain number against the same reference: if that succeeds, the answer is to blame for a failure."""
        return Comparison(_PLAIN, self.reference)


_PLAIN = Reading((Member(("7",)),))


def grade(reply: str, reference: str, *, question: str = "") -> Result:
    r"""Whether the final answer of a reply is the reference, a number, LaTeX, words or a multiple-choice letter.

    `answers.find_answer` finds the answer, and all of it has to be accounted for (`reading`). A reply without such an
    answer scores 0. Percent and currency signs and units are compared where both sides have one. Sets (`1, 2`) and
    points are compared as such. Plain numbers must be equal exactly. Decimals must equal other forms to six places, and
    below 0.1 to six digits. A reply that is its reference to the letter always scores 1. There is no score (`None`,
    with the reason) where the reference is empty or cannot be read.

    There is no time limit: a text such as `9^{9^{9^9}}` runs for hours. For replies of a model use `examine`, and make
    its comparisons in a process that can be killed.

    Args:
        reference: an answer, or a worked solution that ends in one.
        question: its counted nouns (`How many kumquats ...?`) may follow the answer. A base that it asks for is the
            reference's. Empty: unknown.
    """
    examined = examine(reply, reference, question=question)
    if isinstance(examined, Result):
        return examined
    from mathgrade.symbolic.comparing import compare  # SymPy takes a second to import

    return examined.result(compare(**examined.request()))


def same(answer: str, reference: str, *, question: str = "") -> bool:
    """Whether `grade` scores an answer 1. Like `grade`, it has no time limit.

    Raises: ValueError with the reason where there is no score, as for a reference that cannot be read.
    """
    result = grade(answer, reference, question=question)
    if result.score is None:
        raise ValueError(result.reason)
    return result.score == 1.0


def examine(reply: str, reference: str, *, question: str = "") -> Result | Comparison:
    """The result where no mathematics is needed, else the comparison to make. See `grade`."""
    nouns = counted_nouns(question)
    wanted = find_reference(reference)
    if not wanted.text.strip(" \t\n$"):
        return Result(score=None, reason="the reference is empty")
    if same_text(reply, reference):
        return Result(score=1.0, extracted=key_of(wanted, nouns))
    final_answer = find_answer(reply)
    if final_answer is None:
        return Result(score=0.0, reason="no final answer found")
    if len(final_answer.text) > len(wanted.text) + MAX_EXTRA_CHARS:
        return Result(
            score=0.0, reason=f"the answer has {len(final_answer.text)} characters", extracted=final_answer.text[:100]
        )
    if same_text(final_answer.text, wanted.text):
        return Result(score=1.0, extracted=key_of(final_answer, nouns))
    if is_choice(wanted.text):
        return _grade_choice(final_answer, wanted)
    try:
        gold = _in_base(wanted.read(nouns), asked_base(question))
    except Unreadable as refusal:
        if is_prose(wanted.text):
            return Result(
                score=0.0, reason="the reference is a text, and the answer another", extracted=key_of(final_answer)
            )
        reason = f"cannot read the reference {wanted.text[:80]!r}: {refusal}"
        return Result(score=None, reason=reason, extracted=key_of(final_answer))
    try:
        answer = final_answer.read(nouns)
    except Unreadable as refusal:
        return Result(score=0.0, reason=f"cannot read the answer: {refusal}", extracted=key_of(final_answer)[:200])
    is_same = _same_numbers(answer, gold)
    if is_same is None:
        return Comparison(answer, gold)
    return Result(score=float(is_same), reason="" if is_same else ANOTHER, extracted=answer.key)


def _members(reading: Reading) -> list[dict[str, Any]]:
    return [{**asdict(m), "unit": [m.unit.dimension, str(m.unit.size)]} for m in reading.members]


def _grade_choice(final_answer: Answer, wanted: Answer) -> Result:
    picked = final_answer.option()
    if picked is None:
        return Result(score=0.0, reason="the answer picks no single option", extracted=key_of(final_answer)[:200])
    return Result(score=float(picked == choice(wanted.text)), extracted=picked)


def _same_numbers(answer: Reading, gold: Reading) -> bool | None:
    """Whether two plain numbers are exactly equal. None: there is more to compare."""
    if len(answer.members) > 1 or len(gold.members) > 1:
        return None
    one, other = answer.members[0], gold.members[0]
    if one.is_ratio and other.number is not None:  # `4 to 2` is not 2
        return False
    if one.number is None or other.number is None or one.name or other.name or _differ(one, other):
        return None
    return one.number == other.number


def _differ(one: Member, other: Member) -> bool:
    """Whether the units or bases of an answer and a reference differ, so that they need conversion."""
    units = bool(one.unit.dimension and other.unit.dimension and one.unit != other.unit)
    return units or (one.base is not None and one.base != other.base)


def _in_base(gold: Reading, base: int | None) -> Reading:
    """The reference, with the base that the question asks for if it is a lone numeral without one."""
    [member, *others] = gold.members
    if base is None or others or member.base is not None or len(member.sides) > 1 or not member.sides[0].isdecimal():
        return gold
    if any(int(digit) >= base for digit in member.sides[0]):  # no numeral of that base
        return gold
    return Reading((replace(member, base=base),))
