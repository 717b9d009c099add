"""Grades answers to `whet.tasks.basics`: the final answer, exactly, and nothing that was mentioned on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mathgrade.answers import find_answer, key_of
from mathgrade.questions import counted_nouns
from whet.types import Grade, Task

_LEADS_TO = re.compile(r":|\b(?:is|are|as|become|becomes)\b", re.IGNORECASE)
"""A list of words may follow these."""
_BETWEEN = re.compile(r"(?:[\s,;.*_`\"'\[\]()>-]|\band\b|\bthen\b|\b[0-9]{1,2}[.)])+", re.IGNORECASE)
"""Between the words of a list: also the marks and numbers of one that has a line a word."""

_NOW = re.compile(r"(?<!\s)\s+now(?=[\s.!*_]*\Z)", re.IGNORECASE)
"""As the stories ask: `Ann has 12 apples now.` It starts at the first of several spaces, as 100,000 would take 50 s."""


class BasicsGrader:
    """A number is read as in all of `mathgrade` (`answers.find_answer`) and has to be the reference. Words have to be
    the reference's in its order. Nothing else may follow the reply's last colon, `is` or `are`."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        return [_grade(reply, task) for reply, task in items]

    def close(self) -> None:
        """Holds nothing."""


def _grade(reply: str, task: Task) -> Grade:
    if task.answer is None:
        return Grade(score=None, reason=f"task {task.id} has no reference answer")
    answer = _number(reply, task.prompt) if task.answer.lstrip("-").isdigit() else _words(reply)
    if answer is None:
        return Grade(score=0.0, reason="it gives no final answer")
    return Grade(score=float(answer == task.answer), extracted=answer)


def _number(reply: str, question: str) -> str | None:
    answer = find_answer(_NOW.sub("", reply))
    return None if answer is None else key_of(answer, counted_nouns(question))


def _words(reply: str) -> str | None:
    """The list that the reply ends with, in the reference's form."""
    leads = list(_LEADS_TO.finditer(reply.rstrip(" \n.:")))
    last = reply[leads[-1].end() :] if leads else reply
    words = [word for word in _BETWEEN.split(last) if word]
    return ", ".join(words).lower() or None
