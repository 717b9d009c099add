"""What is said of a text, whatever a model wrote: where it is cut for the page, what is marked in it, what changed.

All of it takes time in proportion to the text, or has a bound: a page of hundreds of exchanges is made in seconds also
where the texts are thousands of empty lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

HEAD, TAIL = (12_000, 300), (4_000, 100)
"""Characters and lines that a page shows of the start and of the end of a longer text; verdicts and answers stand at
the end."""
MAX_PAIRS = 2_000
"""Of equal lines of two texts, up to which they are aligned: more are mostly empty lines, or one line over and over."""
MAX_NAME = 60
"""Characters of a name, as it is written on buttons and in tables."""
STEP_SENTENCE = "Step sentence"
FINAL_VERDICT = "Correctness of the final answer"
_WRONG_BACKWARDS = re.compile(r"(?:\W*|\d etirw os ,)gnorW\W*:")
"""The end of a line with this verdict, read from its end, where there is one place to begin at; the tiny world's may
close with a correction."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What was left out of a text."""

    after: int
    """Lines of the shown text that stand before it."""
    chars: int
    lines: int
    """Line ends among them."""


def shown_text(text: str) -> tuple[str, Gap | None]:
    """A text as the page shows it: whole, or its start and its end."""
    if len(text) <= HEAD[0] + TAIL[0] and text.count("\n") < HEAD[1] + TAIL[1]:
        return text, None
    head = "\n".join(text[: HEAD[0]].split("\n", HEAD[1])[: HEAD[1]])
    tail = "\n".join(text[-TAIL[0] :].rsplit("\n", TAIL[1])[-TAIL[1] :])
    lines = text.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}\n{tail}", Gap(head.count("\n") + 1, len(text) - len(head) - len(tail), lines)


def short_name(name: str) -> str:
    """A name as it is written where there is little room."""
    if not name.strip():
        return "(no name)"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def calls_wrong(line: str) -> bool:
    """Whether a line ends in `: Wrong`, however it is marked up."""
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
    """How the refinement differs from the answer, by lines.

    Returns: pairs (line of the refinement, line of the answer that it replaces, or -1 for an added one), and the lines
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
    """The stretches that differ: from and to in the old lines, from and to in the new ones."""
    in_old = Counter(old)
    if sum(in_old[line] * count for line, count in Counter(new).items()) <= MAX_PAIRS:
        found = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return [(a, a_end, b, b_end) for kind, a, a_end, b, b_end in found if kind != "equal"]
    both = min(len(old), len(new))  # line by line
    stretches = [(i, i + 1, i, i + 1) for i in range(both) if old[i] != new[i]]
    return [*stretches, (both, len(old), both, len(new))]
