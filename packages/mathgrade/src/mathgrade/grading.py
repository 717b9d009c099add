r"""Whether the final answer of a reply is a reference: by texts and exact numbers here, else by Math-Verify.

`examine` decides what takes no mathematics, in time linear in the texts. What it leaves is a `Comparison`, for
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
"""An answer longer than its reference by more than this is none; a degenerate reply must not cost a time limit."""
ANOTHER = "another value than the reference's"
"""Said of an answer that was read and is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of holding a reply against a reference."""

    score: float | None
    """1: the answer is the reference's; 0: it is not, or there is none. None: no verdict, for no fault of the reply."""
    reason: str = ""
    """Why the score is not 1."""
    extracted: str | None = None
    """The final answer in the form that majority votes count. None: there is none."""
    exhausted: bool = False
    """The answer ran the comparison out of memory. That is the reply's doing, so it scores 0."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An answer and a reference that were read, and that take Math-Verify to compare."""

    answer: Reading
    reference: Reading

    def request(self) -> dict[str, Any]:
        """As JSON has it: the arguments of `symbolic.comparing.compare`."""
        return {"answer": _members(self.answer), "reference": _members(self.reference)}

    def result(self, outcome: Mapping[str, Any]) -> Result:
        """
        Args:
            outcome: what `symbolic.comparing.compare` returned: `score`, `reason` and `exhausted`.
        """
        score = outcome["score"]
        reason = outcome["reason"] or (ANOTHER if score == 0 else "")
        return Result(score=score, reason=reason, extracted=self.answer.key, exhausted=outcome["exhausted"])

    def control(self) -> Comparison:
        """A plain number against the same reference: where that goes well, the answer is to blame for a failure."""
        return Comparison(_PLAIN, self.reference)


_PLAIN = Reading((Member(("7",)),))


def grade(reply: str, reference: str, *, question: str = "") -> Result:
    r"""Whether the final answer of a reply is the reference, a number, LaTeX, words or a multiple-choice letter.

    The answer is what `answers.find_answer` finds, and all of it has to be accounted for (`reading`): a reply without
    one, or with one that cannot be accounted for, scores 0. Percent and currency signs and units are compared where
    both sides have one; sets (`1, 2`) and points are compared as such; plain numbers must be equal exactly, and
    decimals against other forms to six places, and to six digits below 0.1. A reply that is its reference to the letter
    always scores 1. No score (`None`, with the reason) is given where the reference is empty or cannot be read.

    There is no time limit: a text such as `9^{9^{9^9}}` runs for hours. For replies of a model use `examine`, and
    compare what it leaves in a process that can be killed.

    Args:
        reference: an answer, or a worked solution that ends in one.
        question: what it counts (`How many kumquats ...?`) may stand behind the answer, and a base that it asks for is
            the reference's. Empty: unknown.
    """
    examined = examine(reply, reference, question=question)
    if isinstance(examined, Result):
        return examined
    from mathgrade.symbolic.comparing import compare  # SymPy takes a second to import

    return examined.result(compare(**examined.request()))


def same(answer: str, reference: str, *, question: str = "") -> bool:
    """Whether `grade` scores an answer 1. Without a time limit, as that.

    Raises: ValueError where there is no verdict, as for a reference that cannot be read; it says why.
    """
    result = grade(answer, reference, question=question)
    if result.score is None:
        raise ValueError(result.reason)
    return result.score == 1.0


def examine(reply: str, reference: str, *, question: str = "") -> Result | Comparison:
    """The result, where that takes no mathematics, else what answer and reference say. See `grade`."""
    nouns = counted_nouns(question)
    wanted = find_reference(reference)
    if not wanted.text.strip(" \t\n$"):
        return Result(score=None, reason="the reference is empty")
    if same_text(reply, reference):
        return Result(score=1.0, extracted=key_of(wanted, nouns))
    found = find_answer(reply)
    if found is None:
        return Result(score=0.0, reason="no final answer found")
    if len(found.text) > len(wanted.text) + MAX_EXTRA_CHARS:
        return Result(score=0.0, reason=f"the answer has {len(found.text)} characters", extracted=found.text[:100])
    if same_text(found.text, wanted.text):
        return Result(score=1.0, extracted=key_of(found, nouns))
    if is_choice(wanted.text):
        return _grade_choice(found, wanted)
    try:
        gold = _in_base(wanted.read(nouns), asked_base(question))
    except Unreadable as refusal:
        if is_prose(wanted.text):
            return Result(score=0.0, reason="the reference is a text, and the answer another", extracted=key_of(found))
        reason = f"cannot read the reference {wanted.text[:80]!r}: {refusal}"
        return Result(score=None, reason=reason, extracted=key_of(found))
    try:
        answer = found.read(nouns)
    except Unreadable as refusal:
        return Result(score=0.0, reason=f"cannot read the answer: {refusal}", extracted=key_of(found)[:200])
    is_same = _same_numbers(answer, gold)
    if is_same is None:
        return Comparison(answer, gold)
    return Result(score=float(is_same), reason="" if is_same else ANOTHER, extracted=answer.key)


def _members(reading: Reading) -> list[dict[str, Any]]:
    return [{**asdict(m), "unit": [m.unit.dimension, str(m.unit.size)]} for m in reading.members]


def _grade_choice(found: Answer, wanted: Answer) -> Result:
    picked = found.option()
    if picked is None:
        return Result(score=0.0, reason="the answer picks no single option", extracted=key_of(found)[:200])
    return Result(score=float(picked == choice(wanted.text)), extracted=picked)


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


def _in_base(gold: Reading, base: int | None) -> Reading:
    """A reference that is a lone numeral without a base, with the base that the question asks for."""
    [member, *more] = gold.members
    if base is None or more or member.base is not None or len(member.sides) > 1 or not member.sides[0].isdecimal():
        return gold
    if any(int(digit) >= base for digit in member.sides[0]):  # then it is none in that base
        return gold
    return Reading((replace(member, base=base),))
