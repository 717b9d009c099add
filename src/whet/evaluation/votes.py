"""Votes among sampled answers: by majority, among those that a critic does not reject, by a critic's weights.

Answers are given as keys: equal keys are one answer. Keys are the texts themselves, or `keys` makes them by an
equivalence such as the grader's (`12` and `12.0` are one answer).
Ties go to the answer seen first; a key of None (nothing was extracted) does not vote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Key = str | None
DIGITS = 9
"""Sums of weights are rounded to this many digits."""


def keys(texts: Sequence[Key], same: Callable[[str, str], bool]) -> list[Key]:
    """For each text, the first equal one.

    Args:
        same: whether two texts are the same answer. The first was seen before.
    """
    first_equal: dict[str, str] = {}
    for text in texts:
        if text is not None and text not in first_equal:
            seen = dict.fromkeys(first_equal.values())
            first_equal[text] = next((earlier for earlier in seen if same(earlier, text)), text)
    return [None if text is None else first_equal[text] for text in texts]


def vote(keys: Sequence[Key], weights: Sequence[float] | None = None) -> int | None:
    """The index of the first answer that is equal to the winner. None: no answer votes.

    Args:
        weights: of each answer, 0 or more. Those of equal answers add up. None: 1 each.
    """
    totals: dict[str, list[float]] = {}
    for key, weight in zip(keys, weights if weights is not None else [1.0] * len(keys), strict=True):
        if key is not None:
            totals.setdefault(key, []).append(weight)
    if not totals:
        return None
    # Rounded, so that three tenths tie with 0.3.
    return keys.index(max(totals, key=lambda key: round(math.fsum(totals[key]), DIGITS)))


def filtered_vote(keys: Sequence[Key], verdicts: Sequence[str | None]) -> int | None:
    """The majority among answers that are not judged wrong. If none of these votes, the majority among all.

    An answer without a readable verdict stays.
    """
    left = [i for i, verdict in enumerate(verdicts) if verdict != "wrong"]
    winner = vote([keys[i] for i in left])
    return vote(keys) if winner is None else left[winner]


def weighted_vote(keys: Sequence[Key], weights: Sequence[float]) -> int | None:
    """`vote` by weights. If all weights of voting answers are 0, the plain majority."""
    if not any(weight > 0 for key, weight in zip(keys, weights, strict=True) if key is not None):
        return vote(keys)
    return vote(keys, weights)


def certainty(keys: Sequence[Key]) -> float:
    """The share of samples with the majority's answer, in [0, 1]. 0 if no answer votes.

    Luo et al. (arXiv:2310.04815) use the answers' frequencies too; their formula was not at hand.
    """
    winner = vote(keys)
    return 0.0 if winner is None else keys.count(keys[winner]) / len(keys)
