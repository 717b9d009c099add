"""Numbers in words and in other digits: `minus 5`, `twelve apples`, `3 to 4`, `٥`, `１２`, `¾`.

A word is read only where an amount begins, and only if a unit, a noun or nothing follows the amount. `minus 5 + 3`,
`twelve hundred` and `five!` stay as they are, and are then refused.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mathgrade.reading.tokens import Token, is_command, is_sign

_NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {name: str(value) for value, name in enumerate(_NAMES.split())}
_MINUS = {"minus", "negative"}
HAS_NUMBER_WORD = re.compile(rf"\b(?:{_NAMES.replace(' ', '|')})\b", re.IGNORECASE)


def begins_spelled(text: str) -> bool:
    """Whether the first word of a text is a number or a sign."""
    first = text.split(maxsplit=1)[0].lower() if text.strip() else ""
    return first in _NUMBERS or first in _MINUS


def with_digits(tokens: list[Token]) -> list[Token]:
    """An amount with its sign and number in characters in place of words: `minus five cm` as `-5 cm`."""
    if not tokens or tokens[0].kind not in ("word", "text") or not begins_spelled(tokens[0].text):
        return tokens
    tokens = [part for token in tokens for part in _words(token)]
    is_negative = tokens[0].text.lower() in _MINUS
    amount = tokens[1:] if is_negative else tokens
    if amount and amount[0].kind in ("word", "text") and amount[0].text.lower() in _NUMBERS:
        amount = [replace(amount[0], kind="number", text=_NUMBERS[amount[0].text.lower()]), *amount[1:]]
        is_amount = _ends_amount(amount, 1) and not (len(amount) > 1 and is_sign(amount[1], "/"))
    else:
        is_amount = is_negative and _ends_amount(amount, _amount_end(amount))
    if not is_amount:
        return tokens
    return [replace(tokens[0], kind="sign", text="-"), *amount] if is_negative else amount


def _words(token: Token) -> list[Token]:
    r"""`\text{minus five}` as its words."""
    if token.kind != "text" or not re.fullmatch(r"[A-Za-z]+(?:\s+[A-Za-z]+)+", token.text):
        return [token]
    return [replace(token, text=word, spaced=True) for word in token.text.split()]


def _amount_end(tokens: list[Token]) -> int:
    r"""The end of the number at the start of the tokens: `\$5`, `3 1/2`, `3\frac{1}{2}`, `2 \cdot 10^{-7}`. 0: none."""
    shape = "".join(map(_shape, tokens[:20]))
    match = _AMOUNT.match(shape)
    return match.end() if match else 0


_AMOUNT = re.compile(r"c?(?:nn/n|n/n|n?f(?:\{n\}\{n\}|n)|nxn\^(?:\{-?n\}|-?n)|n)")


def _shape(token: Token) -> str:
    """One character for a token's part in an amount."""
    if token.kind in ("number", "currency"):
        return token.kind[0]
    if is_command(token, "frac", "dfrac", "tfrac"):
        return "f"
    if is_command(token, "times", "cdot") or is_sign(token, "*"):
        return "x"
    return token.text if token.kind == "sign" and token.text in ("/", "{", "}", "^", "-") else "?"


def _ends_amount(tokens: list[Token], end: int) -> bool:
    """Whether an amount ends here: nothing follows, or a possible unit, and no operator."""
    if end == 0:
        return False
    following, after = (tokens[at] if at < len(tokens) else None for at in (end, end + 1))
    if following is None or following.kind in ("word", "text", "currency") or is_sign(following, "%"):
        return True
    if is_command(following, "circ", "degree", "percent"):
        return True
    if following.kind == "letter":
        return not following.math and after is None
    if is_sign(following, "/", "("):
        return after is not None and after.kind in ("word", "text")
    return is_sign(following, "^") and any(is_command(token, "circ", "degree") for token in tokens[end + 1 : end + 3])


def ratio_terms(tokens: list[Token]) -> tuple[str, str] | None:
    """The terms of `3 to 4`, `three to four`. None: the tokens are more than that, or a term is 0."""
    tokens = [part for token in tokens for part in _words(token)]
    if len(tokens) != 3 or tokens[1].kind not in ("word", "text") or tokens[1].text != "to":
        return None
    first, second = (
        token.text if token.kind == "number" else _NUMBERS.get(token.text.lower(), "") for token in tokens[::2]
    )
    is_ratio = all(re.fullmatch(r"[0-9]{0,15}\.?[0-9]{1,15}", term) and term.strip("0.") for term in (first, second))
    return (first, second) if is_ratio else None


# --- digits of other scripts ------------------------------------------------------------------------------------------

_ZEROS = {"full-width": 0xFF10, "Arabic-Indic": 0x0660, "Persian": 0x06F0}
_TO_ASCII = {zero + digit: str(digit) for zero in _ZEROS.values() for digit in range(10)}
_SEPARATORS = str.maketrans({"٫": ".", "٬": ","})
_DIGIT = "0-9٠-٩۰-۹０-９"
_RUN = re.compile(rf"[{_DIGIT}](?:[.,．，٫٬/⁄∕／:\s]?[{_DIGIT}])*")


def in_ascii_digits(text: str) -> str:
    """The text with full-width, Arabic-Indic and Persian digits as ASCII ones, and their decimal and thousands signs.

    A number that mixes the digits of two scripts stays as it is, and is then refused. Takes linear time.
    """
    return text if text.isascii() else _RUN.sub(_converted, text)


def _converted(run: re.Match[str]) -> str:
    scripts = {ord(character) - int(character) for character in run[0] if character.isdecimal()}
    if len(scripts) > 1 or scripts == {ord("0")}:
        return run[0]
    return run[0].translate(_SEPARATORS).translate(_TO_ASCII)
