"""Rounds in which a policy learns from its samples: their examples, and the phase that learns them.

AgentEvol of AgentGym (arXiv:2406.04151, section 4) weights and merges explored episodes:

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
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from whet.config.parts import LearningConfig
from whet.config.runs import Keep, Merge, Weighting
from whet.methods.warm_start import imitation_phase
from whet.seeds import seed_of
from whet.trainer.buffers import Store
from whet.trainer.loop import Phase, Selection
from whet.types import Row

T = TypeVar("T")
INITIAL = "policy_initial"
"""The frozen model that rounds start from, unless each goes on from the one before."""
Rows = Sequence[Row]
"""The rows of an example: an episode, or one reply."""


class RoundSamples:
    """The examples of the rounds, in the run's store.

    Args:
        base: the examples from before the first round.
        merge: see `merged`.
    """

    def __init__(self, store: Store, base: Sequence[Rows], merge: Merge) -> None:
        self.base, self.merge = base, merge
        self.examples = store.rows("kept")
        """A batch for each example, in the order of sampling. Its key begins with the round's number."""

    def begin(self, number: int) -> None:
        """Drops what round `number` and later ones do not need."""
        first = number - num_remembered(self.merge, number)
        for key in [key for key in self.examples.batches if round_of(key) < first]:
            self.examples.take(key)

    def put(self, number: int, key: str, rows: Rows) -> None:
        """Args: key: of the example, unique within the round."""
        self.examples.put(f"{number}/{key}", rows)

    def merged(self, number: int) -> list[Rows]:
        """The examples that a round learns from."""
        rounds: list[list[Rows]] = [[] for _ in range(number)]
        for key, rows in self.examples.batches.items():
            rounds[round_of(key) - 1].append(rows)
        return merged(self.base, rounds, self.merge)


def round_of(key: str) -> int:
    return int(key.partition("/")[0])


def learning_phase(
    name: str, policy: str, count: int, pool: Callable[[], Sequence[Rows]], learning: LearningConfig, *, seed: int,
    num_epochs: float, rows_per_step: int, begin: Callable[[], None], validate: Callable[..., Any],
    validate_every: int, select: Selection,
) -> Phase:  # fmt: skip
    """Imitation of a pool of examples, in epochs.

    Args:
        count: examples in it when the phase begins.
        pool: the examples.
        num_epochs: how often each is learnt, on average. It may be a fraction.
        rows_per_step: examples in a batch.
        validate: called as `validate(step, phase=name)`.
    """

    def draw(step: int) -> list[Row]:
        return [row for rows in in_epochs(pool(), step, rows_per_step, seed, name) for row in rows]

    return imitation_phase(
        name, policy, math.ceil(num_epochs * count / rows_per_step), draw, learning, rows_per_step, begin=begin,
        validate=lambda step: validate(step, phase=name), validate_every=validate_every, select=select,
    )  # fmt: skip


def in_epochs(pool: Sequence[T], step: int, count: int, *key: object) -> list[T]:
    """The batch of a step. The batches go round the pool, which is shuffled anew each time.

    Args:
        step: from 1.
        key: of the shuffles' seeds.
    """
    if not pool:
        return []
    draws = [divmod(number, len(pool)) for number in range((step - 1) * count, step * count)]
    orders = {epoch: list(range(len(pool))) for epoch, _ in draws}
    for epoch, order in orders.items():
        random.Random(seed_of(*key, epoch)).shuffle(order)
    return [pool[orders[epoch][index]] for epoch, index in draws]


# --- the examples of a round ------------------------------------------------------------------------------------------


def episode_weights(
    rewards: Sequence[float | None], *, weighting: Weighting, keep: Keep, above: float, score: Callable[[float], float]
) -> list[float]:
    """The weight of each episode of one item in imitation. 0: it is left out.

    Args:
        rewards: of the environment, in the order of the samples. None: the episode failed, and is left out of sums too.
        weighting: `binary`: 1 where the reward is more than `above` (equal is not enough). `reward`: the score.
            `self_normalised`: the scores of selected episodes, divided by their sum. They add up to 1.
        keep: selects among episodes with a weight: the `first`, the `best` reward (the first of equals), or `all`.
            Others get 0.
        above: a reward. Only `binary` uses it.
        score: a reward as a number in [0, 1].
    """
    if weighting == "binary":
        weights = [float(reward is not None and reward > above) for reward in rewards]
    else:
        weights = [0.0 if reward is None else score(reward) for reward in rewards]
    selected = [index for index, weight in enumerate(weights) if weight > 0]
    if keep == "first":
        selected = selected[:1]
    elif keep == "best" and selected:
        selected = [max(selected, key=lambda index: rewards[index] or 0.0)]  # the first of equals
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
    """The number of rounds before round `number` that `merged` may still need."""
    return {"cumulative": number - 1, "previous": min(1, number - 1)}.get(merge, 0)
