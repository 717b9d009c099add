"""Compares two answers that were read, member by member.

A member is a `reading.Member` as JSON: `{"sides", "name", "rough", "unit": [dimension, size], "base"}`. Its LaTeX has
one reading.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from math_verify import verify
from sympy import Eq, Integer, Rational, Set

from mathgrade.symbolic.nearness import agrees, equal
from mathgrade.symbolic.values import Refused, Value, pair_of, values

MAX_COMPARISONS = 900
"""Pairs of members of two lists, at most."""


def compare(answer: list[dict[str, Any]], reference: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply to one request. A fault of the reference or of the comparison gives no score. Running out of memory is
    the answer's fault, as far as this process can tell."""
    try:
        gold = values(reference)
    except Exception as error:
        return reply(None, f"the reference cannot be read: {error}")
    try:
        return reply(float(compare_members(gold, values(answer))), "")
    except Refused as refusal:
        return reply(0.0, str(refusal))
    except (MemoryError, RecursionError, OverflowError) as error:
        return reply(0.0, f"out of memory ({type(error).__name__})", exhausted=True)
    except Exception as error:
        # `1/0`: if the reference compares with itself, the failure is the answer's fault.
        return reply(0.0 if holds(gold) else None, f"Math-Verify failed to compare: {type(error).__name__}")


def holds(gold: list[Value]) -> bool:
    try:
        return compare_members(gold, gold)
    except Exception:
        return False


def reply(score: float | None, reason: str, *, exhausted: bool = False) -> dict[str, Any]:
    return {"score": score, "reason": reason, "exhausted": exhausted}


# --- members and lists ----------------------------------------------------------------------------------------------


def same(gold: Value, answer: Value) -> bool:
    """Whether two members are equal: the same value of the same thing, in the same unit where both have one."""
    if gold.is_equation or answer.is_equation:
        sides = [
            member.value
            if member.is_equation
            else None
            if member.name is None
            else Eq(member.name, member.value, evaluate=False)
            for member in (gold, answer)
        ]
        if None in sides or not verify([sides[0]], [sides[1]], timeout_seconds=None, raise_on_error=True):
            return False
        return agrees(*sides)
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if gold.in_braces != answer.in_braces and isinstance(gold.value, Set):  # {{}} is not {}
        return False
    if _is_in_another_base(answer, gold):
        return False
    if gold.name is not None and answer.name is not None and gold.name != answer.name:
        return False
    ratio = answer.size / gold.size if gold.unit and answer.unit else Fraction(1)
    values = [value for value in (answer.value, answer.rounded) if value is not None]
    if ratio != 1:
        values = [value * Rational(ratio.numerator, ratio.denominator) for value in values]
    golds = [value for value in (gold.value, gold.rounded) if value is not None]
    return any(equal(wanted, value) for wanted in golds for value in values)


def _is_in_another_base(answer: Value, gold: Value) -> bool:
    """Whether an answer states a base in which its digits are not the reference's number. A reference without a base is
    a decimal number, and one digit is the same number in every base."""
    if answer.base is None:
        return False
    if gold.base is not None:
        return answer.base != gold.base
    is_one_digit = isinstance(answer.value, Integer) and 0 <= answer.value < min(answer.base, 10)
    return answer.base != 10 and not is_one_digit


def compare_members(gold: list[Value], answer: list[Value]) -> bool:
    """Whether two lists have the same members, in any order. A list is wrong where the reference has one value."""
    if len(gold) == 1 and len(answer) > 1:
        return not gold[0].in_braces and is_in_order(pair_of(gold[0].value), answer)
    if len(answer) == 1 and len(gold) > 1:
        return not answer[0].in_braces and is_in_order(pair_of(answer[0].value), gold)
    if len(gold) * len(answer) > MAX_COMPARISONS:
        raise Refused(f"a list of {len(answer)}")
    gold, answer = distinct(gold), distinct(answer)
    if len(gold) != len(answer):
        return False
    if all(same(*pair) for pair in zip(gold, answer, strict=True)):
        return True
    if len(gold) > 1 and is_named(gold) != is_named(answer):  # `x = 1, y = 2` against `2, 1`
        return False
    left = list(answer)
    for member in gold:
        match = next((i for i, other in enumerate(left) if same(member, other)), None)
        if match is None:
            return False
        del left[match]
    return True


def is_named(members: list[Value]) -> bool:
    """Whether the members have different names."""
    return len({str(member.name) for member in members if member.name is not None}) > 1


def distinct(members: list[Value]) -> list[Value]:
    """The members. In a set in braces, equal ones count once."""
    if not all(member.in_braces for member in members):
        return members
    unique: list[Value] = []
    for member in members:
        if not any(same(member, other) for other in unique):
            unique.append(member)
    return unique


def is_in_order(point: list[Any], members: list[Value]) -> bool:
    """Whether the members are a point written without its brackets. A set in braces is none."""
    if len(point) != len(members) or any(member.is_equation or member.in_braces for member in members):
        return False
    return all(equal(value, member.value) for value, member in zip(point, members, strict=True))
