"""What a critique says of an answer: its final verdict, and the part of it that the actor gets to read.

A critique closes with `Correctness of the final answer: Correct` (or `Wrong`); the verdict is what its critic is paid
for, so reading it must leave nothing to be won by writing it in two ways.
"""

from __future__ import annotations

import re
from typing import Literal

Verdict = Literal["correct", "wrong"]
Rule = Literal["strict", "substring"]

_LABEL = re.compile(r"(?<!\w)correctness of the final answer[\s*_]*[:：](?P<rest>.*)", re.IGNORECASE)
_VERDICT = re.compile(r"[\s*_]*(?P<verdict>correct|wrong)[\s*_]*\.?[\s*_]*", re.IGNORECASE)
_PUBLISHED: tuple[tuple[Verdict, str], ...] = (
    ("correct", "Correctness of the final answer: Correct"),
    ("wrong", "Correctness of the final answer: Wrong"),
)


def parse_verdict(text: str, rule: Rule = "strict") -> Verdict | None:
    """The verdict on the final answer; None where there is none, or more than one.

    The strict rule reads every place where the label `Correctness of the final answer:` stands. What follows it on
    its line must be the one word Correct or Wrong, in any case, with Markdown emphasis, white space and one final
    period allowed. All places must agree: two different verdicts, or a label followed by anything else (`Correct, but
    ...`, `Wrongly stated`, `[Correct/Wrong]`, nothing), make the critique unreadable, so that hedging never pays.
    A verdict may be repeated.

    Args:
        rule: `substring` looks for the published code's two strings, and gives None where both or neither occur.
    """
    if rule == "substring":
        found = authors_verdict_matches(text)
        return next(iter(found)) if len(found) == 1 else None
    labels = [match for line in text.splitlines() for match in _LABEL.finditer(line)]
    read = [_VERDICT.fullmatch(label["rest"]) for label in labels]
    verdicts = {match["verdict"].lower() if match else None for match in read}
    if verdicts == {"correct"}:
        return "correct"
    return "wrong" if verdicts == {"wrong"} else None


def authors_verdict_matches(text: str) -> frozenset[Verdict]:
    """The verdicts that the published reward finds: case-sensitive substrings (`reward/reward_func.py:31-32` of
    Critique-RL). Where both are found it takes the one that pays, so a critic that prints both is always right."""
    return frozenset(verdict for verdict, string in _PUBLISHED if string in text)
