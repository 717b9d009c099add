"""Answers line by line, and a critic's comments on each: read from a critique, and rewritten in the first person."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from whet.config.base import ConfigError
from whet.grading.step_critiques import read_critique
from whet.tasks.chains import ANSWER_LINE
from whet.tasks.demonstrations import STEP
from whet.tasks.prompts import CHAINS, Prompts

Label = Literal["Correct", "Wrong"]


@dataclass(frozen=True, slots=True)
class Solution:
    """An answer as lines, of which every one that is not empty is a step, but for the last where it only says
    `The answer is N`."""

    steps: tuple[str, ...]
    closing: str

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.steps, self.closing) if self.closing else self.steps


def solution_of(body: str) -> Solution:
    """Args: body: an answer without its prefill."""
    lines = [line.strip() for line in body.split("\n") if line.strip()]
    has_closing = bool(lines) and lines[-1].startswith(ANSWER_LINE)
    return Solution(tuple(lines[:-1]), lines[-1]) if has_closing else Solution(tuple(lines), "")


@dataclass(frozen=True, slots=True)
class Comment:
    """What a critique says of a step."""

    step: str
    """As the critique repeats it."""
    label: Label
    text: str


def aligned(comments: Sequence[Comment], solution: Solution) -> list[list[Comment]]:
    """The comments on each step, in order. A comment that repeats no step from the last commented one on ends the list,
    as later ones cannot be matched. Comments on the last line are left out, as the verdict is on that.

    Returns: as many lists as there are steps; empty where there is no comment.
    """
    by_step: list[list[Comment]] = [[] for _ in solution.steps]
    steps, closing, place = [_plain(step) for step in solution.steps], _plain(solution.closing), 0
    for comment in comments:
        repeated = _plain(comment.step)
        if not repeated:
            break
        here = next((at for at in range(place, len(steps)) if repeated in steps[at]), None)
        if here is not None:
            by_step[here].append(comment)
            place = here
        elif repeated not in closing:
            break
    return by_step


def _plain(text: str) -> str:
    """Letters, digits and signs alone: critics change spaces, quotes and full stops when they repeat a step."""
    return re.sub(r"[\s.\"'`*_]", "", text).casefold()


# --- words ------------------------------------------------------------------------------------------------------------


class Words(ABC):
    """Reads a critic's comments, and writes them in the first person."""

    @abstractmethod
    def comments(self, critique: str) -> list[Comment]:
        """Those on steps, in order; the verdict on the whole is left out."""

    @abstractmethod
    def spoken(self, text: str, label: Label | None) -> str:
        """A comment in the first person, on one line, with the same numbers."""

    @abstractmethod
    def label_in(self, line: str) -> Label | None:
        """The label of a line that `spoken` wrote. None: it is no check."""


def words_of(prompts: Prompts) -> Words:
    """Raises: ConfigError where the critics of these prompts do not go step by step."""
    if prompts == CHAINS:
        return TinyWords()
    if STEP in prompts.critique:
        return SpokenWords(prompts)
    raise ConfigError(
        f"self-talk is made of critiques step by step, and these prompts do not ask for {STEP!r}: take "
        "prompts=english, or a file that extends it"
    )


class TinyWords(Words):
    """Words of the tiny world, whose tokenizer has few words. `so write` stands in for a critic's words on the claim,
    and the rest is arithmetic."""

    _comment = re.compile(r"Step (\d+): (.+) = (\d), claimed (\d): (Correct|Wrong)(?:, so write \d)?")
    _check = re.compile(r"Step \d+: .+ = \d, so write \d: (Correct|Wrong)(?:, so write \d)?")

    def comments(self, critique: str) -> list[Comment]:
        comments = []
        for line in critique.split("\n"):
            if match := self._comment.fullmatch(line):
                number, sum_, _, claim, label = match.groups()
                comments.append(Comment(f"Step {number}: {sum_} = {claim}", _label(label), line))
        return comments

    def spoken(self, text: str, label: Label | None) -> str:
        return text.replace(", claimed ", ", so write ")

    def label_in(self, line: str) -> Label | None:
        match = self._check.fullmatch(line)
        return _label(match[1]) if match else None


class SpokenWords(Words):
    """Words of critics who repeat a step, give a label, and explain."""

    _opening: Mapping[Label, str] = {"Correct": "Let me check that.", "Wrong": "Wait, let me check that."}
    _end: Mapping[Label, str] = {"Correct": "So that holds.", "Wrong": "So that is not right, and I do it again."}

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    def comments(self, critique: str) -> list[Comment]:
        """None where a step lacks a label, or a label its step: which belongs to which is not known then."""
        read = read_critique(critique, self._prompts)
        return [
            Comment(_one_line(step.sentence), "Correct" if step.right else "Wrong", _one_line(step.explanation))
            for step in (read.steps if read.is_paired else ())
        ]

    def spoken(self, text: str, label: Label | None) -> str:
        key = label or "Correct"
        return " ".join(filter(None, (self._opening[key], text, self._end[key])))

    def label_in(self, line: str) -> Label | None:
        labels = (label for label in self._end if line.startswith(self._opening[label]))
        return next((label for label in labels if line.endswith(self._end[label])), None)


def _label(text: str) -> Label:
    return "Correct" if text == "Correct" else "Wrong"


def _one_line(text: str) -> str:
    return " ".join(text.split())
