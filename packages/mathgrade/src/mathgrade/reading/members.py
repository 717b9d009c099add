"""One member of an answer, which is a list: a value, its unit, and its name or its equation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from mathgrade.reading.commands import LETTERS
from mathgrade.reading.numbers import number
from mathgrade.reading.phrases import is_in_words, tail
from mathgrade.reading.rewriting import Rewriter
from mathgrade.reading.spelled import ratio_terms, with_digits
from mathgrade.reading.tokens import CLOSING, OPENING, Token, Unreadable, is_command, is_sign, words_of
from mathgrade.reading.units import NO_UNIT, SYMBOLS, UNITS, Unit, unit_of


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an answer, which is a list; most answers have one."""

    sides: tuple[str, ...]
    """LaTeX. Several: an equation, or a chain of equal values, as in `3 \\cdot 6 = 18`."""
    name: str = ""
    """LaTeX of the value's name, as the `x` of `x = 5`. Empty: it has no name, or one in words."""
    rough: tuple[bool, ...] = ()
    """For each sign between two sides, whether it means equal up to rounding."""
    unit: Unit = NO_UNIT
    """Of the last side; the other sides are already converted to it."""
    base: int | None = None
    """Of a numeral written with one, as `204_5`."""
    is_ratio: bool = False
    """It was written as `3 to 4`, which is a ratio or a range, and no plain number."""

    @property
    def number(self) -> Decimal | None:
        """The exact value of a lone plain number."""
        return number(self.sides[0]) if len(self.sides) == 1 else None


_LEADS = {"approximately", "about", "roughly", "exactly", "only", "just", "simply", "precisely", "around"}
"""Words before a number that do not change it."""


@dataclass
class _Side:
    """One side of an equation, while it is read."""

    latex: str
    unit: Unit = NO_UNIT
    base: int | None = None
    is_words: bool = False
    is_name: bool = False
    has_letters: bool = False
    is_ratio: bool = False


def members_of(tokens: list[Token], nouns: frozenset[str]) -> list[Member]:
    r"""A part of the list as its members: two where it holds `\pm`."""
    if any(is_command(token, "pm", "mp") for token in tokens):
        upper = [_signed(token, "+", "-") for token in tokens]
        lower = [_signed(token, "-", "+") for token in tokens]
        return [*members_of(upper, nouns), *members_of(lower, nouns)]
    sides: list[list[Token]] = [[]]
    rough: list[bool] = []
    depth = 0
    for token in tokens:
        depth += (token.kind == "sign" and token.text in OPENING) - (token.kind == "sign" and token.text in CLOSING)
        if depth <= 0 and (is_sign(token, "=") or is_command(token, "approx", "simeq", "doteq", "in")):
            rough.append(is_command(token, "approx", "simeq", "doteq"))
            sides.append([])
        else:
            sides[-1].append(token)
    if not sides[0] and len(sides) > 1:  # `= 5`
        sides, rough = sides[1:], rough[1:]
    if any(not side for side in sides):
        raise Unreadable("a side of an equation is empty")
    read_sides = [_side(side, nouns, may_be_words=index < len(sides) - 1) for index, side in enumerate(sides)]
    return [_joined(read_sides, rough)]


def _signed(token: Token, pm: str, mp: str) -> Token:
    if not is_command(token, "pm", "mp"):
        return token
    return replace(token, kind="sign", text=pm if token.text == "pm" else mp)


def _joined(sides: list[_Side], rough: list[bool]) -> Member:
    """`name = value`, `value = name`, a chain of values, or an equation."""
    name = ""
    if len(sides) > 1 and (sides[0].is_words or sides[0].is_name):
        name = "" if sides[0].is_words else sides[0].latex
        sides, rough = sides[1:], rough[1:]
    elif len(sides) == 2 and sides[1].is_name and not sides[0].has_letters:
        name, sides, rough = sides[1].latex, sides[:1], []
    last = sides[-1]
    latex = tuple(scaled(side.latex, _factor(side.unit, last.unit)) for side in sides)
    return Member(latex, name, tuple(rough), last.unit, last.base, last.is_ratio)


