"""Compares answers as texts: names, times, words, and texts that differ only in dress."""

from __future__ import annotations

import re

_SPACING = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,:;! ]|\s+")
_NOON = re.compile(r"(:[0-9]{2})([AaPp])\.?[Mm]\.?(?![A-Za-z])")
"""The half of the day behind a time: `2:30 p.m.`, without its space."""
_WORDS = re.compile(r"[A-Za-z]{3,}|\A[Nn][Oo]\Z")
"""Words, whose case does not count, and not letters: 5X is not 5x."""
_RATIO = re.compile(r"[0-9.]+(?:to[0-9.]+)+")
_EMPHASIS = r"(?<![0-9A-Za-z)}])\*\*|\*\*(?![0-9A-Za-z({-])"  # 2**3 is a power
DRESS = re.compile(rf"\\[()\[\]]|(?<!\\)\$|{_EMPHASIS}|`|\\displaystyle")


def same_text(answer: str, reference: str) -> bool:
    """Whether two texts are the same, but for spacing, `\\text`, `\\dfrac`, delimiters, emphasis, a full stop, and case
    where there is no LaTeX. The ratios `3 to 4` and `3:4` are the same text."""
    return bool(_bare(answer)) and _bare(answer) == _bare(reference)


def _bare(text: str) -> str:
    text = DRESS.sub("", without_text_commands(text)).strip().rstrip(".").strip()
    text = _SPACING.sub(" ", re.sub(r"\\[dt]frac", r"\\frac", text))
    text = re.sub(r"(?<![0-9]) +| +(?![0-9])", "", text).strip()  # space between digits parts numbers
    text = _NOON.sub(lambda match: f"{match[1]}{match[2].lower()}m", text)
    if _RATIO.fullmatch(text):
        text = text.replace("to", ":")
    return text if "\\" in text else _WORDS.sub(lambda match: match[0].casefold(), text)


def is_prose(text: str) -> bool:
    """Whether a text is words, names or times rather than mathematics."""
    return not re.search(r"[\\^_{}=<>|+*]", DRESS.sub("", without_text_commands(text)))


def without_text_commands(text: str) -> str:
    return re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|textnormal)\s*\{([^{}]*)\}", r"\1", text)
