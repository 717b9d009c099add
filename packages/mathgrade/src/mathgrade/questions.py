"""What a question says about its answer: the base that it asks for, and the words that it counts."""

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
    """The words of a question that may stand behind a number: plain ones, outside of mathematics, of four letters at
    least, but for those that may change its value."""
    prose = re.sub(r"\$[^$]*\$|\\[A-Za-z]+", " ", question)
    words = set(re.findall(r"(?<![A-Za-z\\])[a-z]{4,}(?![A-Za-z])", prose))
    return frozenset(word for word in words if not changes_value(word))
