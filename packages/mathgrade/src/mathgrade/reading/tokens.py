r"""Splits text into tokens for `reading`: numbers, LaTeX commands, letters and words, each in mathematics or not.

Only space and commands of mere appearance (`\left`, `\displaystyle`, `\,`) are dropped. Every other character ends up
in a token, and `reading` has to account for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "letter", "word", "text", "command", "sign", "currency", "environment"]


class Unreadable(ValueError):
    """A text is no answer that could be judged: one sentence names the part that nothing accounts for."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text with a meaning."""

    kind: Kind
    text: str
    """A command without its backslash; a number without its separators (`1234.5`, `2e-9`); a text group's content."""
    math: bool = False
    """It is in mathematics, where letters are variables."""
    spaced: bool = False
    """Space came before it."""


_DRESSED = {
    "−": "-", "–": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ",
    "，": ",", "（": "(", "）": ")", "＝": "=", "．": ".", "％": "%", "＋": "+", "“": '"', "”": '"', "‘": "'", "’": "'",
    "／": "/", "：": ":", "；": ";", "［": "[", "］": "]", "＜": "<", "＞": ">", "＊": "*", "＾": "^", "＄": r"\$",
    "￥": "¥", "￡": "£", "\u3000": " ", "⁄": "/", "∕": "/", "٪": "%", "،": ",", "؛": ";",
    "\u200e": "", "\u200f": "", "\u061c": "",
}  # fmt: skip
"""Variants of other characters, and marks of direction, which show nothing."""
_SAME = str.maketrans(_DRESSED)
_SYMBOLS = {
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "√": r"\sqrt ", "±": r"\pm ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "°": r"^{\circ}", "º": r"^{\circ}", "∅": r"\emptyset ", "π": r"\pi ", "∞": r"\infty ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "φ": r"\phi ",
    "ω": r"\omega ", "∠": r"\angle ", "△": r"\triangle ",
}  # fmt: skip
"""Characters with a LaTeX command of the same meaning."""
_SYMBOL = re.compile("|".join(map(re.escape, _SYMBOLS)))
_ROOT = re.compile(r"(?:√|(?<![\\A-Za-z])sqrt)[ ]?([0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?)")
r"""A root of the whole number behind it, as without LaTeX: √45 is 3√5, and `\sqrt 45` is √4 times 5, as in TeX."""
_FRACTIONS = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5), "⅘": (4, 5),
    "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅑": (1, 9),
    "⅒": (1, 10),
}  # fmt: skip
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_LEVEL = str.maketrans(_RAISED + _LOWERED + "⁺⁻", "0123456789" * 2 + "+-")
_FRACTION = re.compile(rf"[{''.join(_FRACTIONS)}]|(?<![{_RAISED}])[{_RAISED}]{{1,15}}[⁄/][{_LOWERED}]{{1,15}}")
_POWER = re.compile(rf"[⁺⁻]?[{_RAISED}]{{1,15}}")

