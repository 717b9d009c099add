r"""Finds the boxes of a text: `\boxed{...}` and `\fbox{...}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox))\s*(?:\{|(?P<single>\w))|(?<!\\)(?:\\\\)*[{}]")


def last_boxed(text: str) -> tuple[int, str] | None:
    r"""The start and the content of the last whole `\boxed{...}` (or `\fbox{...}`, `\boxed 5`). None: there is none."""
    all_boxes = boxes(text)
    return (all_boxes[-1].start, all_boxes[-1].content(text)) if all_boxes else None


@dataclass(frozen=True, slots=True)
class Box:
    r"""The place of a whole `\boxed{...}` in a text."""

    start: int
    end: int
    inside: slice

    def content(self, text: str) -> str:
        return text[self.inside].strip()


def boxes(text: str) -> list[Box]:
    r"""All boxes that close, in the order of their starts, nested ones included. A box that never closes, as in a
    truncated text, is left out. One pass, whatever the nesting."""
    closed: list[Box] = []
    opened: list[re.Match[str]] = []
    for token in _BRACES.finditer(text):
        if token["single"]:  # TeX takes one token
            closed.append(Box(token.start(), token.end(), slice(*token.span("single"))))
        elif token.group().endswith("{"):
            opened.append(token)
        elif opened:
            box = opened.pop()
            if box["box"]:
                closed.append(Box(box.start(), token.end(), slice(box.end(), token.end() - 1)))
    return sorted(closed, key=lambda box: box.start)
