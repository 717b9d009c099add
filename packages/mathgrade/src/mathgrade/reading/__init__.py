r"""Reads an answer: every token of it is accounted for, or it is `Unreadable`.

A token is accounted for as parsed mathematics, or by one of these rules, none of which can change the value:

* dress: `$ $`, `\( \)`, `\left`, spacing, `**emphasis**`, quotes, a full stop, brackets around the whole;
* a unit from the known list behind a number, a plain noun that is counted (`units`), a currency or percent sign;
* `minus`, `negative`, a number word up to twelve, digits of other scripts, fraction signs, `3 to 4` (`spelled`);
* `about`, `exactly`, `a total of` before it, and `in total`, `each`, `because ...` behind it;
* the name of the value (`x =`, `f(2) =`, `Total cost =`);
* a comma, semicolon, `and` or `or` between members of a list.

An answer with any other token is refused: `double 5`, `5 tenths`, `not 5` and `5 xy` are none of them 5. The output is
LaTeX in which products, mixed numbers and arguments are written out. Otherwise the parser behind it (latex2sympy) would
read `2(3)` as 5, drop the base of `204_5`, and ignore a prime.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mathgrade.reading.commands import without_spelled_letters
from mathgrade.reading.members import Member, members_of
from mathgrade.reading.numbers import number, plain
from mathgrade.reading.spelled import begins_spelled
from mathgrade.reading.tokens import CLOSING, OPENING, Token, Unreadable, is_command, is_sign, tokenize

__all__ = ["Member", "Reading", "Unreadable", "number", "plain", "read"]

MAX_CHARS, MAX_TOKENS = 10_000, 3000


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer that was understood."""

    members: tuple[Member, ...]

    @property
    def key(self) -> str:
        """Equal for answers that differ only in dress. Majority votes count it."""
        return ", ".join(sorted(_shown(member, is_named=len(self.members) > 1) for member in self.members))


def _shown(member: Member, *, is_named: bool) -> str:
    is_equation = len(member.sides) == 2 and not member.name and number(member.sides[0]) is None
    is_equation = is_equation and re.search(r"[A-Za-z]", re.sub(r"\\[a-z]+", "", member.sides[0])) is not None
    latex = "=".join(member.sides) if is_equation else member.sides[-1]
    value = number(latex)
    shown = latex.replace(" ", "") if value is None else plain(value)
    name = f"{member.name}=".replace(" ", "") if is_named and member.name else ""
    shown = without_spelled_letters(f"{name}{shown}")
    return shown if member.base is None else f"{shown}_{member.base}"


def read(text: str, *, math: bool = False, nouns: frozenset[str] = frozenset(), is_reference: bool = False) -> Reading:
    r"""Read an answer.

    Args:
        math: the text is mathematics as a whole, as in `\boxed{}`. Single letters are variables there, and may be units
            elsewhere.
        is_reference: even letters that touch a number are variables, as in `5m` and `3rs`.
        nouns: the question's counted nouns beside the known list, in lower case.
    Raises: Unreadable, naming the part that nothing accounts for.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable(f"it has {len(text)} characters")
    tokens = tokenize(text, math=math)
    if len(tokens) > MAX_TOKENS:
        raise Unreadable(f"it has {len(tokens)} tokens")
    tokens = _without_dress(tokens)
    if not tokens:
        raise Unreadable("it is empty")
    is_text = len(tokens) == 1 and tokens[0].kind == "text"
    if is_text and (re.search("[0-9]", tokens[0].text) or begins_spelled(tokens[0].text)):  # \text{5 apples}
        return read(tokens[0].text, nouns=nouns, is_reference=is_reference)
    if is_reference:
        tokens = [replace(t, math=True) if len(t.text) <= 3 and not t.spaced else t for t in tokens]
    members = [member for part in _list(tokens) for member in members_of(part, nouns)]
    if is_reference and any(member.is_ratio for member in members):
        raise Unreadable("a ratio or a range, whose words do not say which")
    if not members:
        raise Unreadable("it is empty")
    return Reading(tuple(members))


# --- dress and lists ------------------------------------------------------------------------------------------------

_EMPHASIS = ("*", "**", "`", "_", '"', "'")
_REASONS = {"because", "since"}


def _without_dress(tokens: list[Token]) -> list[Token]:
    """The tokens without those around the whole: emphasis, quotes, final punctuation, a reason."""
    for index, token in enumerate(tokens):
        if not token.math and token.kind == "word" and token.text in _REASONS and index:
            tokens = tokens[:index]
            break
    while tokens:
        first, last = tokens[0], tokens[-1]
        if is_sign(last, ".", ",", ";", ":", "。") or (is_sign(last, *_EMPHASIS) and not _is_prime(tokens)):
            tokens = tokens[:-1]
        elif is_sign(first, *_EMPHASIS, ":", "•") or is_command(first, "therefore", "bullet"):
            tokens = tokens[1:]
        else:
            break
    # Inner emphasis: `**5** apples`. A power sign is between two operands, without space on either side.
    bare: list[Token] = []
    for index, token in enumerate(tokens):
        if is_sign(token, "`") or (is_sign(token, "**") and not _is_between_operands(tokens, index)):
            continue
        bare.append(token)
    return bare


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
        depth += (token.kind == "sign" and token.text in OPENING) - (token.kind == "sign" and token.text in CLOSING)
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
