r"""Finds the final answer in a reply and brings it to a form that can be compared, without any mathematics.

A reply gives its answer after the last of `The answer is`, `Answer:` and `####`, or in the last `\boxed{}`; whichever
of them stands last counts, so that a reply has one answer and a list of guesses has none of them. Everything here
takes time linear in the text and never evaluates it.
"""

from __future__ import annotations

import re
from decimal import Decimal

from whet.tasks.layouts import last_boxed

_CHECKED = r"(?!\s*(?:in)?(?:correct|right|wrong|valid|reasonable|consistent|verified)\b)"
_TRIGGER = re.compile(
    rf"\banswer[\s*_]*is\b{_CHECKED}[\s*_]*:?|(?:^[ \t*_#]*|\bfinal\s+)answer[\s*_]*:", re.IGNORECASE | re.MULTILINE
)
"""`The answer is 5`, or `Answer: 5` at the start of a line; not `our answer is correct`, `We check our answer: ...`."""
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_CLOSING = re.compile(r"\b(?:is|are|equals)\b")
_HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*(\S[^\n]*)")
_DISPLAY = re.compile(r"\\\[(.*?)\\\]|\$\$(.*?)\$\$", re.DOTALL)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
"""A word; names of LaTeX commands are none."""


def final_answer(reply: str) -> str | None:
    """The answer that a reply commits itself to, cleaned. None: it gives none, or breaks off before it.

    Without any marker the last line counts if it is an answer and little else: a number and words, or mathematics
    with at most two words; or if it closes with one, as in `So the sum is $x + 1$.`
    """
    found = _marked(reply)
    if found is not None:
        return clean(found) or None
    lines = [line for line in reply.splitlines() if line.strip(" \t*_`$")]
    if not lines or _BOX.search(lines[-1]):  # a box that never closes: broken off
        return None
    answer, closing = clean(lines[-1]), _CLOSING.split(lines[-1])[-1]
    if len(_WORD.findall(answer)) > 2 and len(_WORD.findall(closing)) <= 1:
        answer = clean(closing)
    return answer if answer and len(_WORD.findall(answer)) <= 2 else None


def reference_answer(reference: str) -> str:
    """The cleaned reference: what its last marker points to if it has one (a worked solution), else all of it."""
    marked = _marked(reference)
    return clean(reference if marked is None else marked)


def _marked(text: str) -> str | None:
    """What follows the marker that starts last, uncleaned. None: there is no marker."""
    found = []
    boxed = last_boxed(text)
    if boxed:
        found.append(boxed)
    triggers = list(_TRIGGER.finditer(text))
    if triggers:
        found.append((triggers[-1].start(), _statement(text[triggers[-1].end() :])))
    hashes = [match for match in _HASHES.finditer(text) if not _WORD.search(match[1])]  # with words: a heading
    if hashes:
        found.append((hashes[-1].start(), hashes[-1][1]))
    return max(found)[1] if found else None


def _statement(text: str) -> str:
    """The first sentence or displayed formula."""
    text = text.lstrip(" \t\n\r:*_")
    display = _DISPLAY.match(text)
    if display:
        return display[1] or display[2] or ""
    return re.split(r"\.(?=\s)", text.partition("\n")[0], maxsplit=1)[0]


# --- one form for what is the same ----------------------------------------------------------------------------------

_NOISE = re.compile(r"(?<!\\)\\[()\[\]!;]|\\?[$€£]|\*\*|`")
_PERCENT = re.compile(r"(?:\\?%|percent)$")
_MIXED = re.compile(r"(-?)\s*(\d+)\s+(\d+)/(\d+)")
_PROSE_NUMBER = re.compile(r"(?<![\w.^*/+(,-])-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:/\d+)?(?![\w^*/(])(?!\s*[*/^+(])")
_OPERATION = re.compile(r"[+*×·÷]|(?:\b\w|\d|\))\s*-\s*(?:\w\b|\d|\()")
_NOT_UNITS = re.compile(
    r"(?i)\b(?:and|or|to|not|sqrt|root|pi|log|ln|exp|sin|cos|tan|over|times|plus|minus|negative|squared|cubed|half|twice"
    r"|choose|mod|hundred|thousand|million|billion|trillion|dozen|least|most|than|between|infinity)\b"
)
"""Words that change what the number beside them says."""


