"""Reads a critique's final verdict, or its score for the answer.

A critique closes with `Correctness of the final answer: Correct` (or `Wrong`), or with the line and labels of other
prompts. The critic's reward depends on the verdict, so a critique that writes it in two ways must gain nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from whet.tasks.chains import VERDICT_LINE

Verdict = Literal["correct", "wrong"]

_DRESS = r"[\s*_]*"
"""White space and Markdown emphasis."""


def parse_verdict(
    text: str, *, line: str = VERDICT_LINE, right: str = "Correct", wrong: str = "Wrong"
) -> Verdict | None:
    """The verdict on the final answer; None where there is none, or more than one.

    It reads every place where the label `Correctness of the final answer:` stands. The rest of its line must be the one
    word Correct or Wrong, in any case. Markdown emphasis, white space and one final period are allowed.
    All places must agree. Two different verdicts make the critique unreadable, so that hedging gains nothing. So does a
    label followed by anything else: `Correct, but ...`, `Wrongly stated`, `[Correct/Wrong]`, nothing. A verdict may be
    repeated.

    Args:
        line, right, wrong: the label and its two verdicts, as the prompts word them (`whet.tasks.prompts`).
    """
    verdict = _verdict_pattern(right, wrong)
    read = [verdict.fullmatch(rest) for rest in labelled(text, line)]
    verdicts = {match.lastgroup if match else None for match in read}
    if verdicts == {"correct"}:
        return "correct"
    return "wrong" if verdicts == {"wrong"} else None


def labelled(text: str, line: str = VERDICT_LINE) -> list[str]:
    """What stands behind each label in a critique, up to the end of its line.

    Args:
        line: the label, as the prompts word it.
    """
    label = _label_pattern(line)
    return [match["rest"] for text_line in text.splitlines() for match in label.finditer(text_line)]


def parse_score(text: str, low: float, high: float, *, line: str = VERDICT_LINE) -> float | None:
    """The score that a critique gives an answer, behind the label and `:` or `=`. It must be a number from `low` to
    `high`, and fill the rest of its line. None where it is not, or there is no score, or more than one.

    Args:
        line: the label, as the prompts word it.
    """
    label = re.compile(rf"(?<!\w){re.escape(line)}{_DRESS}[:：=]{_DRESS}(?P<rest>.*)", re.IGNORECASE)
    read = {match["rest"].strip(" *_.") for text_line in text.splitlines() for match in label.finditer(text_line)}
    if len(read) != 1 or not re.fullmatch(r"\d+(\.\d+)?", rest := read.pop()):
        return None
    return float(rest) if low <= float(rest) <= high else None


def verdict_place(text: str, *, line: str = VERDICT_LINE) -> int | None:
    """Where in a critique its first verdict begins, or would: behind the label, its colon, white space and emphasis.
    None: it has no label.

    Args:
        line: the label, as the prompts word it.
    """
    match = re.search(rf"(?<!\w){re.escape(line)}{_DRESS}[:：][ \t*_]*", text, re.IGNORECASE)
    return match.end() if match else None


@lru_cache(maxsize=64)
def _label_pattern(line: str) -> re.Pattern[str]:
    """The label, with the rest of its line."""
    return re.compile(rf"(?<!\w){re.escape(line)}{_DRESS}[:：](?P<rest>.*)", re.IGNORECASE)


@lru_cache(maxsize=64)
def _verdict_pattern(right: str, wrong: str) -> re.Pattern[str]:
    """A valid rest of the label's line."""
    words = f"(?:(?P<correct>{re.escape(right)})|(?P<wrong>{re.escape(wrong)}))"
    return re.compile(rf"{_DRESS}{words}{_DRESS}\.?{_DRESS}", re.IGNORECASE)
