"""Which of an agent's episodes make a pair, the better one first, and what is learnt of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from whet.credit import with_reference
from whet.envs import EnvironmentInfo
from whet.envs.preferences import differ
from whet.models.policy import Policy
from whet.runs.evolution import episode_rows, paid
from whet.types import Episode, Row

Pair = tuple[Row, Row]
"""The better one and the worse."""
Scored = tuple[float, Row]
"""An episode's score, from 0 to 1, and its row."""
BETTER, WORSE = "better", "worse"
"""Kinds of a pair's rows."""


def scored(episode: Episode, info: EnvironmentInfo) -> Scored | None:
    """None where it failed, the policy wrote nothing, or its chat template writes the history anew: then it is several
    rows, and there is no sum over one."""
    reward, rows = paid(episode), episode_rows(episode, 1.0)
    return (info.score(reward), rows[0]) if reward is not None and len(rows) == 1 else None


def extremes(group: Sequence[Scored]) -> tuple[Scored, Scored]:
    """The best of an item's episodes and the worst; of equals the first."""
    return max(group, key=itemgetter(0)), min(group, key=itemgetter(0))


def ordered(
    candidates: Iterable[tuple[Scored, Scored]], *, reward_gap: float, threshold: float
) -> list[Pair]:  # fmt: skip
    """Those that make a pair: far enough apart, the better one good enough, and with equal tokens before the first one
    that trains."""
    return [
        (better, worse)
        for (high, better), (low, worse) in (sorted(two, key=itemgetter(0), reverse=True) for two in candidates)
        if differ(high, low, reward_gap=reward_gap, threshold=threshold) and begin_alike(better, worse)
    ]


def begin_alike(one: Row, two: Row) -> bool:
    """Whether what comes before the first token that trains is the same."""
    first, second = (row.tokens[: row.trains[0]] for row in (one, two))
    return np.array_equal(first, second)


def learnable(pairs: Sequence[Pair], reference: Policy, *, token_budget: int) -> list[Pair]:
    """With the logprobs of the reference, and with credit 1 on each token of the better ones and -1 on the others."""
    rows = iter(with_reference([row for pair in pairs for row in pair], reference, token_budget=token_budget))
    return [(_as(BETTER, 1.0, better), _as(WORSE, -1.0, worse)) for better, worse in zip(rows, rows, strict=True)]


def _as(kind: str, sign: float, row: Row) -> Row:
    return replace(row, kind=kind, credit=np.full(row.num_trained, sign, np.float32))
