r"""What an answer says: every token of it accounted for, or `Unreadable`.

A token is accounted for as parsed mathematics, or by one of these rules, none of which can change the value:

* dress: `$ $`, `\( \)`, `\left`, spacing, `**emphasis**`, quotes, a full stop, brackets around the whole;
* a unit from the known list behind a number, a plain noun that is counted (`units`), a currency or percent sign;
* `about`, `exactly`, `a total of` before it, and `in total`, `each`, `because ...` behind it;
* the name of what the value is of (`x =`, `f(2) =`, `Total cost =`);
* a comma, semicolon, `and` or `or` between members of a list.

What is left over means that the answer is refused: `double 5`, `5 tenths`, `not 5` and `5 xy` are none of them 5. What
comes out is LaTeX in which products, mixed numbers and arguments are written out, since the parser behind it
(latex2sympy) would read `2(3)` as 5, drop the base of `204_5`, and ignore a prime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from whet.grading.reading.commands import CAPITAL_E, LETTERS
from whet.grading.reading.phrases import is_in_words, tail
from whet.grading.reading.rewriting import Rewriter
from whet.grading.reading.tokens import Token, Unreadable, is_command, is_sign, tokenize, words_of
from whet.grading.reading.units import NO_UNIT, SYMBOLS, UNITS, Unit, unit_of

__all__ = ["Member", "Reading", "Unreadable", "read"]

MAX_CHARS, MAX_TOKENS = 10_000, 3000


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the list that an answer is; most answers have one."""

    sides: tuple[str, ...]
    """LaTeX. Several: an equation, or a chain of equal values, as in `3 \\cdot 6 = 18`."""
    name: str = ""
    """LaTeX of what the value was said to be of, as the `x` of `x = 5`. Empty: it has no name, or one in words."""
    rough: tuple[bool, ...] = ()
    """Of each sign between two sides, whether it stands for equal but for rounding."""
    unit: Unit = NO_UNIT
    """Of the last side; the other sides are already in it."""
    base: int | None = None
    """Of a numeral written with one, as `204_5`."""

    @property
    def number(self) -> Decimal | None:
        """The exact value of a lone plain number."""
        return number(self.sides[0]) if len(self.sides) == 1 else None


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer that was understood."""

    members: tuple[Member, ...]

    @property
    def key(self) -> str:
        """The same for answers that are written alike but for dress; what majority votes count."""
        return ", ".join(sorted(_shown(member, is_named=len(self.members) > 1) for member in self.members))


def _shown(member: Member, *, is_named: bool) -> str:
    is_equation = len(member.sides) == 2 and not member.name and number(member.sides[0]) is None
    is_equation = is_equation and re.search(r"[A-Za-z]", re.sub(r"\\[a-z]+", "", member.sides[0])) is not None
    latex = "=".join(member.sides) if is_equation else member.sides[-1]
    value = number(latex)
    shown = latex.replace(" ", "") if value is None else plain(value)
    name = f"{member.name}=".replace(" ", "") if is_named and member.name else ""
    shown = shown.replace(CAPITAL_E, "E")
    return f"{name}{shown}" if member.base is None else f"{name}{shown}_{member.base}"


def read(text: str, *, math: bool = False, nouns: frozenset[str] = frozenset(), is_reference: bool = False) -> Reading:
    r"""What an answer says.

    Args:
        math: the text is mathematics as a whole, as what stands in `\boxed{}`: single letters are variables there, and
            may be units elsewhere.
        is_reference: letters that touch a number are variables even so, as in `5m` and `3rs`.
        nouns: words that may be counted beside those of the known list, lower case: the question's.
    Raises: Unreadable, with what in it nothing accounts for.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable(f"it has {len(text)} characters")
    tokens = tokenize(text, math=math)
    if len(tokens) > MAX_TOKENS:
        raise Unreadable(f"it has {len(tokens)} tokens")
    tokens = _without_dress(tokens)
    if not tokens:
        raise Unreadable("it is empty")
    if len(tokens) == 1 and tokens[0].kind == "text" and re.search("[0-9]", tokens[0].text):  # \text{5 apples}
        return read(tokens[0].text, nouns=nouns)
    if is_reference:
        tokens = [replace(t, math=True) if len(t.text) <= 3 and not t.spaced else t for t in tokens]
    members = [member for part in _list(tokens) for member in _member(part, nouns)]
    if not members:
        raise Unreadable("it is empty")
    return Reading(tuple(members))


# --- numbers --------------------------------------------------------------------------------------------------------

_SCIENTIFIC = re.compile(
    r"([-+]?)\(?\s*([-+]?)\s*([0-9]*\.?[0-9]*)\s*\)?(?:\\cdot\s*10\s*\^\{\s*([-+]?)\s*([0-9]{1,3})\s*\})?\)?"
)


def number(latex: str) -> Decimal | None:
    r"""The exact value of a plain number as `read` writes it: `-0.50`, `2.9\cdot 10^{-19}`. None for anything else."""
    match = _SCIENTIFIC.fullmatch(latex.strip())
    if not match or not re.search("[0-9]", match[3]) or len(match[3]) > 1000:
        return None
    sign, inner, digits, minus, power = match.groups(default="")
    return Decimal(f"{'-' * (sign + inner).count('-') if sign != inner else ''}{digits}e{minus}{power or 0}")


