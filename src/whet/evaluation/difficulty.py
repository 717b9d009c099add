"""How hard a question is for a policy: the share of samples that are right, in five levels.

The samples that say how hard a question is are never evaluated as well: a question that was lucky once would be called
easy, and its luck would count again.
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
    """(0.8, 1], (0.6, 0.8], (0.4, 0.6], (0.2, 0.4], [0, 0.2] are levels 1 to 5; in whole numbers, so that 4 of 5 is in
    level 2 whatever a float makes of 0.8. None: there are no samples.

    Raises: ValueError where more are right than there are.
    """
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"{num_right} of {num_samples} samples cannot be right")
    if not num_samples:
        return None
    above = (level for level in LEVELS if NUM_LEVELS * num_right > num_samples * (NUM_LEVELS - level))
    return next(above, NUM_LEVELS)


def level_names(prefix: str) -> dict[int, str]:
    """The names under which numbers of each level are kept."""
    return {level: f"{prefix}_{level}" for level in LEVELS}


def by_level(scores: Mapping[str, float], levels: Mapping[str, int]) -> dict[str, float | None]:
    """The mean of each level's questions, and how many they are.

    Args:
        scores: by question. One that has no level counts nowhere.
        levels: by question.
    Returns: `level_1` ... `level_5` (None: no question is of it), `n_level_1` ... `n_level_5`.
    """
    found: dict[str, float | None] = {}
    for level, name in level_names("level").items():
        own = [score for question, score in scores.items() if levels.get(question) == level]
        found[name] = fmean(own) if own else None
        found[f"n_{name}"] = float(len(own))
    return found


def level_shares(levels: Iterable[int]) -> dict[int, float]:
    """What part of all examples is of each level; nothing where there are none."""
    every = list(levels)
    return {level: every.count(level) / len(every) for level in LEVELS} if every else {}


def tail_narrowing(examples: Iterable[int], source: Iterable[int]) -> float | None:
    """The hard levels' share of what is learnt, divided by their share of the questions. 1: they are learnt as often
    as they are there; below 1: the tail narrows. None: the source has no hard question, or nothing is learnt.

    Args:
        examples, source: levels.
    """
    learnt, there = level_shares(examples), level_shares(source)
    share = sum(there.get(level, 0.0) for level in HARD)
    return sum(learnt[level] for level in HARD) / share if learnt and share else None
