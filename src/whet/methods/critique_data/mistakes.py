"""The catalogue of mistakes that RG3 plants (AutoMathCritique, arXiv:2411.16579): data, and where a rule can do it, the
rule.

A rule changes the calculation of one step: a number of GSM8K's notes (`<<48/2=24>>24`), a plain `a op b = c`, or a step
of the tiny world. `recomputed` then carries the wrong value through the steps that follow. So a wrong solution can be
made without any language model.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from whet.tasks.chains import OPERATIONS, apply
from whet.tasks.planting import other_number
from whet.tasks.steps import is_closing

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_NOTE = re.compile(rf"<<(?P<expr>[^<>=]+)=(?P<value>-?{_NUMBER}|-?\.\d+)>>")
_PLAIN = re.compile(rf"(?P<expr>{_NUMBER}(?:\s*[-+*/x×÷]\s*{_NUMBER})+)\s*=\s*\$?(?P<value>-?{_NUMBER})")
_TOKENS = re.compile(rf"{_NUMBER}|\.\d+|[-+*/()]")
_CHAIN = re.compile(r"^(?P<head>\s*Step \d+: )(?P<a>\d) (?P<op>[-+*]) (?P<b>\d) = (?P<value>\d)(?P<tail>\s*)$")
_SIGNS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Calculation:
    """What a step calculates."""

    expr: tuple[str, ...]
    """Numbers and operators."""
    value: str
    """As it is written."""
    is_chain: bool = False
    """Of the tiny world, which keeps the last digit."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A kind of mistake."""

    id: str
    instruction: str
    """For the corrupter, and for the annotator's hint."""
    mutate: Callable[[Calculation, random.Random], Calculation | None] | None = None
    """The rule that makes it, if there is one; None from it: this step has no room for it."""


# --- reading and writing a step's calculation -------------------------------------------------------------------------


def calculation(step: str) -> Calculation | None:
    """The last calculation of a step, right or not; None where it has none that can be read."""
    if chain := _CHAIN.match(step):
        return Calculation((chain["a"], chain["op"], chain["b"]), chain["value"], is_chain=True)
    places = _places(step)
    if not places:
        return None
    expr = re.sub(r"[x×]", "*", places[-1]["expr"]).replace("÷", "/").replace(" ", "")
    tokens = tuple(_TOKENS.findall(expr))
    whole = "".join(tokens) == expr and len(tokens) > 1
    return Calculation(tokens, places[-1]["value"]) if whole and evaluated(tokens) is not None else None


def comes_out(step: str) -> bool:
    """Whether the calculation of a step gives what the step says; True where it has none, or rounds."""
    parsed = calculation(step)
    if parsed is None:
        return True
    again = _with(parsed, parsed.expr)
    # As numbers: 12.50 is 12.5
    return again is None or Fraction(again.value) == Fraction(parsed.value.replace(",", ""))


def _places(step: str) -> list[re.Match[str]]:
    """Where calculations are written: the notes if there are any."""
    return [*_NOTE.finditer(step)] or [*_PLAIN.finditer(step)]


