"""Reads a question for its answer's form: the base that it asks for, and the nouns that it counts."""

from __future__ import annotations

import re

from mathgrade.reading.numerals import base_of
from mathgrade.reading.phrases import changes_value

_ASKED_BASE = re.compile(
    r"\b(?P<answer>answer\s+)?in\s+base[\s-]*[$\\({]*(?P<base>[0-9]{1,2}|[a-z]+)\b(?(answer)|[\s$\\)}.?]*$)",
    re.IGNORECASE,
)


def asked_base(question: str) -> int | None:
    """The base that a question asks its answer in: `Express your answer in base 5.`, or `in base five?` at its end.
    None: it asks for none, or for several."""
    bases = {base_of(match["base"]) for match in _ASKED_BASE.finditer(question)}
    return bases.pop() if len(bases) == 1 else None


def counted_nouns(question: str) -> frozenset[str]:
    """The words of a question that may follow a number: plain ones outside of mathematics, of at least four letters.
    Words that may change its value are left out."""
    prose = re.sub(r"\$[^$]*\$|\\[A-Za-z]+", " ", question)
    words = set(re.findall(r"(?<![A-Za-z\\])[a-z]{4,}(?![A-Za-z])", prose))
    return frozenset(word for word in words if not changes_value(word))
