"""Prepares model text for the report page: truncation, highlighting and diffs.

All of it takes time in proportion to the text, or has a bound. So a page of hundreds of exchanges takes seconds, even
if the texts are thousands of empty lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

HEAD, TAIL = (12_000, 300), (4_000, 100)
"""Characters and lines that a page shows of the start and of the end of a longer text. Verdicts and answers are at the
end."""
MAX_PAIRS = 2_000
"""Pairs of equal lines up to which two texts are aligned: more are mostly empty lines, or one repeated line."""
MAX_NAME = 60
"""Characters of a name on buttons and in tables."""
STEP_SENTENCE = "Step sentence"
FINAL_VERDICT = "Correctness of the final answer"
_WRONG_BACKWARDS = re.compile(r"(?:\W*|\d etirw os ,)gnorW\W*:")
"""The end of a line with this verdict, read backwards, so that the match has one place to begin. On the tiny problems a
correction may follow it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The part of a text that is not shown."""

    after: int
    """Lines of the shown text before it."""
    chars: int
    lines: int
    """Line ends among them."""


def shown_text(text: str) -> tuple[str, Gap | None]:
    """A text for the page: whole, or its start and its end."""
    if len(text) <= HEAD[0] + TAIL[0] and text.count("\n") < HEAD[1] + TAIL[1]:
        return text, None
    head = "\n".join(text[: HEAD[0]].split("\n", HEAD[1])[: HEAD[1]])
    tail = "\n".join(text[-TAIL[0] :].rsplit("\n", TAIL[1])[-TAIL[1] :])
    lines = text.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}\n{tail}", Gap(head.count("\n") + 1, len(text) - len(head) - len(tail), lines)


def short_name(name: str) -> str:
    """A name for where there is little room."""
    if not name.strip():
        return "(no name)"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def calls_wrong(line: str) -> bool:
    """Whether a line ends in `: Wrong`, whatever its markup."""
    return _WRONG_BACKWARDS.match(line.rstrip()[::-1]) is not None


def flagged_lines(critique: str) -> list[int]:
    """The lines of a critique that call a step wrong, and the `Step sentence` that such a line is about."""
    flagged: set[int] = set()
    sentence: int | None = None
    for index, line in enumerate(critique.split("\n")):
        start = line.lstrip()
        if start.startswith(STEP_SENTENCE):
            sentence = index
        if start.startswith(FINAL_VERDICT) or not calls_wrong(line):
            continue
        flagged.add(index)
        if start.startswith("Correctness of the step") and sentence is not None:
            flagged.add(sentence)
    return sorted(flagged)


def changed_lines(answer: str, refinement: str) -> tuple[list[list[int]], list[int]]:
    """The differences of the refinement from the answer, by lines.

    Returns: pairs (line of the refinement, line of the answer that it replaces, or -1 for an added one). Then the lines
    of the answer that the refinement changed or dropped.
    """
    old, new = ([line.strip() for line in text.split("\n")] for text in (answer, refinement))
    changed: list[list[int]] = []
    gone: list[int] = []
    for a, a_end, b, b_end in _differing(old, new):
        gone += range(a, a_end)
        changed += [[line, a + line - b if a + line - b < a_end else -1] for line in range(b, b_end)]
    return changed, gone


def _differing(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The ranges that differ: start and end in the old lines, start and end in the new ones."""
    in_old = Counter(old)
    if sum(in_old[line] * count for line, count in Counter(new).items()) <= MAX_PAIRS:
        opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return [(a, a_end, b, b_end) for kind, a, a_end, b, b_end in opcodes if kind != "equal"]
    both = min(len(old), len(new))  # line by line
    stretches = [(i, i + 1, i, i + 1) for i in range(both) if old[i] != new[i]]
    return [*stretches, (both, len(old), both, len(new))]
