"""The child process behind `maths.MathGrader`: compares answers with Math-Verify, one JSON line after the other.

Run as a script, so that it imports Math-Verify and nothing of ours: `python -P math_worker.py MEMORY_GIB`, where 0 sets
no limit. Each request is `{"answer": [member, ...], "reference": [member, ...], "timeout_s": ...}`; a member is what
`reading.Member` says, `{"sides", "name", "rough", "unit": [dimension, size], "base"}`, its LaTeX written so that it
has one reading. Each reply is `{"score": 1.0 | 0.0 | null, "reason": ..., "exhausted": bool}`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TextIO

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.sets import FiniteSet
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from sympy import Eq, Expr, Float, Integer, Interval, MatrixBase, Rational, Set, Tuple, Union, preorder_traversal
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

MAX_COMPARISONS = 900


class Refused(Exception):
    """An answer that is understood and cannot be right, or is no mathematics: one sentence."""


def limit_memory(gib: float) -> None:
    """Caps the address space, where the system can; an allocation beyond it fails in this process alone."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(gib * 2**30),) * 2)
    except (ImportError, OSError, ValueError):
        pass  # Windows has no such limit, macOS refuses it


@dataclass(frozen=True)
class Value:
    """A member of an answer, as SymPy has it."""

    value: Any
    name: Any = None
    """What the value was said to be of. None: nothing, or a name in words."""
    is_equation: bool = False
    in_braces: bool = False
    """It stood in braces, as a member of a set."""
    rounded: Any = None
    """What the value was said to be roughly."""
    unit: tuple[Any, ...] = ()
    size: Fraction = Fraction(1)
    base: int | None = None


@lru_cache(maxsize=4096)
def parse(latex: str) -> Any:
    """The text as a whole. Raises: Refused where it is no mathematics."""
    try:
        return latex2sympy(
            latex,
            is_real=not should_treat_as_complex(latex),
            convert_degrees=False,
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise Refused(f"Math-Verify cannot read {latex[:80]!r} ({type(error).__name__})") from error


def values(members: list[dict[str, Any]]) -> list[Value]:
    """The members of an answer, sets in braces and points with named coordinates taken apart. Raises: Refused."""
    found: list[Value] = []
    for member in members:
        sides = [parse(side) for side in member["sides"]]
        name = name_of(member["name"])
        dimension, size = member["unit"]
        unit = tuple(map(tuple, dimension))
        own = {"name": name, "unit": unit, "size": Fraction(size), "base": member["base"]}
        if len(sides) > 1 and name is None and any(getattr(side, "free_symbols", None) for side in sides):
            if len(sides) > 2:
                raise Refused("a chain of equations")
            found.append(Value(Eq(sides[0], sides[1], evaluate=False), is_equation=True))
            continue
        check_chain(member["sides"], sides, member["rough"])
        value = sides[member["rough"].index(True)] if any(member["rough"]) else sides[-1]
        # 0 is no rounded value of another number.
        rounded = sides[-1] if any(member["rough"]) and not is_zero(sides[-1]) else None
        coordinates, names = pair_of(value), [] if name is None or isinstance(name, str) else pair_of(name)
        if len(members) == 1 and names and len(names) == len(coordinates):  # (x, y) = (1, 2)
            found += [Value(v, **{**own, "name": n}) for n, v in zip(names, coordinates, strict=True)]
            continue
        braced = isinstance(value, SympyFiniteSet)
        found += [Value(part, in_braces=braced, rounded=rounded, **own) for part in parts_of(value)]
    return found


def name_of(latex: str) -> Any:
    """As SymPy has it; what it cannot read is compared as it is written. None: no name."""
    if not latex:
        return None
    try:
        return parse(latex)
    except Refused:
        return latex


def check_chain(written: list[str], sides: list[Any], rough: list[bool]) -> None:
    r"""Neighbours in `6 \cdot 3 = 18` are the same, and in `1/3 \approx 0.33` as far as its decimals go.

    Raises: Refused.
    """
    for left, right, latex, is_rough in zip(sides, sides[1:], written[1:], rough, strict=False):
        if not (abs(complex((left - right).evalf())) <= rounding(latex, right) if is_rough else equal(left, right)):
            raise Refused("its sides are not equal")


_DECIMAL = re.compile(r"\(?-?[0-9]*\.?(?P<decimals>[0-9]*)(?:\\cdot 10\^\{(?P<power>-?[0-9]{1,3})\})?\)?")


def rounding(latex: str, value: Any) -> float:
    """How far a rounded value may be from the exact one: half a unit of its last digit; 0.005 where it is no decimal,
    but no more than a twentieth of it."""
    decimal = _DECIMAL.fullmatch(latex)
    if decimal:
        return 0.5000001 * 10.0 ** (int(decimal["power"] or 0) - len(decimal["decimals"]))
    return float(min(0.005, 0.05 * abs(complex(value.evalf()))))


def parts_of(value: Any) -> list[Any]:
    """The members of a finite set, as they were written; anything else is its own only part."""
    if isinstance(value, FiniteSet):
        return list(value._unsorted_args)
    return list(value.args) if isinstance(value, SympyFiniteSet) else [value]


def equal(gold: Any, answer: Any) -> bool:
    """Math-Verify's judgement of two expressions, kept relative where it is absolute.

    Sums of decimals and fractions, which Math-Verify rounds, are exact. Below 0.1 six digits count, not six places.
    """
    if verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True):
        return agrees(gold, answer)
    if not (is_number(gold) and is_number(answer) and has_decimals(gold, answer)):
        return False
    is_sum = any(side.has(Float) and side.args for side in (gold, answer))
    is_small = abs(gold.evalf()) < 0.1
    return (is_sum and is_near(gold, answer, AS_A_SUM)) or (is_small and is_near(gold, answer, SIX_DIGITS))


