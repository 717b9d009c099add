"""Votes among sampled answers: by majority, among those that a critic lets pass, by a critic's weights.

Answers are given as keys: equal keys are one answer. Who makes them decides what is equal: `keys` by an equivalence
such as the grader's (`12` and `12.0` are one answer), or the texts themselves.
Ties go to the answer seen first; a key of None (nothing was extracted) does not vote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Key = str | None
DIGITS = 9
"""To which sums of weights are told apart."""


def keys(texts: Sequence[Key], same: Callable[[str, str], bool]) -> list[Key]:
    """For each text the first one that it is equal to.

    Args:
        same: whether the second text is the answer that the first one is; the first is one seen before.
    """
    known: dict[str, str] = {}
    for text in texts:
        if text is not None and text not in known:
            known[text] = next((each for each in dict.fromkeys(known.values()) if same(each, text)), text)
    return [None if text is None else known[text] for text in texts]


def vote(keys: Sequence[Key], weights: Sequence[float] | None = None) -> int | None:
    """The place of the first answer that is equal to the winner; None where nobody votes.

    Args:
        weights: of each answer, 0 or more. Those of equal ones add up. None: one each.
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
    """The majority among answers that are not judged wrong; where none is left, or none of them votes, among all. An
    answer whose verdict cannot be read stays."""
    left = [i for i, verdict in enumerate(verdicts) if verdict != "wrong"]
    winner = vote([keys[i] for i in left])
    return vote(keys) if winner is None else left[winner]


def weighted_vote(keys: Sequence[Key], weights: Sequence[float]) -> int | None:
    """`vote` by weights; where all that vote weigh nothing, the plain majority."""
    if not any(weight > 0 for key, weight in zip(keys, weights, strict=True) if key is not None):
        return vote(keys)
    return vote(keys, weights)


def certainty(keys: Sequence[Key]) -> float:
    """The share of samples that give the majority's answer, in [0, 1]; 0 where nobody votes. (Luo et al.,
    arXiv:2310.04815, make theirs of the answers' frequencies too; their formula was not at hand.)"""
    winner = vote(keys)
    return 0.0 if winner is None else keys.count(keys[winner]) / len(keys)
