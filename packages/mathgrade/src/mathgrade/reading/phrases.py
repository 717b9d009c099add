"""Reads the phrase after a number: a scale (`million`), a unit, a counted noun, `in total`."""

from __future__ import annotations

import re
from typing import NoReturn

from mathgrade.reading.tokens import Token, Unreadable, is_command, is_sign, words_of
from mathgrade.reading.units import LETTERS, NO_UNIT, SYMBOLS, UNITS, Unit, unit_of

_CLOSINGS = (
    ("in", "total"), ("in", "all"), ("in", "the", "end"), ("each",), ("altogether",), ("total",), ("left",),
    ("overall",), ("old",), ("remaining",), ("long",), ("tall",), ("high",), ("wide",), ("away",), ("apiece",),
    ("per", "person"),
)  # fmt: skip
"""Words after a number and its unit that do not change it."""
MODIFIERS = frozenset(
    """
    more new different total whole full extra additional other remaining distinct possible red blue green yellow
    white black brown pink orange purple small large big of the square cubic sq cu unique
    """.split()  # noqa: SIM905
)
"""Words between a number and a noun that do not change the number."""
_CHANGES = frozenset(
    """
    half halves third thirds quarter quarters fourth fourths fifth sixth seventh eighth ninth tenth eleventh twelfth
    hundred hundreds thousand thousands dozen dozens pair pairs couple score scores twice thrice double triple times
    root negative minus plus less fewer below under above over beyond short zero not no nor never than point or and
    except but without one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety factorial power powers
    inverse inverses reciprocal reciprocals opposite opposites percent modulo base false wrong incorrect exponent
    exponents remainder greater smaller fraction fractions ratio ago logarithm sine cosine tangent multiple
    multiples square cube
    """.split()  # noqa: SIM905
)
_CHANGING_END = re.compile(r"(?:ths?|ieths?|illions?|ed|tuple|fold)$")


def is_in_words(word: str) -> bool:
    """Whether a word of a name says that the value is of something else, as `half` and `minus` do."""
    return word.lower() in _CHANGES - {"score", "ratio", "percent", "and", "without"}


def changes_value(word: str) -> bool:
    """Whether a word may change the value of the number beside it, in any text."""
    return word.lower() in _CHANGES or _CHANGING_END.search(word.lower()) is not None


_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PER = ("/", "per", "a", "an", "each", "every")


def tail(tokens: list[Token], nouns: frozenset[str], *, is_money: bool = False) -> tuple[int, Unit, bool]:
    """The phrase after the mathematics: the power of ten of a scale (`million`), the unit, and whether it begins with
    `per`.

    Args:
        is_money: a currency sign precedes the number.
    Raises: Unreadable where nothing accounts for a word of it.
    """
    if len(tokens) > 2 and is_sign(tokens[0], "(") and is_sign(tokens[-1], ")"):
        tokens = tokens[1:-1]
    flat = _flat(tokens)
    power = 0
    if flat and flat[0] in _SCALES:
        power, flat = _SCALES[flat[0]], flat[1:]
    elif flat[:1] == ["k"] and (is_money or (len(flat) > 1 and unit_of(flat[1]) == UNITS["dollar"])):
        power, flat = 3, flat[1:]
    return power, _unit_phrase(flat, flat, nouns), flat[:1] != [] and flat[0] in _PER


def _flat(tokens: list[Token]) -> list[str]:
    """Words and signs of a tail, one a string: `cm`, `^`, `2`, `/`, `%`, `deg`."""
    flat: list[str] = []
    for token in tokens:
        if token.kind == "text" and not words_of(token):
            flat += re.findall(r"[A-Za-z]+|[0-9]+|\S", token.text)
        elif words_of(token) or token.kind in ("letter", "number"):
            words = words_of(token) or [token.text]
            if token.kind == "text":
                words = [LETTERS.get(word, word) for word in words]
            flat += [part for word in words for part in re.findall(r"[A-Za-z]+|[0-9]+|[^\s.]", word)]
        elif is_command(token, "circ", "degree"):
            if flat[-1:] == ["^"]:
                flat.pop()
            flat.append("degree")
        elif is_sign(token, "{", "}"):
            continue
        elif is_sign(token, ".") and flat and re.fullmatch("[A-Za-z]+", flat[-1]):
            continue  # `sq. ft.`
        else:
            flat.append(token.text if token.kind != "command" else f"\\{token.text}")
    return flat


def _unit_phrase(words: list[str], whole: list[str], nouns: frozenset[str]) -> Unit:
    """`square miles`, `dollars per hour`, `cm^2`, `red marbles in total`, `%`; nothing at all is no unit."""
    for closing in sorted(_CLOSINGS, key=len, reverse=True):
        if tuple(word.lower() for word in words[-len(closing) :]) == closing:
            words = words[: -len(closing)]
            break
    unit = NO_UNIT
    sign = 1
    if words and words[0] in _PER:
        sign, words = -1, words[1:]
        if not words:
            _refuse(whole)
    while words:
        factor, words = _factor(words, whole, nouns)
        unit = unit.times(factor.power(sign))
        if words and words[0] in _PER:
            sign, words = -1, words[1:]
            if not words:
                _refuse(whole)
        elif words[:1] == ["of"] and len(words) > 1:
            # `pounds of apples`: what is measured.
            if not _all_nouns(words[1:], nouns):
                _refuse(whole)
            return unit
        elif words and not (_starts_unit(words, nouns) and (not factor.dimension or _is_plain(words, nouns))):
            _refuse(whole)
    return unit


def _starts_unit(words: list[str], nouns: frozenset[str]) -> bool:
    return words[0].lower() in MODIFIERS or known(words[0], nouns) is not None


def _is_plain(words: list[str], nouns: frozenset[str]) -> bool:
    """Whether what comes next is a noun: two units side by side are none."""
    unit = known(next((w for w in words if w.lower() not in MODIFIERS), words[0]), nouns)
    return unit is not None and not unit.dimension


def _refuse(words: list[str]) -> NoReturn:
    raise Unreadable(f"nothing accounts for {' '.join(words)!r} behind the number")


def _all_nouns(words: list[str], nouns: frozenset[str]) -> bool:
    return all(known(word, nouns) is not None or word.lower() in MODIFIERS for word in words)


def known(word: str, nouns: frozenset[str]) -> Unit | None:
    unit = unit_of(word)
    return NO_UNIT if unit is None and word.lower() in nouns else unit


def _factor(words: list[str], whole: list[str], nouns: frozenset[str]) -> tuple[Unit, list[str]]:
    """One unit with its power, and the remaining words."""
    exponent = 1
    while words and words[0].lower() in MODIFIERS and len(words) > 1:
        exponent = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}.get(words[0].lower(), exponent)
        words = words[1:]
    if not words:
        _refuse(whole)
    head = words[0]
    if head == "%":
        return UNITS["percent"], words[1:]
    if head in SYMBOLS:
        return SYMBOLS[head], words[1:]
    if head in ("degrees", "degree") and words[1:2] in (["C"], ["F"], ["Celsius"], ["Fahrenheit"]):
        return UNITS["celsius" if words[1][0] == "C" else "fahrenheit"], words[2:]
    unit = known(head, nouns)
    if unit is None:
        _refuse(whole)
    words = words[1:]
    if words[:1] == ["^"] and words[1:2] and words[1] in ("2", "3"):
        exponent, words = int(words[1]), words[2:]
    return unit.power(exponent), words
