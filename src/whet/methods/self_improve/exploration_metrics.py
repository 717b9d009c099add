"""What exploring found, question by question: how many were solved at all, at what cost, and how different the
solutions are.

A solution is an answer that is right, or a refinement that was kept. A right refinement that was not kept (there were
enough, or it took a shortcut) is neither a solution nor a failure.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean

Metrics = dict[str, float | None]
_NUMBER = r"-?\$?\d[\d,]*(?:\.\d+)?%?"
_EQUATION = re.compile(rf"[-+*/x×÷()$%.,\d ]*\d[-+*/x×÷()$%.,\d ]*=\s*{_NUMBER}")
_LEFT_OUT = re.compile(r"[\s$,%]")


@dataclass(frozen=True, slots=True)
class Explored:
    """Counts of a round at one question."""

    num_answers: int
    """Of those that could be graded, all that follow too."""
    num_right: int
    """Answers."""
    num_critiques: int
    num_refinements: int
    num_kept: int
    """Refinements."""
    level: int | None = None
    """See `evaluation.difficulty`."""
    num_tokens: int = 0
    """Written by all roles."""

    @property
    def num_solutions(self) -> int:
        return self.num_right + self.num_kept


def exploration(questions: Sequence[Explored]) -> Metrics:
    """Metrics of one round.

    Returns: `coverage` (questions with a solution) and `coverage_answers` (with a right answer, critique aside).
        `yield` (solutions an actor's generation), `yield_answers` (right answers an answer), `yield_calls` (solutions a
        generation, critiques among them). `yield_tokens` (solutions per 1,000 written tokens). `recovered` (of the
        questions whose answers are all wrong, those with a kept refinement). None: there is nothing to divide by.
    """
    # A question whose samples all failed says nothing.
    answered = [question for question in questions if question.num_answers]
    answers, right = (
        sum(question.num_answers for question in answered),
        sum(question.num_right for question in answered),
    )
    solutions, refinements = (
        sum(getattr(question, n) for question in answered) for n in ("num_solutions", "num_refinements")
    )
    critiques, tokens = (
        sum(getattr(question, name) for question in answered) for name in ("num_critiques", "num_tokens")
    )
    unsolved = [question for question in answered if not question.num_right]
    return {
        "coverage": _share(question.num_solutions > 0 for question in answered),
        "coverage_answers": _share(question.num_right > 0 for question in answered),
        "yield": solutions / (answers + refinements) if answers else None,
        "yield_answers": right / answers if answers else None,
        "yield_calls": solutions / (answers + refinements + critiques) if answers else None,
        "yield_tokens": 1000 * solutions / tokens if tokens else None,
        "recovered": _share(question.num_kept > 0 for question in unsolved),
    }


def coverage_by_level(questions: Iterable[Explored]) -> Metrics:
    """`coverage_level_N` for each level that has a question."""
    levels: dict[int, list[bool]] = {}
    for question in questions:
        if question.level is not None and question.num_answers:
            levels.setdefault(question.level, []).append(question.num_solutions > 0)
    return {f"coverage_level_{level}": fmean(flags) for level, flags in sorted(levels.items())}


# --- how different solutions are --------------------------------------------------------------------------------------


def normalised(text: str) -> tuple[str, ...]:
    """The key by which solutions differ: the equations, in order, without spaces, units and thousands' commas. For a
    text without any, its words in lower case."""
    equations = tuple(_LEFT_OUT.sub("", equation) for equation in _EQUATION.findall(text))
    return equations or tuple(text.lower().split())


def num_distinct(texts: Iterable[str]) -> int:
    """The number of different solutions, by `normalised`."""
    return len({normalised(text) for text in texts})


def distinct_2(texts: Iterable[str]) -> float | None:
    """Different pairs of words that follow each other, divided by all of them (distinct-2). None: there is none."""
    grams = [gram for text in texts for gram in _bigrams(text)]
    return len(set(grams)) / len(grams) if grams else None


def dissimilarity(texts: Sequence[str]) -> float | None:
    """1 minus the mean similarity of all pairs, each the share of their bigrams that both have (Jaccard). None: there
    is no pair."""
    sets = [set(_bigrams(text)) for text in texts]
    pairs = [(len(a & b) / len(a | b) if a | b else 1.0) for a, b in combinations(sets, 2)]
    return 1 - fmean(pairs) if pairs else None


def answer_entropy(answers: Iterable[Hashable]) -> float | None:
    """Of the distribution of final answers over samples, in nats.

    Args:
        answers: what tells them apart; see `answer_class`.
    """
    counts = Counter(answers)
    total = sum(counts.values())
    return -math.fsum(c / total * math.log(c / total) for c in counts.values()) + 0.0 if total else None


def answer_class(extracted: str | None, *, is_right: bool) -> str:
    """The class of an answer. All right ones are one class, however they are written (`12` and `12.0`). Wrong ones go
    by their text; those without an answer are one class."""
    return "right" if is_right else f"wrong: {extracted}"


def _bigrams(text: str) -> list[tuple[str, str]]:
    return list(pairwise(text.split()))


def _share(flags: Iterable[bool]) -> float | None:
    every = list(flags)
    return fmean(every) if every else None
