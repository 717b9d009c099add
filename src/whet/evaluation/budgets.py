"""Accuracy over tokens: results of a strategy at each budget, with intervals over questions."""

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
"""A level with fewer questions gets no accuracy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one strategy on one question at one budget."""

    right: bool
    counts: Mapping[Kind, int]
    """By kind: answers, critiques and refinements that it used."""
    tokens: Mapping[Kind, int]
    """By kind: tokens generated for those."""
    calls: int
    """Samples that a policy or an endpoint wrote."""
    unread: int
    """Critiques without a verdict that can be read."""


def draws(num_questions: int, seed: int, count: int = 2000) -> Draws:
    """[count, num_questions]: bootstrap resamples of questions, the same for all strategies.

    So their differences have intervals too.
    """
    return np.random.default_rng(seed).integers(num_questions, size=(count, num_questions))


def bootstrap(values: Sequence[float], drawn: Draws) -> tuple[float, float]:
    """The ends of the 95 % percentile interval of the mean over questions."""
    means = np.asarray(values, dtype=float)[drawn].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def point(
    budget: int,
    outcomes: Sequence[Outcome],
    drawn: Draws,
    *,
    levels: Sequence[int] = (),
    against: Sequence[Outcome] = (),
) -> dict[str, Any]:
    """A strategy at one budget, over all questions.

    Args:
        levels: of each question. Empty: unknown.
        against: outcomes of the strategy to compare with, at the same budget.
    Returns: `accuracy`, with Wilson's 95 % interval from `low` to `high`. With `against` also `gain`, `gain_low`,
        `gain_high` and `error_reduction`. Means over questions: `tokens`, `tokens_<kind>`, `answers`, `critiques`,
        `refinements` and `calls`. `unread` is the share of critiques without a readable verdict, None without
        critiques. `n` counts questions. `levels` has accuracy and n of each level with at least `FEWEST` questions.
    """
    rights = [float(outcome.right) for outcome in outcomes]
    low, high = interval(rights)
    metrics: dict[str, Any] = {
        "budget": budget,
        "n": len(outcomes),
        "accuracy": fmean(rights),
        "low": low,
        "high": high,
    }
    if against:
        gains = [one - float(other.right) for one, other in zip(rights, against, strict=True)]
        least, most = bootstrap(gains, drawn)
        base = fmean(float(outcome.right) for outcome in against)
        metrics |= {"gain": fmean(gains), "gain_low": least, "gain_high": most}
        metrics["error_reduction"] = error_reduction(base, metrics["accuracy"])
    metrics |= {f"tokens_{kind}": fmean(outcome.tokens[kind] for outcome in outcomes) for kind in KINDS}
    metrics["tokens"] = fmean(sum(outcome.tokens.values()) for outcome in outcomes)
    metrics |= {PLURAL[kind]: fmean(outcome.counts[kind] for outcome in outcomes) for kind in KINDS}
    metrics["calls"] = fmean(outcome.calls for outcome in outcomes)
    critiques = sum(outcome.counts["critique"] for outcome in outcomes)
    metrics["unread"] = sum(outcome.unread for outcome in outcomes) / critiques if critiques else None
    metrics["levels"] = {}
    for level in LEVELS if levels else ():
        inside = [right for right, its_level in zip(rights, levels, strict=True) if its_level == level]
        if len(inside) >= FEWEST:
            metrics["levels"][str(level)] = {"n": len(inside), "accuracy": fmean(inside)}
    return metrics
