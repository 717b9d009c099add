"""The members of an answer as SymPy expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.sets import FiniteSet
from math_verify.grader import should_treat_as_complex
from sympy import Eq, Interval, Tuple
from sympy import FiniteSet as SympyFiniteSet

from mathgrade.symbolic.nearness import equal, is_zero


class Refused(Exception):
    """An answer that was read but cannot be right, or is no mathematics: one sentence."""


@dataclass(frozen=True)
class Value:
    """A member of an answer as a SymPy expression."""

    value: Any
    name: Any = None
    """The value's name. None: it has none, or one in words."""
    is_equation: bool = False
    in_braces: bool = False
    """It was in braces, as a member of a set."""
    rounded: Any = None
    """The rounded value that the answer states too."""
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
    """The members of an answer. Sets in braces and points with named coordinates are split. Raises: Refused."""
    parsed: list[Value] = []
    for member in members:
        sides = [parse(side) for side in member["sides"]]
        name = name_of(member["name"])
        dimension, size = member["unit"]
        unit = tuple(map(tuple, dimension))
        attributes = {"name": name, "unit": unit, "size": Fraction(size), "base": member["base"]}
        if len(sides) > 1 and name is None and any(getattr(side, "free_symbols", None) for side in sides):
            if len(sides) > 2:
                raise Refused("a chain of equations")
            parsed.append(Value(Eq(sides[0], sides[1], evaluate=False), is_equation=True))
            continue
        check_chain(member["sides"], sides, member["rough"])
        value = sides[member["rough"].index(True)] if any(member["rough"]) else sides[-1]
        # 0 is no rounded value of another number.
        rounded = sides[-1] if any(member["rough"]) and not is_zero(sides[-1]) else None
        coordinates, names = pair_of(value), [] if name is None or isinstance(name, str) else pair_of(name)
        if len(members) == 1 and names and len(names) == len(coordinates):  # (x, y) = (1, 2)
            parsed += [Value(v, **{**attributes, "name": n}) for n, v in zip(names, coordinates, strict=True)]
            continue
        braced = isinstance(value, SympyFiniteSet)
        parsed += [Value(part, in_braces=braced, rounded=rounded, **attributes) for part in parts_of(value)]
    return parsed


def name_of(latex: str) -> Any:
    """The name as a SymPy expression, or as text if SymPy cannot read it. None: no name."""
    if not latex:
        return None
    try:
        return parse(latex)
    except Refused:
        return latex


def check_chain(written: list[str], sides: list[Any], rough: list[bool]) -> None:
    r"""Check that neighbours in `6 \cdot 3 = 18` are equal, and in `1/3 \approx 0.33` equal up to its decimals.

    Raises: Refused.
    """
    for left, right, latex, is_rough in zip(sides, sides[1:], written[1:], rough, strict=False):
        if not (abs(complex((left - right).evalf())) <= rounding(latex, right) if is_rough else equal(left, right)):
            raise Refused("its sides are not equal")


_DECIMAL = re.compile(r"\(?-?[0-9]*\.?(?P<decimals>[0-9]*)(?:\\cdot 10\^\{(?P<power>-?[0-9]{1,3})\})?\)?")


def rounding(latex: str, value: Any) -> float:
    """How far a rounded value may be from the exact one. It is half a unit of its last digit, or 0.005 where it is no
    decimal, but no more than a twentieth of it."""
    decimal = _DECIMAL.fullmatch(latex)
    if decimal:
        return 0.5000001 * 10.0 ** (int(decimal["power"] or 0) - len(decimal["decimals"]))
    return float(min(0.005, 0.05 * abs(complex(value.evalf()))))


def parts_of(value: Any) -> list[Any]:
    """The members of a finite set, as they were written. Anything else is one part."""
    if isinstance(value, FiniteSet):
        return list(value._unsorted_args)
    return list(value.args) if isinstance(value, SympyFiniteSet) else [value]


def pair_of(value: Any) -> list[Any]:
    """The members of a point. SymPy has `(1, 2)` for an open interval. Empty: it is none."""
    if isinstance(value, Tuple):
        return list(value.args)
    if isinstance(value, Interval) and value.left_open and value.right_open:
        return [value.start, value.end]
    return []
