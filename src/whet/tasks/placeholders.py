"""Fills the placeholders of prompt templates, and checks the templates.

Only the named ones are placeholders. All other braces are text, so that a template may say `\\boxed{}`, and what is
filled in is never looked at again.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from whet.types import is_whole

HOLES = ("question", "answer", "critique")
NEEDED = {
    "solve": ("question",),
    "critique": ("question", "answer"),
    "critique_again": ("answer",),
    "refine": ("critique",),
}
"""The placeholders that a template must have."""
ALLOWED = {**NEEDED, "critique_again": ("question", "answer")}
"""Those that it may have; a piece that is not named here has none."""
LABELS = ("verdict_line", "right", "wrong")
DRESS = " \t*_."
"""Characters that may surround a verdict, so that no label can begin or end with them."""

_PLACEHOLDER = re.compile(r"\{(question|answer|critique)\}")
_BRACED = re.compile(r"\{\s*(?P<word>[A-Za-z]\w*)\s*(?:[!:][^{}]*)?\}")
"""A word in braces, also with a conversion or format as in Python: a placeholder, or what was meant as one."""
_NEAR = 0.75
"""As alike as `{quesiton}` and `{question}`, by difflib's ratio; other words in braces are text."""


def filled(template: str, **texts: str) -> str:
    """The template with its placeholders filled, in one pass."""
    return _PLACEHOLDER.sub(lambda placeholder: texts.get(placeholder[1], placeholder[0]), template)


def read_back(template: str, text: str) -> str | None:
    """The text that fills the one placeholder of a template, which may stand there several times. None: the text does
    not follow the template."""
    first, *rest = (re.escape(piece) for piece in _PLACEHOLDER.split(template)[::2])
    pattern = first + "(?P<filling>.*)" + "(?P=filling)".join(rest)
    match = re.fullmatch(pattern, text, re.DOTALL)
    return match["filling"] if match else None


def problem_of(name: str, text: Any) -> str | None:
    """What is wrong with one field of the prompts, in a sentence. None: nothing.

    Args:
        name: the field of `Prompts`.
    """
    if not isinstance(text, str):
        return f"{name} is {str(text)[:60]!r}, which is no text: put quotes around it"
    if not is_whole(text):
        return f"{name} holds half a character (a lone surrogate), which no tokenizer takes: mend it"
    allowed = ALLOWED.get(name, ())
    for match in _BRACED.finditer(text):
        near = get_close_matches(match["word"].lower(), HOLES, n=1, cutoff=_NEAR)
        if near and match[0] not in [f"{{{placeholder}}}" for placeholder in allowed]:
            placeholders = " and ".join(f"{{{placeholder}}}" for placeholder in allowed) or "none"
            advice = f"did you mean {{{near[0]}}}?" if near[0] in allowed else f"its placeholders are {placeholders}"
            return f"{name} has the placeholder {match[0]}, which nothing fills; {advice}"
    for placeholder in NEEDED.get(name, ()):
        if f"{{{placeholder}}}" not in text:
            return f"{name} lacks {{{placeholder}}}, which the model has to see: put it where the {placeholder} belongs"
    return _problem_of_label(name, text) if name in LABELS else None


def _problem_of_label(name: str, text: str) -> str | None:
    if not text or text.strip(DRESS) != text or len(text.splitlines()) > 1:
        return f"{name} is {text[:60]!r}: give words on one line, without spaces, dots, * or _ around them"
    if name == "verdict_line" and text.endswith((":", "：")):
        return f"verdict_line is {text[:60]!r}: leave out the colon, which every verdict has behind its line"
    return None
