"""Weights and merging of explored episodes (AgentEvol of AgentGym, arXiv:2406.04151, section 4).

| step | rule | data |
|---|---|---|
| explore | q(tau) ~ r(tau) pi_m(tau) | K sampled episodes of an item, each with a weight w |
| learn | argmax sum over D_m of w(tau) log pi(tau) | D_m: selected episodes, merged with others |

If w = r / (sum of r over an item's episodes), both steps are the exact update of expectation maximisation, item by
item: pi_{m+1} ~ r pi_m. With w = r, as in the paper, items that are often solved count more. With w of 0 or 1, as in
its code, this is filtered imitation.
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
    """The weight of each episode of one item in imitation. 0: it is left out.

    Args:
        rewards: of the environment, in the order of the samples. None: the episode failed. It is left out, also of
            sums.
        weighting: `binary`: 1 where the reward is more than `above` (equal is not enough). `reward`: the score.
            `self_normalised`: the scores of selected episodes, divided by their sum.
        keep: selects among episodes with a weight: the `first`, the `best` reward (the first of equals), or `all`.
            Others get 0.
        above: a reward. Only `binary` uses it.
        score: a reward as a number in [0, 1].
    """
    if weighting == "binary":
        weights = [float(reward is not None and reward > above) for reward in rewards]
    else:
        weights = [0.0 if reward is None else score(reward) for reward in rewards]
    selected = _selected([index for index, weight in enumerate(weights) if weight > 0], rewards, keep)
    weights = [weight if index in selected else 0.0 for index, weight in enumerate(weights)]
    total = math.fsum(weights)
    return [weight / total for weight in weights] if weighting == "self_normalised" and total else weights


def merged(base: Sequence[T], rounds: Sequence[Sequence[T]], merge: Merge) -> list[T]:
    """The examples of a round, with the round's own at the end.

    Args:
        base: the demonstrations.
        rounds: the examples of rounds 1 to m. Round m is the one that learns.
        merge: the examples that are added. `base`: the demonstrations (the paper's rule). `previous`: the previous
            round's, in round 1 the demonstrations. `cumulative`: the demonstrations and all earlier rounds' (the
            published code's rule). `none`: nothing.
    """
    before: dict[Merge, list[Sequence[T]]] = {
        "base": [base],
        "previous": [rounds[-2] if len(rounds) > 1 else base],
        "cumulative": [base, *rounds[:-1]],
        "none": [],
    }
    return [example for part in (*before[merge], rounds[-1]) for example in part]


def num_remembered(merge: Merge, number: int) -> int:
    """How many rounds before round `number` `merged` may still need."""
    return {"cumulative": number - 1, "previous": min(1, number - 1)}.get(merge, 0)


def _selected(candidates: Sequence[int], rewards: Sequence[float | None], keep: Keep) -> Sequence[int]:
    if keep == "all" or not candidates:
        return candidates
    if keep == "first":
        return candidates[:1]
    return [max(candidates, key=lambda index: rewards[index] or 0.0)]  # the first of equals
