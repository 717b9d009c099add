"""How SearchQA reads a reply, and when an answer is right. All of it takes time that grows with the length alone."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

SEARCH, ANSWER = "search", "answer"
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces: `The Beatles!` is `beatles`."""
    return " ".join(_ARTICLE.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def is_right(answer: str, answers: Sequence[str]) -> bool:
    """Exact match of normalised texts with one of the right answers."""
    return normalised(answer) in map(normalised, answers)


def first_tag(reply: str) -> tuple[str, str]:
    """Which of `<search>` and `<answer>` is closed and begins first, and its content. Empty: neither."""
    found = []
    for name in (SEARCH, ANSWER):
        start = reply.find(f"<{name}>")
        end = reply.find(f"</{name}>", start) if start >= 0 else -1
        if end >= 0:
            found.append((start, name, reply[start + len(name) + 2 : end].strip()))
    return min(found)[1:] if found else ("", "")


def last_answer(reply: str) -> str:
    """The content of the last `<answer>`, which is the one that upstream marks. Empty: there is none."""
    answer, start = "", reply.find("<answer>")
    while start >= 0:
        end = reply.find("</answer>", start)
        if end < 0:
            break
        answer = reply[start + len("<answer>") : end].strip()
        start = reply.find("<answer>", end)
    return answer
