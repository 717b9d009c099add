"""Rounds in which a policy learns from its samples: what each round keeps, and how it is learnt."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from whet.config.parts import LearningConfig
from whet.config.runs import Merge
from whet.credit.evolution import merged, num_remembered
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
    """The examples that rounds keep to learn from, in the run's store.

    Args:
        base: the examples from before the first round.
        merge: see `credit.evolution.merged`.
    """

    def __init__(self, store: Store, base: Sequence[Rows], merge: Merge) -> None:
        self.base, self.merge = base, merge
        self.kept = store.rows("kept")
        """A batch for each example, in the order of sampling. Its key begins with the round's number."""

    def begin(self, number: int) -> None:
        """Drops what round `number` and later ones do not need."""
        first = number - num_remembered(self.merge, number)
        for key in [key for key in self.kept.batches if round_of(key) < first]:
            self.kept.take(key)

    def put(self, number: int, key: str, rows: Rows) -> None:
        """Args: key: of the example, unique within the round."""
        self.kept.put(f"{number}/{key}", rows)

    def merged(self, number: int) -> list[Rows]:
        """The examples that a round learns from."""
        rounds: list[list[Rows]] = [[] for _ in range(number)]
        for key, rows in self.kept.batches.items():
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
        num_epochs: mean times that each is learnt.
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
    places = [divmod(place, len(pool)) for place in range((step - 1) * count, step * count)]
    orders = {epoch: list(range(len(pool))) for epoch, _ in places}
    for epoch, order in orders.items():
        random.Random(seed_of(*key, epoch)).shuffle(order)
    return [pool[orders[epoch][index]] for epoch, index in places]
