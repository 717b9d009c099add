"""Accuracy over tokens: what a strategy comes to at each budget, with intervals over questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from whet.evaluation.benchmarks import error_reduction
from whet.evaluation.difficulty import LEVELS
from whet.evaluation.intervals import interval
from whet.rollout.samples import Kind

Draws = npt.NDArray[np.int64]
PLURAL: Mapping[Kind, str] = {"answer": "answers", "critique": "critiques", "refinement": "refinements"}
KINDS = tuple(PLURAL)
FEWEST = 10
"""Questions of a level, below which its accuracy is not given."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one strategy made of one question at one budget."""

    right: bool
    counts: Mapping[Kind, int]
    """By kind: answers, critiques and refinements that it paid for."""
    tokens: Mapping[Kind, int]
    """By kind: generated for those."""
    calls: int
    """Of them, those that a policy or an endpoint wrote."""
    unread: int
    """Critiques without a verdict that can be read."""


def draws(num_questions: int, seed: int, count: int = 2000) -> Draws:
    """[count, num_questions]: bootstrap resamples of questions. The same for all strategies, so that their differences
    have intervals too."""
    return np.random.default_rng(seed).integers(num_questions, size=(count, num_questions))


def bootstrap(values: Sequence[float], drawn: Draws) -> tuple[float, float]:
    """The ends of the 95 % percentile interval of the mean over questions."""
    means = np.asarray(values, dtype=float)[drawn].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def point(
    budget: int, outcomes: Sequence[Outcome], drawn: Draws, *, levels: Sequence[int] = (),
    against: Sequence[Outcome] = (),
) -> dict[str, Any]:  # fmt: skip
    """A strategy at one budget, over all questions.

    Args:
        levels: of each question. Empty: nobody knows.
        against: of the strategy that it is compared with, at the same budget.
    Returns: `accuracy`, `low`, `high` (Wilson's interval, 95 %, which is one where all are right, too); with `against`
        also `gain`, its `gain_low` and `gain_high`, and the `error_reduction`; means over questions: `tokens`,
        `tokens_<kind>`, `answers`, `critiques`, `refinements`, `calls`; `unread` (the share of critiques whose verdict
        cannot be read; None where there is none); `n`; `levels` (accuracy and n by level, where it has `FEWEST`
        questions).
    """
    rights = [float(each.right) for each in outcomes]
    low, high = interval(rights)
    found: dict[str, Any] = {"budget": budget, "n": len(outcomes), "accuracy": fmean(rights), "low": low, "high": high}
    if against:
        gains = [one - float(other.right) for one, other in zip(rights, against, strict=True)]
        least, most = bootstrap(gains, drawn)
        base = fmean(float(each.right) for each in against)
        found |= {"gain": fmean(gains), "gain_low": least, "gain_high": most}
        found["error_reduction"] = error_reduction(base, found["accuracy"])
    found |= {f"tokens_{kind}": fmean(each.tokens[kind] for each in outcomes) for kind in KINDS}
    found["tokens"] = fmean(sum(each.tokens.values()) for each in outcomes)
    found |= {PLURAL[kind]: fmean(each.counts[kind] for each in outcomes) for kind in KINDS}
    found["calls"] = fmean(each.calls for each in outcomes)
    critiques = sum(each.counts["critique"] for each in outcomes)
    found["unread"] = sum(each.unread for each in outcomes) / critiques if critiques else None
    found["levels"] = {}
    for level in LEVELS if levels else ():
        inside = [right for right, each in zip(rights, levels, strict=True) if each == level]
        if len(inside) >= FEWEST:
            found["levels"][str(level)] = {"n": len(inside), "accuracy": fmean(inside)}
    return found