_GAP = r"(?:,|\{,\}|,?\\!|,\\!\s?|\\,|\\ |\\;|\s)"
"""Separators of groups of three digits. A comma with a space separates the members of a list, and after an opening
bracket any comma does: `(1,100)` is a point."""
_GROUPS = rf"(?:(?<![(\[])(?<![0-9],)[0-9]{{1,3}}(?:(?P<gap>{_GAP})[0-9]{{3}}(?:(?P=gap)[0-9]{{3}})*)(?![0-9])|[0-9]+)"
_NUMBER = rf"{_GROUPS}(?:\.[0-9]+|\.(?=\s*\\overline))?|\.[0-9]+"
_TEXT = r"\\(?:text|textbf|textit|textrm|textnormal|textsf|mathrm|mathbf|mathit|rm|bf|mbox|hbox|operatorname\*?)"
_TOKEN = re.compile(
    rf"""(?P<space>\s+|\\[,;:!>\ ]|\\q?quad|~)
    |(?P<number>(?:{_NUMBER})(?P<exponent>[eE][-+]?[0-9]{{1,3}}(?![A-Za-z0-9]|\.[0-9]))?)
    |(?P<text>{_TEXT}\s*\{{(?P<inside>(?:[^{{}}]|\^\{{(?:\\circ|2|3)\}})*)\}})
    |(?P<environment>\\(?:begin|end)\s*\{{(?P<name>[a-z]+\*?)\}}(?:\{{[lcr|\s]*\}})?)
    |(?P<command>\\[A-Za-z]+)
    |(?P<escaped>\\[^A-Za-z\s])
    |(?P<word>[A-Za-z]+)
    |(?P<power>\*\*)
    |(?P<relation><=|>=|(?<=\s)!=|~=)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_LOOKS = {
    *("left", "right", "displaystyle", "textstyle", "limits", "nolimits", "bigl", "bigr", "Bigl", "Bigr", "big", "Big"),
    *("mathbf", "mathrm", "mathit", "textbf", "textit"),
    *("mathstrut", "thinspace", "medspace", "thickspace", "negthinspace", "bf", "rm", "it", "mathopen", "mathclose"),
}
"""Commands that change only the appearance."""
_ESCAPED = {"{": "\\{", "}": "\\}", "%": "%", "$": "$", "|": "|", "_": "_", "&": "&", "\\": "\\\\", "#": "#"}
_RELATIONS = {"<=": "le", ">=": "ge", "!=": "ne", "~=": "approx"}
CURRENCY = "$€£¥¢₹"
UPRIGHT = "mghsLJNVWK"
r"""Letters that are units where they are set upright, as in `5\,\mathrm{m}`. `\mathrm{e}` is e."""


def tokenize(text: str, *, math: bool) -> list[Token]:
    r"""The tokens of a text, in order. Takes time linear in the text.

    Args:
        math: the text as a whole is mathematics, as in `\boxed{}`.
    Raises: Unreadable.
    """
    if "~~" in text:
        raise Unreadable("it is struck out, or a part of it")
    text = _FRACTION.sub(_fraction, text)
    text = _POWER.sub(lambda match: f"^{{{match[0].translate(_LEVEL).removeprefix('+')}}}", text)
    text = _ROOT.sub(r"\\sqrt{\1}", text)
    text = _SYMBOL.sub(lambda match: _SYMBOLS[match[0]], text.translate(_SAME))
    text = re.sub(r"(?<=[0-9])\s+[xX]\s+(?=[0-9])", r"\\times ", text)  # 3 x 5
    tokens: list[Token] = []
    depth = 0
    for piece, in_math in _stretches(text):
        spaced = True
        for match in _TOKEN.finditer(piece):
            if match["space"]:
                spaced = True
                continue
            token = _token(match, math or in_math, spaced)
            spaced = False
            if token is None:
                continue
            if token.kind == "sign":
                depth += (token.text in _BRACKETS) - (token.text in _BRACKETS_END)
            if depth > 0 and match["gap"] == ",":  # members, not groups of digits: `(-1,200)` is a point
                tokens += _members(match[0], math or in_math)
            else:
                tokens.append(token)
    return tokens


def _fraction(match: re.Match[str]) -> str:
    r"""`½` and `¹⁄₂` as `\frac{1}{2}`; behind a whole number that is a mixed number.

    Raises: Unreadable beside a decimal, a digit behind it or another such sign, and for `x¹⁄₂`, which may be a power.
    """
    start, end = match.span()
    before, after = match.string[max(start - 40, 0) : start].rstrip(), match.string[end : end + 2]
    beside = re.search(r"\.[0-9]+$", before) or before[-1:] in (*_FRACTIONS, *_LOWERED)
    if beside or re.match(r"\s?[0-9]", after) or (match[0] not in _FRACTIONS and re.search(r"[A-Za-z)}\]]$", before)):
        raise Unreadable(f"{match[0]} beside another number")
    top, bottom = _FRACTIONS.get(match[0]) or match[0].translate(_LEVEL).replace("⁄", "/").split("/")
    return rf"\frac{{{top}}}{{{bottom}}}"


_BRACKETS, _BRACKETS_END = ("(", "[", "\\{"), (")", "]", "\\}")
OPENING, CLOSING = {*_BRACKETS, "{"}, {*_BRACKETS_END, "}"}


def _members(text: str, math: bool) -> list[Token]:
    """`1,200` as 1 and 200."""
    members: list[Token] = []
    for part in text.split(","):
        members += [Token("sign", ",", math), Token("number", part, math)]
    return members[1:]


def _token(match: re.Match[str], math: bool, spaced: bool) -> Token | None:
    """The token of a match; None for mere appearance."""
    text = match[0]
    if match["number"]:
        if match["gap"] and text.startswith("0"):
            raise Unreadable(f"several numbers side by side: {text!r}")
        exponent = match["exponent"] or ""
        return Token("number", re.sub(r"[^0-9.]", "", text.removesuffix(exponent)) + exponent, math, spaced)
    if match["text"]:
        inside = match["inside"].replace(r"^{\circ}", "degree ").replace("~", " ").strip()
        inside = re.sub(r"\^\{(2|3)\}", r"^\1", inside)
        if re.fullmatch(r"[A-Za-z]", inside) and not text.startswith((r"\text", r"\mbox")) and inside not in UPRIGHT:
            return Token("letter", inside, math, spaced)
        return Token("text", inside, math, spaced) if inside else None
    if match["environment"]:
        return Token("environment", f"{text[1]}:{match['name']}", math, spaced)
    if text in (r"\langle", r"\rangle"):  # a point
        return Token("sign", "(" if text == r"\langle" else ")", math, spaced)
    if match["command"]:
        return None if text[1:] in _LOOKS else Token("command", text[1:], math, spaced)
    if match["escaped"]:
        if text[1] not in _ESCAPED:
            raise Unreadable(f"nothing accounts for {text!r}")
        return Token("currency" if text[1] == "$" else "sign", _ESCAPED[text[1]], math, spaced)
    if match["word"]:
        return Token("letter" if len(text) == 1 else "word", text, math, spaced)
    if match["relation"]:
        return Token("command", _RELATIONS[text], math, spaced)
    return Token("currency" if text in CURRENCY else "sign", text, math, spaced)


_DELIMITER = re.compile(r"\\\$|\\\\|\\[()\[\]]|\$\$|\$")


def _stretches(text: str) -> list[tuple[str, bool]]:
    r"""The text in pieces, and whether each is between `$ $`, `$$ $$`, `\( \)` or `\[ \]`. A `$` that opens no
    mathematics is a currency sign and stays: one without a partner, or `$5 and $6`, where a digit follows the second.
    """
    pieces: list[tuple[str, bool]] = []
    start = 0
    marks = [m for m in _DELIMITER.finditer(text) if m[0] not in ("\\$", "\\\\")]
    closers = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
    index = 0
    while index < len(marks):
        mark = marks[index]
        partner = marks[index + 1] if index + 1 < len(marks) else None
        if partner is None or closers.get(mark[0]) != partner[0] or _is_amount(text, mark, partner):
            if mark[0] != "$":
                raise Unreadable(f"{mark[0]} has no partner")
            index += 1
            continue
        pieces += [(text[start : mark.start()], False), (text[mark.end() : partner.start()], True)]
        start = partner.end()
        index += 2
    return [(piece, math) for piece, math in [*pieces, (text[start:], False)] if piece]


def _is_amount(text: str, mark: re.Match[str], partner: re.Match[str]) -> bool:
    """Whether both signs precede amounts of money."""
    return mark[0] == "$" and re.match(r"\s?\.?[0-9]", text[partner.end() :]) is not None


def is_sign(token: Token, *texts: str) -> bool:
    return token.kind == "sign" and token.text in texts


def is_command(token: Token, *names: str) -> bool:
    return token.kind == "command" and token.text in names


def words_of(token: Token) -> list[str]:
    """The words of a word or text token. Empty for other tokens, and for texts with more than words."""
    if token.kind == "text":
        return token.text.split() if re.fullmatch(r"[A-Za-z .'-]+", token.text) else []
    is_word = token.kind == "word" or (token.kind == "letter" and (not token.math or token.text == "L"))
    return [token.text] if is_word else []
