"""Difficulty of a question for a policy: the share of right samples, in five levels.

The samples that set a level are never evaluated too. Otherwise the luck that makes a question easy would count again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

NUM_LEVELS = 5
LEVELS = range(1, NUM_LEVELS + 1)
"""1: easy, more than 80 % right. 5: hard, at most 20 %."""
HARD = (4, 5)
"""The tail: at most 40 % right."""


def level_of(num_right: int, num_samples: int) -> int | None:
    """Levels 1 to 5 are the shares (0.8, 1], (0.6, 0.8], (0.4, 0.6], (0.2, 0.4] and [0, 0.2]. None: no samples.

    It is computed in whole numbers, so that 4 of 5 is level 2 whatever the rounding of 0.8.
    Raises: ValueError where `num_right` is not from 0 to `num_samples`.
    """
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"{num_right} of {num_samples} samples cannot be right")
    if not num_samples:
        return None
    above = (level for level in LEVELS if NUM_LEVELS * num_right > num_samples * (NUM_LEVELS - level))
    return next(above, NUM_LEVELS)


def by_level(scores: Mapping[str, float], levels: Mapping[str, int]) -> dict[str, float | None]:
    """The mean score of each level's questions, and their number.

    Args:
        scores: by question. Questions without a level are left out.
        levels: by question.
    Returns: `level_1` ... `level_5` (None: it has no question), `n_level_1` ... `n_level_5`.
    """
    means: dict[str, float | None] = {}
    for level in LEVELS:
        name = f"level_{level}"
        level_scores = [score for question, score in scores.items() if levels.get(question) == level]
        means[name] = fmean(level_scores) if level_scores else None
        means[f"n_{name}"] = float(len(level_scores))
    return means


def level_shares(levels: Iterable[int]) -> dict[int, float]:
    """The share of each level among all examples. Empty without examples."""
    every = list(levels)
    return {level: every.count(level) / len(every) for level in LEVELS} if every else {}


def tail_narrowing(examples: Iterable[int], source: Iterable[int]) -> float | None:
    """The hard levels' share of the examples, divided by their share of the questions.

    1: they are learnt in proportion. Below 1: the tail narrows. None: there is no hard question, or no example.

    Args:
        examples, source: levels of the learnt examples, and of the questions.
    """
    learnt, there = level_shares(examples), level_shares(source)
    share = sum(there.get(level, 0.0) for level in HARD)
    return sum(learnt[level] for level in HARD) / share if learnt and share else None