def agrees(gold: Any, answer: Any) -> bool:
    """Whether what Math-Verify takes for equal is equal relatively, part by part.

    It rounds decimals to six places and cuts what is below 1e-15, so that every tiny number is 0 to it.
    """
    if is_number(gold) and is_number(answer):
        return is_near(gold, answer, DECIMALS if has_decimals(gold, answer) else EXACT)
    if isinstance(gold, Set) != isinstance(answer, Set):
        gold, answer = as_set(gold), as_set(answer)
    golds, answers = pieces(gold), pieces(answer)
    if golds and len(golds) == len(answers):
        in_order = all(agrees(*pair) for pair in zip(golds, answers, strict=True))
        return in_order or (
            isinstance(gold, SympyFiniteSet | Union)
            and all(any(agrees(one, other) for other in answers) for one in golds)
            and all(any(agrees(one, other) for one in golds) for other in answers)
        )
    return not (has_tiny(gold) or has_tiny(answer)) or is_proportional(gold, answer)


# --- how near two values are ------------------------------------------------------------------------------------------

DECIMALS, SIX_DIGITS, AS_A_SUM, EXACT = 1e-4, 5e-6, 1e-20, 1e-100
"""How far two numbers may differ, as a share of the larger one."""
_TINY = 1e-6
_ZERO = 1e-300
"""An exact 0 that SymPy cannot simplify has a value below this, at the digits that `precise` takes."""


def is_number(value: Any) -> bool:
    """Whether an expression has a value that SymPy can find: not `f(2)`, which it calls a number too."""
    return bool(getattr(value, "is_number", False)) and bool(abs(value.evalf()).is_comparable)


def is_zero(value: Any) -> bool:
    return is_number(value) and not abs(value.evalf()) > 0


def has_decimals(*values: Any) -> bool:
    return any(value.has(Float) for value in values)


def exact(value: Any) -> Any:
    """The expression with its decimals as the fractions that they are."""
    return value.replace(lambda e: e.is_Float, lambda f: Rational(str(f)))


def precise(value: Any) -> Any:
    """The absolute value, to 30 digits even where almost everything cancels out."""
    return abs(value.evalf(30, maxn=400))


def is_near(gold: Any, answer: Any, share: float) -> bool:
    """Whether two numbers differ by no more than this share of the larger one. Only 0 is near 0."""
    gold, answer = exact(gold), exact(answer)
    if gold == answer:
        return True
    # By its digits: SymPy may take seconds to prove that a difference of nested roots is 0.
    difference = precise(gold - answer)
    if not difference.is_finite:  # an infinity beside anything else
        return False
    return bool(difference <= max(share * max(precise(gold), precise(answer)), _ZERO))


def pieces(value: Any) -> list[Any]:
    """What a matrix, point, interval or set is made of. Empty: it is made of nothing that is compared by itself."""
    if isinstance(value, MatrixBase):
        return list(value.flat())
    if isinstance(value, Interval):
        return [value.start, value.end]
    return list(value.args) if isinstance(value, Tuple | SympyFiniteSet | Union) else []


def as_set(value: Any) -> Any:
    """`x > 2` as an interval. The value itself where it is no relation of one variable."""
    try:
        return value.as_set() if isinstance(value, Boolean) else value
    except Exception:
        return value


