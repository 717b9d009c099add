"""Reads critiques step by step: the steps that they repeat, a label for each, and the final verdict.

Two ways of writing are read. *Blocks* are MathCritique's (arXiv:2411.16579): `Step sentence:`, `Correctness of the
step:`, `Explanation:` a step, and the correctness of the final answer. *Lines* are the tiny world's. Where the prompts
ask for no steps, a critique has none, and may have a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.grading.verdicts import Verdict, labelled, parse_verdict
from whet.tasks.demonstrations import STEP
from whet.tasks.prompts import CHAINS, ENGLISH, Prompts
from whet.tasks.steps import sentence

LABEL, REASON = "Correctness of the step", "Explanation"
_CHAIN_LINE = re.compile(
    r"^Step (?P<n>\d+): (?P<a>\d) (?P<op>[-+*]) (?P<b>\d) = (?P<own>\d), claimed (?P<claim>\d): "
    r"(?P<label>Correct|Wrong)(?P<advice>, so write \d)?$",
    re.MULTILINE,
)
_CHAIN_STEP = re.compile(r"^(Step \d+): .* = (\d)$")


@dataclass(frozen=True, slots=True)
class Judged:
    """A critique's judgment of one step."""

    sentence: str
    """The step, as the critique repeats it."""
    right: bool | None
    """None: it has no label."""
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class StepCritique:
    """A critique, read."""

    steps: tuple[Judged, ...]
    verdict: Verdict | None
    """On the final answer; None where there is none that can be read."""
    explanation: str = ""
    """Of the verdict."""
    num_verdicts: int = 0
    """Labels of a final verdict in it, readable or not."""
    is_paired: bool = True
    """As many steps as labels. Where not, they are paired by the order in which they stand."""

    @property
    def labels(self) -> list[bool]:
        return [step.right for step in self.steps if step.right is not None]

    @property
    def first_wrong(self) -> int:
        """The first step that is called wrong, from 0; -1 where none is."""
        return next((place for place, step in enumerate(self.steps) if step.right is False), -1)


def is_stepwise(prompts: Prompts) -> bool:
    """Whether these prompts ask for critiques step by step."""
    return prompts == CHAINS or STEP in prompts.critique


def read_critique(text: str, prompts: Prompts = ENGLISH) -> StepCritique:
    """A critique, read. Never raises: unreadable parts are missing."""
    verdict = parse_verdict(text, **prompts.labels)
    num_verdicts = len(labelled(text, prompts.verdict_line))
    if prompts == CHAINS:
        return StepCritique(_of_lines(text), verdict, num_verdicts=num_verdicts)
    if not is_stepwise(prompts):
        return StepCritique((), verdict, num_verdicts=num_verdicts)
    return replace(_of_blocks(text, prompts), verdict=verdict, num_verdicts=num_verdicts)


def _of_blocks(text: str, prompts: Prompts) -> StepCritique:
    """Labels stand at the start of a line, and are read to the letter; empty lines between the fields are allowed."""
    names = (STEP.rstrip(":"), LABEL, prompts.verdict_line, REASON)
    field = re.compile(rf"^[ \t]*({'|'.join(map(re.escape, names))})[ \t]*:", re.MULTILINE)
    marks = list(field.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = [(mark[1], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=False)]
    sentences = [content for name, content in parts if name == names[0]]
    labels: list[bool | None] = []
    reasons: list[str] = []
    closing, is_last = "", False
    for name, content in parts:
        if name == LABEL:
            word = re.match(rf"({re.escape(prompts.right)}|{re.escape(prompts.wrong)})\b", content)
            labels.append(None if word is None else word[1] == prompts.right)
            reasons.append("")
        is_last = name == prompts.verdict_line if name != REASON else is_last
        if name == REASON and is_last:
            closing = closing or content
        elif name == REASON and reasons:
            reasons[-1] = reasons[-1] or content
    count = max(len(sentences), len(labels))
    steps = [
        Judged(
            sentences[i] if i < len(sentences) else "",
            labels[i] if i < len(labels) else None,
            reasons[i] if i < len(reasons) else "",
        )
        for i in range(count)
    ]
    return StepCritique(tuple(steps), None, closing, is_paired=len(sentences) == len(labels) and None not in labels)


def _of_lines(text: str) -> tuple[Judged, ...]:
    """The tiny world's critic works from its own values. So the step that it repeats is put together from its line and
    the value that the previous line calls claimed."""
    steps: list[Judged] = []
    before = ""
    for match in _CHAIN_LINE.finditer(text):
        start = before or match["a"]
        repeated = f"Step {match['n']}: {start} {match['op']} {match['b']} = {match['claim']}"
        explanation = f"{match['a']} {match['op']} {match['b']} = {match['own']}{match['advice'] or ''}"
        steps.append(Judged(repeated, match["label"] == "Correct", explanation))
        before = match["claim"]
    return tuple(steps)


def repeats(repeated: str, step: str) -> bool:
    """Whether a critique's sentence is this step of the response, white space aside. In the tiny world the step's
    number and claimed result decide, as a critic there writes the operation that the question asks for. Calculator
    notes (`<<3*4=12>>`) may be left out."""
    mine, theirs = _CHAIN_STEP.match(repeated), _CHAIN_STEP.match(sentence(step))
    if mine and theirs:
        return mine.groups() == theirs.groups()
    return _bare(repeated) == _bare(step)


def _bare(step: str) -> str:
    return sentence(re.sub(r"<<[^<>]*>>", "", step))


def as_blocks(critique: StepCritique, steps: Sequence[str] = ()) -> str:
    """A critique in MathCritique's layout and words, whatever its prompts.

    Args:
        steps: the response's, which the blocks repeat to the letter. (): as the critique did.
    """
    blocks = []
    for place, step in enumerate(critique.steps):
        repeated = sentence(steps[place]) if place < len(steps) else step.sentence
        label = "Correct" if step.right else "Wrong"
        blocks.append(f"{STEP} {repeated}\n{LABEL}: {label}\n{REASON}: {step.explanation or 'None was given.'}\n")
    verdict = ENGLISH.closing(right=critique.verdict == "correct")
    blocks.append(f"{verdict}\n{REASON}: {critique.explanation or 'By what was found step by step.'}\n")
    return "\n".join(blocks)
