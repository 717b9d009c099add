"""Math-Verify's judgement of two expressions, and the nearness of two values where it is too lenient."""

from __future__ import annotations

from typing import Any

from math_verify import verify
from sympy import Expr, Float, I, Integer, Interval, MatrixBase, Rational, Set, Symbol, Tuple, Union, preorder_traversal
from sympy import FiniteSet as SympyFiniteSet
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from mathgrade.reading.commands import LETTERS


def equal(gold: Any, answer: Any) -> bool:
    """Whether two expressions are equal, with `i` as a letter like others or as the imaginary unit."""
    if _equal(gold, answer):
        return True
    units = [with_imaginary_unit(value) for value in (gold, answer)]
    return units != [gold, answer] and _equal(*units)


def is_word(symbol: Symbol) -> bool:
    """Whether a symbol is a word, such as East, whose case does not count."""
    return str(symbol).isalpha() and len(str(symbol)) > 2 and str(symbol) not in LETTERS


def with_imaginary_unit(value: Any) -> Any:
    """The expression with I for the letter i, which Math-Verify takes for a variable."""
    if not isinstance(value, Expr):
        return value
    return value.subs({symbol: I for symbol in value.free_symbols if str(symbol) == "i"})


def _equal(gold: Any, answer: Any) -> bool:
    """Math-Verify's judgement of two expressions, made relative where it is absolute.

    Sums of decimals and fractions, which Math-Verify rounds, are exact. Below 0.1 six digits count, not six places.
    """
    if isinstance(gold, Symbol) and isinstance(answer, Symbol):  # Math-Verify ignores the case of letters too
        one, other = (str(symbol).casefold() if is_word(symbol) else str(symbol) for symbol in (gold, answer))
        return one == other
    if verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True):
        return agrees(gold, answer)
    if not (is_number(gold) and is_number(answer) and has_decimals(gold, answer)):
        return False
    is_sum = any(side.has(Float) and side.args for side in (gold, answer))
    is_small = abs(gold.evalf()) < 0.1
    return (is_sum and is_near(gold, answer, AS_A_SUM)) or (is_small and is_near(gold, answer, SIX_DIGITS))


def agrees(gold: Any, answer: Any) -> bool:
    """Whether expressions that Math-Verify takes for equal are relatively equal, part by part.

    It rounds decimals to six places and cuts values below 1e-15, so that every tiny number is 0 to it.
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
    """The expression with its decimals as exact fractions."""
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
    """The elements of a matrix, point, interval or set. Empty: nothing in it is compared separately."""
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
    """Whether two expressions are equal at two points, or two relations up to a constant factor.

    True for anything else, which Math-Verify alone judges.
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
