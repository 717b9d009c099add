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
from sympy import Eq, Float, Interval, Rational, Set, Tuple
from sympy import FiniteSet as SympyFiniteSet

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
        rounded = sides[-1] if any(member["rough"]) else None
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
        if is_rough:
            decimals = len(latex.partition(".")[2]) if re.fullmatch(r"-?[0-9]*\.?[0-9]*", latex) else 2
            same = abs(complex((left - right).evalf())) <= 0.5000001 * 10.0**-decimals
        else:
            same = equal(left, right)
        if not same:
            raise Refused("its sides are not equal")


def parts_of(value: Any) -> list[Any]:
    """The members of a finite set, as they were written; anything else is its own only part."""
    if isinstance(value, FiniteSet):
        return list(value._unsorted_args)
    return list(value.args) if isinstance(value, SympyFiniteSet) else [value]


def close(gold: Any, answer: Any) -> bool:
    """False for two decimal numbers that differ by more than 0.01 %. Math-Verify rounds them to six decimals, which
    makes every tiny number equal to 0."""
    if not all(getattr(side, "is_number", False) for side in (gold, answer)) or not (gold - answer).has(Float):
        return True
    return bool(abs((gold - answer).evalf()) <= 1e-4 * abs(gold.evalf()))


def equal(gold: Any, answer: Any) -> bool:
    """Math-Verify's judgement of two expressions; but sums of decimals and fractions, which it rounds, are exact."""
    if verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True):
        return close(gold, answer)
    sides = (gold, answer)
    if not all(getattr(side, "is_number", False) for side in sides) or not any(s.has(Float) and s.args for s in sides):
        return False
    one, other = (side.replace(lambda e: e.is_Float, lambda f: Rational(str(f))) for side in sides)
    return bool(abs((one - other).evalf(30)) <= 1e-20 * max(1, abs(one.evalf(30))))


def same(gold: Value, answer: Value) -> bool:
    """Whether two members say the same: of the same thing, in the same unit where both have one."""
    if gold.is_equation or answer.is_equation:
        sides = [
            each.value if each.is_equation else None if each.name is None else Eq(each.name, each.value, evaluate=False)
            for each in (gold, answer)
        ]
        return None not in sides and bool(verify([sides[0]], [sides[1]], timeout_seconds=None, raise_on_error=True))
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if gold.in_braces != answer.in_braces and isinstance(gold.value, Set):  # {{}} is not {}
        return False
    if gold.base is not None and answer.base is not None and gold.base != answer.base:
        return False
    if gold.name is not None and answer.name is not None and gold.name != answer.name:
        return False
    ratio = answer.size / gold.size if gold.unit and answer.unit else Fraction(1)
    values = [value for value in (answer.value, answer.rounded) if value is not None]
    if ratio != 1:
        values = [value * Rational(ratio.numerator, ratio.denominator) for value in values]
    golds = [value for value in (gold.value, gold.rounded) if value is not None]
    return any(equal(wanted, value) for wanted in golds for value in values)


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
