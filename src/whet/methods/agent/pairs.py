"""Which of an agent's episodes make a pair, the better one first, and what is learnt of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from whet.credit import with_reference
from whet.envs import EnvironmentInfo
from whet.methods.agent.evolution import episode_reward, episode_rows
from whet.models.policy import Policy
from whet.tasks.files import DataError
from whet.trajectories.preferences import differ, read_pairs
from whet.trajectories.records import Trajectory
from whet.types import Episode, Row

Rows = Sequence[Row]
"""Of an episode: one, or several where its turns do not join."""
Pair = tuple[Rows, Rows]
"""The better one and the worse."""
Scored = tuple[float, Rows]
"""An episode's score, from 0 to 1, and its rows."""
BETTER, WORSE = "better", "worse"
"""Kinds of a pair's rows."""


def given_pairs(
    files: Iterable[str], as_row: Callable[[Trajectory], Row], max_context: int
) -> tuple[list[Pair], list[Trajectory], list[str]]:
    """The pairs of files (`trajectories.preferences`).

    Returns: the pairs, the better episodes of all, and what there is to say of them.
    Raises: DataError.
    """
    runs = [pair.runs() for file in files for pair in read_pairs(file)]
    if not runs:
        raise DataError(f"{', '.join(map(str, files))}: no pair of episodes to learn from; add some")
    rows = [(as_row(chosen), as_row(rejected)) for chosen, rejected in runs]
    for (chosen, _), pair in zip(runs, rows, strict=True):
        if not all(row.num_trained for row in pair):
            raise DataError(
                f"the pair of {chosen.item_id}: in one of its episodes nothing trains, as the `loss` of all that the "
                "agent says is false; leave the pair out, or set `loss` to true"
            )
    fitting = [pair for pair in rows if max(len(row.tokens) for row in pair) <= max_context]
    if not fitting:
        raise DataError(f"no pair of episodes of at most max_context = {max_context} tokens to learn from: raise it")
    notes = [f"{len(fitting)} pairs to learn from"]
    if num_equal := sum(np.array_equal(better.tokens, worse.tokens) for better, worse in fitting):
        notes.insert(0, f"in {num_equal} pairs both episodes are the same, which teaches nothing")
    if num_long := len(rows) - len(fitting):
        notes.insert(0, f"{num_long} pairs of more than max_context = {max_context} tokens are left out")
    return [((better,), (worse,)) for better, worse in fitting], [chosen for chosen, _ in runs], notes


def score_episode(episode: Episode, info: EnvironmentInfo) -> Scored | None:
    """None where it failed, or the policy wrote nothing."""
    reward, rows = episode_reward(episode), episode_rows(episode, 1.0)
    return (info.score(reward), rows) if reward is not None and rows else None


def extremes(group: Sequence[Scored]) -> tuple[Scored, Scored]:
    """The best of an item's episodes and the worst; of equals the first."""
    return max(group, key=itemgetter(0)), min(group, key=itemgetter(0))


def ordered(candidates: Iterable[tuple[Scored, Scored]], *, reward_gap: float, threshold: float) -> list[Pair]:
    """Those that make a pair: far enough apart, the better one good enough, and with equal tokens before the first one
    that trains."""
    return [
        (better, worse)
        for (high, better), (low, worse) in (sorted(two, key=itemgetter(0), reverse=True) for two in candidates)
        if differ(high, low, reward_gap=reward_gap, threshold=threshold) and begin_alike(better, worse)
    ]


def begin_alike(one: Rows, two: Rows) -> bool:
    """Whether what comes before the first token that trains is the same."""
    first, second = (rows[0].tokens[: rows[0].trains[0]] for rows in (one, two))
    return np.array_equal(first, second)


def learnable(pairs: Sequence[Pair], reference: Policy, *, token_budget: int) -> list[list[Row]]:
    """The rows of each pair, the better ones first, with the logprobs of the reference. Each token of the better ones
    has credit 1, the others -1."""
    marked = [
        [replace(row, kind=kind, credit=np.full(row.num_trained, sign, np.float32)) for row in rows]
        for pair in pairs
        for rows, kind, sign in zip(pair, (BETTER, WORSE), (1.0, -1.0), strict=True)
    ]
    with_logprobs = iter(with_reference([row for rows in marked for row in rows], reference, token_budget=token_budget))
    sides = [[next(with_logprobs) for _ in rows] for rows in marked]
    return [[*better, *worse] for better, worse in zip(sides[::2], sides[1::2], strict=True)]
