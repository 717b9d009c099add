"""What an agent learns from of its own exploration (AgentEvol of AgentGym, arXiv:2406.04151, section 4).

explore   q(tau) ~ r(tau) pi_m(tau)                  K episodes of an item are sampled, and each gets a weight
learn     argmax  sum over D_m of w(tau) log pi(tau) D_m holds what was kept, and what it is merged with

With w = r / (sum of r over an item's episodes) both steps together are the exact update pi_{m+1} ~ r pi_m of
expectation maximisation, item by item. With w = r, as in the paper, items that are often solved count more. With w of
0 or 1, as in its code, this is filtered imitation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from whet.config.runs import Merge

T = TypeVar("T")
Weighting = Literal["binary", "reward", "self_normalised"]
Keep = Literal["first", "best", "all"]


def episode_weights(
    rewards: Sequence[float | None], *, weighting: Weighting, keep: Keep, above: float, score: Callable[[float], float]
) -> list[float]:
    """What each episode of one item weighs where they are imitated. 0: it is left out.

    Args:
        rewards: as the environment pays, in the order of the samples. None: the episode failed, which says nothing of
            the agent; it is left out, and no part of a sum.
        weighting: binary: 1 where the reward is more than `above` (equal is not enough). reward: the score.
            self_normalised: the scores of what is kept, divided by their sum.
        keep: of the episodes that weigh anything: the first one, the one of the highest reward (the first of equals),
            or all.
        score: a reward as a number in [0, 1].
    """
    if weighting == "binary":
        weights = [float(reward is not None and reward > above) for reward in rewards]
    else:
        weights = [0.0 if reward is None else score(reward) for reward in rewards]
    kept = _kept([index for index, weight in enumerate(weights) if weight > 0], rewards, keep)
    weights = [weight if index in kept else 0.0 for index, weight in enumerate(weights)]
    total = math.fsum(weights)
    return [weight / total for weight in weights] if weighting == "self_normalised" and total else weights


def merged(base: Sequence[T], rounds: Sequence[Sequence[T]], merge: Merge) -> list[T]:
    """What a round learns from.

    Args:
        base: the demonstrations.
        rounds: what rounds 1 to m kept, of which m is the one that learns.
        merge: what is added to its own. base: the demonstrations (the paper's). previous: what the round before kept,
            in round 1 the demonstrations. cumulative: the demonstrations and what all rounds kept (the published
            code's). none: nothing.
    """
    before: dict[Merge, list[Sequence[T]]] = {
        "base": [base],
        "previous": [rounds[-2] if len(rounds) > 1 else base],
        "cumulative": [base, *rounds[:-1]],
        "none": [],
    }
    return [each for part in (*before[merge], rounds[-1]) for each in part]


def num_remembered(merge: Merge, number: int) -> int:
    """Of the rounds before round `number`, how many `merged` may still ask for."""
    return {"cumulative": number - 1, "previous": min(1, number - 1)}.get(merge, 0)


def _kept(candidates: Sequence[int], rewards: Sequence[float | None], keep: Keep) -> Sequence[int]:
    if keep == "all" or not candidates:
        return candidates
    if keep == "first":
        return candidates[:1]
    return [max(candidates, key=lambda index: rewards[index] or 0.0)]  # the first of equals