def clean(text: str) -> str:
    """Without delimiters, emphasis, currency and percent signs, final punctuation, and, around a single number, words.

    `$\\$1,080.00$ per week.` is `1080`; `**50\\%**` is `50`; `3 or 4` and `2\\sqrt{3}` stay as they are.
    """
    text = _NOISE.sub("", text.replace("−", "-")).strip().rstrip(".,;:!").strip("* \t\n_")
    text = _PERCENT.sub("", text).strip()
    mixed = _MIXED.fullmatch(text)
    if mixed:
        sign, whole, top, bottom = mixed.groups()
        return f"{sign}{whole}\\frac{{{top}}}{{{bottom}}}"
    text = _single_number(text)
    value = number(text)
    return text if value is None else plain(value)


def _single_number(text: str) -> str:
    """The number in `18 dollars per day` or `6 * 3 = 18 apples`; other texts as they are."""
    if not _WORD.search(text) or _NOT_UNITS.search(text) or re.search(r"[\\{}^_<>]", text):
        return text
    right = text.rpartition("=")[2]
    numbers = set(_PROSE_NUMBER.findall(right))
    return numbers.pop() if len(numbers) == 1 and not _OPERATION.search(right) else text


_DIGITS = r"[0-9]{1,3}(?:(?:,|\{,\}|\\,|\\ )[0-9]{3})+|[0-9]{1,400}"
_TEN = r"\s*(?:\\times|\\cdot|\*|x|×)\s*10\s*(?:\^|\*\*)\s*\{?\s*([-+]?[0-9]{1,3})\s*\}?"
_NUMBER = re.compile(rf"([-+]?)\s*({_DIGITS})?(\.[0-9]{{0,400}})?(?:[eE]([-+]?[0-9]{{1,3}})|{_TEN})?")


def number(text: str) -> Decimal | None:
    r"""The exact value of a plain number: `1,234`, `-0.50`, `.5`, `2.9e-19`, `2.9 \times 10^{-19}`. None for others."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return None
    sign, whole, decimals, exponent, power = match.groups(default="")
    digits = re.sub(r"[^0-9]", "", whole) + (decimals if len(decimals) > 1 else "")
    return Decimal(f"{sign}{digits}e{exponent or power or 0}") if digits else None


def plain(value: Decimal) -> str:
    """All digits, without trailing zeros: `18.0` is `18`."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


_SPACING = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,: ]|\s+")


def is_row_of_numbers(text: str) -> bool:
    """`1 2 3`: guesses side by side, which LaTeX would read as a product."""
    return "\\" not in text and re.search(r"[0-9]\s+[0-9]", text) is not None


def same_text(answer: str, reference: str) -> bool:
    """Whether two texts are the same, but for spacing, `\\text`, `\\dfrac`, and case where there is no LaTeX."""
    return bool(answer) and _bare(answer) == _bare(reference)


def _bare(text: str) -> str:
    text = re.sub(r"\\[dt]frac", r"\\frac", _SPACING.sub("", _without_text_commands(text)))
    return text if "\\" in text else text.casefold()


def choice(text: str) -> str | None:
    """The one option, A to J, that a text picks, as in `(C) 40`, `C. 40`, `option C`. None: none, or several."""
    text = _without_text_commands(text)
    for pattern in (r"\(([A-Ja-j])\)", r"(?<!\w)([A-Ja-j])[).:]", r"(?<![\w'])([A-HJ])(?![\w'])", r"^([a-jI])$"):
        letters = {letter.upper() for letter in re.findall(pattern, text)}
        if letters:
            return letters.pop() if len(letters) == 1 else None
    return None


def is_choice(reference: str) -> bool:
    r"""Whether a reference is an option: `C`, `(C)`, `\text{(C)}`."""
    return re.fullmatch(r"\(?[A-Ja-j]\)?", _without_text_commands(reference)) is not None


def _without_text_commands(text: str) -> str:
    return re.sub(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}", r"\1", text)