def evaluated(tokens: Sequence[str]) -> Fraction | None:
    """None: it is no calculation, or divides by zero."""
    try:
        numbers = [re.sub(r"^0+(?=\d)", "", token.replace(",", "")) for token in tokens]
        return _value(ast.parse("".join(numbers), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError


def written(value: Fraction) -> str | None:
    """A number with at most two decimals; None where it has more, or is below 0."""
    hundredths = value * 100
    if hundredths.denominator != 1 or value < 0:
        return None
    whole, rest = divmod(int(hundredths), 100)
    return str(whole) if not rest else f"{whole}.{rest:02d}".rstrip("0")


def rewritten(step: str, before: Calculation, after: Calculation) -> str:
    """The step with another calculation in the place of its last one, and its value in what follows."""
    if chain := _CHAIN.match(step):
        a, op, b = after.expr
        return f"{chain['head']}{a} {op} {b} = {after.value}{chain['tail']}"
    *earlier, place = _places(step)
    start = earlier[-1].end() if earlier else 0
    parts = [{"*": r"[*x×]", "/": r"[/÷]"}.get(token, re.escape(token)) for token in before.expr]
    shown = re.compile(r"(?<![\d.,])" + r"(\s*)".join(parts) + r"(?!\d)")

    def changed(text: str) -> str:
        return shown.sub(lambda match: _spaced(after.expr, match.groups()), text)

    text = place.group()
    value = place.start("value") - place.start()
    text = changed(text[:value]) + after.value + text[place.end("value") - place.start() :]
    rest = re.sub(_whole(before.value), after.value, step[place.end() :])
    return step[:start] + changed(step[start : place.start()]) + text + rest


def _spaced(tokens: Sequence[str], gaps: Sequence[str]) -> str:
    return "".join(token + gap for token, gap in zip(tokens, (*gaps, *[""] * len(tokens)), strict=False))


def _whole(number: str) -> str:
    return rf"(?<![\d.,]){re.escape(number)}(?![.,]?\d)"


# --- the rules --------------------------------------------------------------------------------------------------------


def _with(old: Calculation, expr: Sequence[str]) -> Calculation | None:
    """The calculation with another expression, its value worked out."""
    if old.is_chain:
        a, op, b = expr
        if (op, int(b)) not in OPERATIONS:
            return None
        return Calculation(tuple(expr), str(apply(int(a), (op, int(b)))), is_chain=True)
    value = evaluated(expr)
    shown = None if value is None else written(value)
    return None if shown is None else Calculation(tuple(expr), shown)


def _other(old: Calculation, options: Sequence[Sequence[str]], rng: random.Random) -> Calculation | None:
    """One of the expressions with another value."""
    made = [new for expr in options if (new := _with(old, expr)) is not None and new.value != old.value]
    return rng.choice(made) if made else None


def _arithmetic(old: Calculation, rng: random.Random) -> Calculation | None:
    if old.is_chain:
        return Calculation(old.expr, str((int(old.value) + rng.randrange(1, 10)) % 10), is_chain=True)
    sign, bare = ("-", old.value[1:]) if old.value.startswith("-") else ("", old.value)
    return Calculation(old.expr, sign + other_number(bare, rng)) if bare[:1].isdigit() else None


def _operator(old: Calculation, rng: random.Random) -> Calculation | None:
    swaps = {"+": "-", "*": "+", "/": "*"}
    return _other(old, [_put(old.expr, i, swaps[t]) for i, t in enumerate(old.expr) if t in swaps], rng)


def _sign(old: Calculation, rng: random.Random) -> Calculation | None:
    return _other(old, [_put(old.expr, i, "+") for i, token in enumerate(old.expr) if token == "-"], rng)


def _quantity(old: Calculation, rng: random.Random) -> Calculation | None:
    places = [i for i, token in enumerate(old.expr) if token[0].isdigit()]
    if old.is_chain:
        return _other(old, [_put(old.expr, 2, str(digit)) for digit in range(1, 10)], rng)
    return _other(old, [_put(old.expr, i, other_number(old.expr[i], rng)) for i in places], rng)


def _off_by_one(old: Calculation, rng: random.Random) -> Calculation | None:
    off = rng.choice([-1, 1])
    if old.is_chain:
        return Calculation(old.expr, str((int(old.value) + off) % 10), is_chain=True)
    if not old.value.isdigit():
        return None
    return Calculation(old.expr, str(max(0, int(old.value) + off) or int(old.value) + 1))


def _conversion(old: Calculation, rng: random.Random) -> Calculation | None:
    rates = {"60": "100", "52": "50", "1000": "100", "365": "360", "5280": "5000"}  # seldom counts of anything
    places = [i for i, token in enumerate(old.expr) if token in rates]
    if old.is_chain or not places:
        return None
    return _other(old, [_put(old.expr, i, rates[old.expr[i]]) for i in places], rng)


def _put(tokens: Sequence[str], place: int, token: str) -> tuple[str, ...]:
    return (*tokens[:place], token, *tokens[place + 1 :])


CATALOGUE: Mapping[str, Mistake] = {
    entry.id: entry
    for entry in (
        Mistake("arithmetic", "the calculation is set up as it should be, and its result is wrong", _arithmetic),
        Mistake("operator", "a wrong operation is used, such as adding where one has to multiply", _operator),
        Mistake("sign", "a sign is turned round: what has to be subtracted is added", _sign),
        Mistake("quantity", "a number of the question, or of an earlier step, is taken over wrongly", _quantity),
        Mistake("off_by_one", "a count is one too high or one too low", _off_by_one),
        Mistake("conversion", "a unit or a rate is converted by the wrong factor", _conversion),
        Mistake("condition", "a condition of the question is left out of account"),
        Mistake("formula", "a formula is used that does not fit"),
        Mistake("case", "one of the cases is missed"),
        Mistake("unjustified", "something is claimed that does not follow from what came before"),
    )
}
BY_RULE = tuple(name for name, entry in CATALOGUE.items() if entry.mutate is not None)
"""Those that need no language model."""


def mutated(step: str, mistake: str, rng: random.Random) -> str | None:
    """The step with a mistake of that kind planted by rule; None where it has no room for one, or is wrong as it is.

    Raises: KeyError where the catalogue has no such mistake.
    """
    before, mutate = calculation(step), CATALOGUE[mistake].mutate
    after = mutate(before, rng) if before is not None and mutate is not None else None
    if before is None or after is None or after == before or not comes_out(step):
        return None
    changed = rewritten(step, before, after)
    return changed if changed != step else None


def recomputed(steps: Sequence[str], at: int, changed: str) -> list[str]:
    """A solution whose step `at` is another one, with its value carried through the steps that follow.

    Args:
        steps: pieces of a solution. A last one that states the answer states the new one.
        changed: with the same kind of calculation as the one in its place.
    """
    before, after = calculation(steps[at]), calculation(changed)
    result = [*steps[:at], changed]
    if before is None or after is None:
        return [*result, *steps[at + 1 :]]
    values = {before.value: after.value}
    was, last = before.value, after.value
    for step in steps[at + 1 :]:
        here = calculation(step)
        if here is None or is_closing(step):
            result.append(_with_values(step, {was: last} if is_closing(step) else values))
            continue
        expr = (last, *here.expr[1:]) if here.is_chain else tuple(values.get(token, token) for token in here.expr)
        new = _with(here, expr) or here
        result.append(_with_values(rewritten(step, here, new), {} if here.is_chain else values))
        values[here.value] = new.value
        was, last = here.value, new.value
    return result


def _with_values(text: str, values: Mapping[str, str]) -> str:
    """All in one pass: what was put in is not changed again."""
    changes = {old: new for old, new in values.items() if old and old != new}
    if not changes:
        return text
    every = re.compile("|".join(_whole(old) for old in sorted(changes, key=len, reverse=True)))
    return every.sub(lambda match: changes[match.group()], text)