def has_tiny(value: Any) -> bool:
    """Whether a number in an expression is within a millionth of 0, and not 0."""
    return any(0 < abs(part.evalf()) < _TINY for part in preorder_traversal(value) if is_number(part))


def is_proportional(gold: Any, answer: Any) -> bool:
    """Whether two expressions are the same at two points, or two relations but for a constant factor.

    True for anything else, of which nothing more than Math-Verify's judgement is known.
    """
    is_relation = isinstance(gold, Relational) and isinstance(answer, Relational)
    if is_relation:
        gold, answer = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return True
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    ratios = []
    for start in (7, 11):
        point = {symbol: Rational(start, 3) + Rational(index, 13) for index, symbol in enumerate(symbols)}
        ratios.append((exact(gold) / exact(answer)).subs(point))
    if not all(is_number(ratio) and precise(ratio).is_finite for ratio in ratios):
        return True
    return is_near(ratios[0], ratios[1] if is_relation else Integer(1), EXACT) and (
        is_relation or is_near(ratios[1], Integer(1), EXACT)
    )


# --- members and lists ------------------------------------------------------------------------------------------------


def same(gold: Value, answer: Value) -> bool:
    """Whether two members say the same: of the same thing, in the same unit where both have one."""
    if gold.is_equation or answer.is_equation:
        sides = [
            each.value if each.is_equation else None if each.name is None else Eq(each.name, each.value, evaluate=False)
            for each in (gold, answer)
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
    """Whether two lists have the same members, in any order; a list is no answer where one value is asked for."""
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
        match = next((i for i, each in enumerate(left) if same(member, each)), None)
        if match is None:
            return False
        del left[match]
    return True


def is_named(members: list[Value]) -> bool:
    """Whether the members are of different things."""
    return len({str(member.name) for member in members if member.name is not None}) > 1


def distinct(members: list[Value]) -> list[Value]:
    """A set in braces has each member once."""
    if not all(member.in_braces for member in members):
        return members
    kept: list[Value] = []
    for member in members:
        if not any(same(member, other) for other in kept):
            kept.append(member)
    return kept


def pair_of(value: Any) -> list[Any]:
    """The members of a point. SymPy has `(1, 2)` for an open interval. Empty: it is none."""
    if isinstance(value, Tuple):
        return list(value.args)
    if isinstance(value, Interval) and value.left_open and value.right_open:
        return [value.start, value.end]
    return []


def is_in_order(point: list[Any], members: list[Value]) -> bool:
    """Whether a point was written without its brackets. A set in braces is none."""
    if len(point) != len(members) or any(member.is_equation or member.in_braces for member in members):
        return False
    return all(equal(value, member.value) for value, member in zip(point, members, strict=True))


def compare(answer: list[dict[str, Any]], reference: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply to one request. A fault of the reference or of the comparison is no score; running out of memory is,
    as far as this process can tell, the answer's doing."""
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
        # `1/0`: what the reference, compared with itself, does not do is the answer's doing.
        return reply(0.0 if holds(gold) else None, f"Math-Verify failed to compare: {type(error).__name__}")


def holds(gold: list[Value]) -> bool:
    try:
        return compare_members(gold, gold)
    except Exception:
        return False


def reply(score: float | None, reason: str, *, exhausted: bool = False) -> dict[str, Any]:
    return {"score": score, "reason": reason, "exhausted": exhausted}


def plain_member(latex: str) -> dict[str, Any]:
    return {"sides": [latex], "name": "", "rough": [], "unit": [[], "1"], "base": None}


def serve(requests: TextIO, replies: TextIO) -> None:
    # The first comparison builds the grammar, which takes longer than any other.
    if compare([plain_member("x+1")], [plain_member("1+x")])["score"] != 1.0:
        sys.exit("Math-Verify cannot see that x + 1 equals 1 + x; is there enough memory for it?")
    print("ready", file=replies, flush=True)
    for line in requests:
        request = json.loads(line)
        # The parent keeps the clock. Should it be gone, this alarm, whose default action is death, ends the orphan,
        # even in the middle of one endless C call.
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 2 * request["timeout_s"] + 5)
        answer = compare(request["answer"], request["reference"])
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), file=replies, flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    if float(sys.argv[1]) > 0:
        limit_memory(float(sys.argv[1]))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that nothing a library prints is taken for a reply
    serve(sys.stdin, replies)


if __name__ == "__main__":
    main()
