"""A solution as steps, without losing a letter: the pieces, one after the other, are the text again.

A step is a line that is not empty (GSM8K), or a sentence (MATH), formulas kept whole. White space belongs to the piece
before it.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

StepsBy = Literal["lines", "sentences"]
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_END = re.compile(r"[.!?][)\]\"'”]*\s+(?=[A-Z(\\$\"'“*#\d-])")
_CLOSING = re.compile(
    r"\W*(?:(?:so|thus|therefore|hence),?\s+)?(?:the\s+)?(?:final\s+)?answer(?:\s+is\b|:)", re.IGNORECASE
)
_FORMULA = re.compile(r"\$\$.*?\$\$|\$.*?\$|\\\[.*?\\\]|\\begin\{(\w+\*?)\}.*?\\end\{\1\}", re.DOTALL)


def split_steps(text: str, by: StepsBy = "lines") -> list[str]:
    """The pieces of a text; none of a text of white space."""
    pieces: list[str] = []
    pending = ""
    for part in _LINE.findall(text) if by == "lines" else _sentences(text):
        if part.strip():
            pieces.append(pending + part)
            pending = ""
        elif pieces:
            pieces[-1] += part
        else:
            pending += part
    return pieces


def sentence(piece: str) -> str:
    """A step on one line, as critiques repeat it."""
    return " ".join(piece.split())


def is_closing(piece: str) -> bool:
    """Whether a step only states the answer."""
    return _CLOSING.match(piece) is not None


def judged_steps(text: str, by: StepsBy = "lines") -> list[str]:
    """The steps that a critique has to judge: all but a last one that only states the answer."""
    pieces = split_steps(text, by)
    return pieces[:-1] if len(pieces) > 1 and is_closing(pieces[-1]) else pieces


def _sentences(text: str) -> list[str]:
    """Cut behind the end of a sentence, and at empty lines, but never within a formula."""
    formulas = [match.span() for match in _FORMULA.finditer(text)]
    ends = sorted({match.end() for pattern in (_END, re.compile(r"\n\s*\n")) for match in pattern.finditer(text)})
    cuts = [end for end in ends if not any(start < end < stop for start, stop in formulas)]
    places = [0, *cuts, len(text)]
    return [text[a:b] for a, b in pairwise(places)]
