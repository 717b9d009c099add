"""The trainer whose weights are in this process: a policy and, in a phase, its learner.

`trainer_of` is the one place that makes trainers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from whet.engines.protocol import Engine
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.trainer.learner import Learner
from whet.trainer.products import check_products
from whet.trainer.protocol import Trainer
from whet.trainer.sharded import Ranks, ShardedTrainer
from whet.trainer.terms import Update
from whet.types import Row


class LocalTrainer:
    """Trains a policy in this process. Its members are those of `whet.trainer.protocol.Trainer`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._learner: Learner | None = None
        self._is_training = False

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def version(self) -> int:
        return self.policy.version

    # --- a phase ------------------------------------------------------------------------------------------------------

    @property
    def learner(self) -> Learner:
        """The phase's learner."""
        assert self._learner is not None, f"no phase has begun that trains {self.policy.name}"
        return self._learner

    @property
    def num_updates(self) -> int:
        return self.learner.num_updates

    def begin(self, rule: Update) -> None:
        check_products(self.policy, rule.learning.products)
        self._learner, self._is_training = Learner(self.policy, rule), True

    def learning_rate(self, update: int) -> float:
        return self.learner.rule.learning_rate(update)

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        return self.learner.update(rows, seed=seed, rule=rule)

    def finish(self) -> None:
        self.learner.finish()
        self._is_training = False

    def drop_optimizer(self) -> None:
        self._learner, self._is_training = None, False

    def optimizer_state(self) -> dict[str, Tensor]:
        return self.learner.state()

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        self.learner.load_state(state)

    # --- weights ------------------------------------------------------------------------------------------------------

    def score(self, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
        return score(self.policy, rows, token_budget=token_budget)

    def state(self) -> Mapping[str, Tensor]:
        return self.policy.state()

    def fork(self, name: str) -> LocalTrainer:
        return LocalTrainer(self.policy.fork(name))

    def copy(self, source: Trainer, *, version: int | None = None) -> None:
        self._check_rests()
        self.policy.load_state(source.state(), version=source.version if version is None else version)

    def save(self, folder: Path) -> None:
        self.policy.save(folder)

    def load(self, folder: Path, *, version: int) -> None:
        self._check_rests()
        self.policy.restore(folder, version=version)

    def push(self, engine: Engine) -> None:
        engine.update_weights(self.version, self.policy)

    def _check_rests(self) -> None:
        """Refuse new weights while a phase trains: the optimiser's float32 copies would still hold the former ones."""
        if self._is_training:
            raise RuntimeError(f"weights of {self.policy.name} were to be replaced while a phase trains them")


def trainer_of(policy: Policy, ranks: Ranks | None = None) -> Trainer:
    """The trainer of a policy. Another kind of trainer is chosen here, and nowhere else.

    Args:
        ranks: the processes that train it. None: this one does.
    """
    return LocalTrainer(policy) if ranks is None else ShardedTrainer(policy, ranks)