def _factor(unit: Unit, into: Unit) -> Fraction:
    """The factor that converts a number of one unit to the other."""
    percent = UNITS["percent"]
    if percent in (unit, into) and not (unit.dimension and into.dimension):  # `0.25 = 25%`
        return Fraction(100) if into == percent else Fraction(1, 100)
    if not (unit.dimension and into.dimension):
        return Fraction(1)
    if unit.dimension != into.dimension:
        raise Unreadable("its sides have other units")
    return unit.size / into.size


def scaled(latex: str, factor: Fraction) -> str:
    """The LaTeX of a value times a factor."""
    return latex if factor == 1 else rf"({latex})\cdot \frac{{{factor.numerator}}}{{{factor.denominator}}}"


def _side(tokens: list[Token], nouns: frozenset[str], *, may_be_words: bool) -> _Side:
    """The mathematics of a side, and the unit behind it.

    Args:
        may_be_words: the side may be a name in words, as it is not the last one.
    """
    words = [word for token in tokens for word in words_of(token)]
    is_product = all(token.math and token.kind == "word" and len(token.text) <= 3 for token in tokens)  # AB = 5
    if may_be_words and not is_product and all(words_of(token) for token in tokens) and len(words) <= 8:
        if any(map(is_in_words, words)):
            raise Unreadable(f"nothing accounts for {' '.join(words)!r}")
        if any(len(word) > 1 for word in words):
            return _Side(" ".join(words), is_words=True)
    terms = ratio_terms(tokens)
    if terms:
        return _Side("/".join(terms), is_ratio=True)
    tokens, unit = _leads(list(tokens))
    rewriter = Rewriter(tokens, nouns)
    latex = rewriter.side()
    if rewriter.base is not None and not latex.isdecimal():
        raise Unreadable("a numeral with a base among others")
    rest = tokens[rewriter.at :]
    power, tail_unit, is_rate = tail(rest, nouns, is_money=unit.dimension != ())
    if power:
        latex = rf"({latex})\cdot 10^{{{power}}}"
    if tail_unit.dimension and unit.dimension and not is_rate and tail_unit != unit:
        raise Unreadable("it has two units")
    unit = unit.times(tail_unit) if is_rate or not unit.dimension else unit
    is_name = not rest and _NAME.fullmatch(latex.replace(" ", "")) is not None
    return _Side(latex, unit, rewriter.base, is_name=is_name, has_letters=rewriter.letters)


_ATOM = rf"(?:(?:[A-Za-z]|\\(?:{'|'.join(sorted(LETTERS))})\b ?)(?:_\{{[^{{}}]*\}})?|\\text\{{[A-Za-z0-9]+\}})"
_PRODUCT = rf"{_ATOM}(?:(?:\\cdot)?{_ATOM}){{0,3}}"
_NAME = re.compile(
    rf"{_ATOM}|{_PRODUCT}|{_ATOM}\([^()]*\)|\|{_PRODUCT}\||{_PRODUCT}/{_PRODUCT}|\\frac\{{{_PRODUCT}\}}\{{{_PRODUCT}\}}"
    rf"|\({_PRODUCT}(?:,{_PRODUCT})*\)"
)
"""`x`, `x_{1}`, `AB`, `f(2)`, `|AB|`, `A:B`, `(x,y)`: names that a value may have."""


def _leads(tokens: list[Token]) -> tuple[list[Token], Unit]:
    """The tokens without words that do not change the number and without a currency sign; and that currency.

    A number or a sign in words becomes one in characters.
    """
    unit = NO_UNIT
    tokens = with_digits(tokens)
    while len(tokens) > 1:
        words = [token.text.lower() for token in tokens[:3] if token.kind == "word"]
        if tokens[0].kind in ("word", "text") and tokens[0].text.lower() in _LEADS:
            tokens = tokens[1:]
        elif tokens[0].text.lower() == "a" and words[:2] == ["total", "of"]:
            tokens = tokens[3:]
        elif tokens[0].kind == "currency" and tokens[0].text in SYMBOLS:
            tokens, unit = tokens[1:], SYMBOLS[tokens[0].text]
        elif is_sign(tokens[0], "-") and tokens[1].kind == "currency":
            tokens, unit = [tokens[0], *tokens[2:]], SYMBOLS[tokens[1].text]
        elif tokens[0].kind == "word" and tokens[0].text in ("USD", "Rs"):
            tokens, unit = tokens[1:], unit_of(tokens[0].text) or NO_UNIT
        else:
            break
        tokens = with_digits(tokens)
    return tokens, unit
