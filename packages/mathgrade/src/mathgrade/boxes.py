r"""Where the boxes of a text stand: `\boxed{...}` and `\fbox{...}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACES = re.compile(r"(?P<box>\\(?:boxed|fbox))\s*(?:\{|(?P<single>\w))|(?<!\\)(?:\\\\)*[{}]")


def last_boxed(text: str) -> tuple[int, str] | None:
    r"""Where the last whole `\boxed{...}` (or `\fbox{...}`, `\boxed 5`) starts, and what it holds. None: there is
    none."""
    found = boxes(text)
    return (found[-1].start, found[-1].content(text)) if found else None


@dataclass(frozen=True, slots=True)
class Box:
    r"""Where a whole `\boxed{...}` stands in a text."""

    start: int
    end: int
    inside: slice

    def content(self, text: str) -> str:
        return text[self.inside].strip()


def boxes(text: str) -> list[Box]:
    r"""All boxes that close, by where they start, those within others included. A box that never closes, as in a
    truncated text, is none. One pass, whatever the nesting."""
    found: list[Box] = []
    opened: list[re.Match[str]] = []
    for token in _BRACES.finditer(text):
        if token["single"]:  # TeX takes one token
            found.append(Box(token.start(), token.end(), slice(*token.span("single"))))
        elif token.group().endswith("{"):
            opened.append(token)
        elif opened:
            box = opened.pop()
            if box["box"]:
                found.append(Box(box.start(), token.end(), slice(box.end(), token.end() - 1)))
    return sorted(found, key=lambda box: box.start)