def plain(value: Decimal) -> str:
    """All digits, without trailing zeros: `18.0` is `18`."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


# --- dress and lists ------------------------------------------------------------------------------------------------

_OPEN = {"(", "[", "\\{", "{"}
_CLOSE = {")", "]", "\\}", "}"}
_LEADS = {"approximately", "about", "roughly", "exactly", "only", "just", "simply", "precisely", "around"}
"""Words before a number that leave it what it is."""
_EMPHASIS = ("*", "**", "`", "_", '"', "'")
_REASONS = {"because", "since"}


def _without_dress(tokens: list[Token]) -> list[Token]:
    """Without what stands around the whole: emphasis, quotes, final punctuation, a reason."""
    for index, token in enumerate(tokens):
        if not token.math and token.kind == "word" and token.text in _REASONS and index:
            tokens = tokens[:index]
            break
    while tokens:
        first, last = tokens[0], tokens[-1]
        if is_sign(last, ".", ",", ";", ":") or (is_sign(last, *_EMPHASIS) and not _is_prime(tokens)):
            tokens = tokens[:-1]
        elif is_sign(first, *_EMPHASIS, ":", "•") or is_command(first, "therefore", "bullet"):
            tokens = tokens[1:]
        else:
            break
    # Emphasis within: `**5** apples`. A power sign stands between two operands, without space on either side.
    kept: list[Token] = []
    for index, token in enumerate(tokens):
        if is_sign(token, "`") or (is_sign(token, "**") and not _is_between_operands(tokens, index)):
            continue
        kept.append(token)
    return kept


def _is_prime(tokens: list[Token]) -> bool:
    return is_sign(tokens[-1], "'") and not any(is_sign(token, "'") for token in tokens[:-1])


def _is_between_operands(tokens: list[Token], index: int) -> bool:
    if not 0 < index < len(tokens) - 1:
        return False
    before, after = tokens[index - 1], tokens[index + 1]
    ends = before.kind in ("number", "letter") or is_sign(before, ")", "}")
    return ends and (after.kind in ("number", "letter") or is_sign(after, "(", "-"))


def _list(tokens: list[Token]) -> list[list[Token]]:
    """The members of the list, which commas, semicolons, `and` and `or` part outside of brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.kind == "sign" and token.text in _OPEN) - (token.kind == "sign" and token.text in _CLOSE)
        depth += token.kind == "environment" and (1 if token.text.startswith("b") else -1)
        is_word = token.kind in ("word", "text") and token.text in ("and", "or")
        if depth <= 0 and (is_word or is_sign(token, ",", ";")):
            # `1, and 2`: the comma and the word are one.
            if parts[-1] or not (is_word and len(parts) > 1):
                parts.append([])
            continue
        parts[-1].append(token)
    if any(not part for part in parts):
        raise Unreadable("a list in it has an empty place")
    return parts


# --- one member -----------------------------------------------------------------------------------------------------


@dataclass
class _Side:
    """One side of an equation, while it is read."""

    latex: str
    unit: Unit = NO_UNIT
    base: int | None = None
    is_words: bool = False
    is_name: bool = False
    has_letters: bool = False


def _member(tokens: list[Token], nouns: frozenset[str]) -> list[Member]:
    r"""A part of the list as its members: two where it holds `\pm`."""
    if any(is_command(token, "pm", "mp") for token in tokens):
        upper = [_signed(token, "+", "-") for token in tokens]
        lower = [_signed(token, "-", "+") for token in tokens]
        return [*_member(upper, nouns), *_member(lower, nouns)]
    sides: list[list[Token]] = [[]]
    rough: list[bool] = []
    depth = 0
    for token in tokens:
        depth += (token.kind == "sign" and token.text in _OPEN) - (token.kind == "sign" and token.text in _CLOSE)
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
    return Member(latex, name, tuple(rough), last.unit, last.base)


def _factor(unit: Unit, into: Unit) -> Fraction:
    """What a number of one unit has to be multiplied by to be one of the other."""
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
    tokens, unit = _leads(list(tokens))
    rewriter = Rewriter(tokens, nouns)
    latex = rewriter.side()
    if rewriter.base is not None and not latex.isdecimal():
        raise Unreadable("a numeral with a base among others")
    rest = tokens[rewriter.at :]
    power, found, is_rate = tail(rest, nouns, is_money=unit.dimension != ())
    if power:
        latex = rf"({latex})\cdot 10^{{{power}}}"
    if found.dimension and unit.dimension and not is_rate and found != unit:
        raise Unreadable("it has two units")
    unit = unit.times(found) if is_rate or not unit.dimension else unit
    is_name = not rest and _NAME.fullmatch(latex.replace(" ", "")) is not None
    return _Side(latex, unit, rewriter.base, is_name=is_name, has_letters=rewriter.letters)


_ATOM = rf"(?:(?:[A-Za-z]|\\(?:{'|'.join(sorted(LETTERS))})\b ?)(?:_\{{[^{{}}]*\}})?|\\text\{{[A-Za-z0-9]+\}})"
_PRODUCT = rf"{_ATOM}(?:(?:\\cdot)?{_ATOM}){{0,3}}"
_NAME = re.compile(
    rf"{_ATOM}|{_PRODUCT}|{_ATOM}\([^()]*\)|\|{_PRODUCT}\||{_PRODUCT}/{_PRODUCT}|\\frac\{{{_PRODUCT}\}}\{{{_PRODUCT}\}}"
    rf"|\({_PRODUCT}(?:,{_PRODUCT})*\)"
)
"""`x`, `x_{1}`, `AB`, `f(2)`, `|AB|`, `A:B`, `(x,y)`: what a value may be of."""


def _leads(tokens: list[Token]) -> tuple[list[Token], Unit]:
    """The tokens without words that leave the number what it is and without a currency sign; and that currency."""
    unit = NO_UNIT
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
    return tokens, unit
