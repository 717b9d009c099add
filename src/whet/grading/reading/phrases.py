"""What may stand behind a number and leave it what it is: a scale (`million`), a unit, a counted noun, `in total`."""

from __future__ import annotations

import re
from typing import NoReturn

from whet.grading.reading.tokens import Token, Unreadable, is_command, is_sign, words_of
from whet.grading.reading.units import LETTERS, NO_UNIT, SYMBOLS, UNITS, Unit, unit_of

_CLOSINGS = (
    ("in", "total"), ("in", "all"), ("in", "the", "end"), ("each",), ("altogether",), ("total",), ("left",),
    ("overall",), ("old",), ("remaining",), ("long",), ("tall",), ("high",), ("wide",), ("away",), ("apiece",),
    ("per", "person"),
)  # fmt: skip
"""Words behind a number and its unit that leave it what it is."""
MODIFIERS = frozenset(
    """
    more new different total whole full extra additional other remaining distinct possible red blue green yellow
    white black brown pink orange purple small large big of the square cubic sq cu unique
    """.split()  # noqa: SIM905
)
"""Words between a number and a noun that leave the number what it is."""
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PER = ("/", "per", "a", "an", "each", "every")


def tail(tokens: list[Token], nouns: frozenset[str]) -> tuple[int, Unit, bool]:
    """What stands behind the mathematics: the power of ten of a scale (`million`), the unit, and whether that begins
    with `per`.

    Raises: Unreadable where nothing accounts for a word of it.
    """
    if len(tokens) > 2 and is_sign(tokens[0], "(") and is_sign(tokens[-1], ")"):
        tokens = tokens[1:-1]
    flat = _flat(tokens)
    power = 0
    if flat and flat[0] in _SCALES:
        power, flat = _SCALES[flat[0]], flat[1:]
    elif len(flat) > 1 and flat[0] == "k" and (unit_of(flat[1]) or NO_UNIT).dimension[:1] == (("money", 1),):
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
        elif words and not _starts_unit(words, nouns):
            _refuse(whole)
    return unit


def _starts_unit(words: list[str], nouns: frozenset[str]) -> bool:
    return words[0].lower() in MODIFIERS or known(words[0], nouns) is not None


def _refuse(words: list[str]) -> NoReturn:
    raise Unreadable(f"nothing accounts for {' '.join(words)!r} behind the number")


def _all_nouns(words: list[str], nouns: frozenset[str]) -> bool:
    return all(known(word, nouns) is not None or word.lower() in MODIFIERS for word in words)


def known(word: str, nouns: frozenset[str]) -> Unit | None:
    unit = unit_of(word)
    return NO_UNIT if unit is None and word.lower() in nouns else unit


def _factor(words: list[str], whole: list[str], nouns: frozenset[str]) -> tuple[Unit, list[str]]:
    """One unit with its power, and what is left."""
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
    if head == "degree" and words[1:2] in (["C"], ["F"], ["Celsius"], ["Fahrenheit"]):
        return UNITS["celsius" if words[1][0] == "C" else "fahrenheit"], words[2:]
    if head in ("degrees", "degree") and words[1:2] in (["C"], ["F"], ["Celsius"], ["Fahrenheit"]):
        return UNITS["celsius" if words[1][0] == "C" else "fahrenheit"], words[2:]
    unit = known(head, nouns)
    if unit is None:
        _refuse(whole)
    words = words[1:]
    if words[:1] == ["^"] and words[1:2] and words[1] in ("2", "3"):
        exponent, words = int(words[1]), words[2:]
    return unit.power(exponent), words
