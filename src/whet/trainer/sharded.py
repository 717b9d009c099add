"""The trainer of a policy whose weights are spread over ranks, and which all of them train together (FSDP2).

The run's own process keeps a copy of the weights, from which it samples, saves and reads. `update` brings the copy up
to date, so no reader meets older weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from whet.engines.protocol import Engine
from whet.errors import RunError
from whet.models.policy import Policy
from whet.models.skeleton import Skeleton
from whet.trainer.products import check_products
from whet.trainer.protocol import Trainer
from whet.trainer.terms import Update
from whet.types import Row


class RanksLost(RunError):
    """A rank has died, and the others with it. The run's last checkpoint is whole.

    Args:
        failure: the error that the rank itself raised. Empty: something ended its process.
    """

    def __init__(self, text: str, failure: str = "") -> None:
        super().__init__(text)
        self.failure = failure


class Ranks(Protocol):
    """Processes that train together. `whet.cluster` starts them."""

    size: int
    """How many."""

    def call(self, command: str, *arguments: Any, first: Any = None) -> Any:
        """Run a command of `whet.trainer.rank.Rank` in all ranks.

        Args:
            first: one more argument, for rank 0 alone.
        Returns: rank 0's answer.
        Raises: what the command raised. RanksLost where a rank has died.
        """
        ...

    def close(self) -> None:
        """The run has ended."""
        ...


class ShardedTrainer:
    """Trains a policy in ranks. Its members are those of `whet.trainer.protocol.Trainer`.

    Args:
        policy: this process's copy.
        ranks: they have the policy after this.
        is_new: whether the ranks do not have the policy yet.
    """

    def __init__(self, policy: Policy, ranks: Ranks, *, is_new: bool = True) -> None:
        self._policy, self.ranks = policy, ranks
        self._rule: Update | None = None
        self._num_updates = 0
        self._is_training = False
        policy.scored_by = self._score
        if is_new:
            weights = {name: value.detach().cpu() for name, value in policy.model.named_parameters()}
            ranks.call("make", Skeleton.of(policy), first=weights)

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def version(self) -> int:
        return self.policy.version

    # --- a phase ------------------------------------------------------------------------------------------------------

    @property
    def num_updates(self) -> int:
        return self._num_updates

    def begin(self, rule: Update) -> None:
        check_products(self.policy, rule.learning.products, num_ranks=self.ranks.size)
        self.ranks.call("begin", self.policy.name, rule, self.version)
        self._rule, self._num_updates, self._is_training = rule, 0, True

    def learning_rate(self, update: int) -> float:
        assert self._rule is not None, f"no phase has begun that trains {self.policy.name}"
        return self._rule.learning_rate(update)

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        self._rule = rule or self._rule
        metrics, version, self._num_updates = self.ranks.call("update", self.policy.name, rows, seed, rule)
        if version != self.version:
            self._bring(version)
        return metrics

    def finish(self) -> None:
        self.ranks.call("finish", self.policy.name)
        self._is_training = False

    def drop_optimizer(self) -> None:
        self.ranks.call("drop_optimizer", self.policy.name)
        self._is_training = False

    def optimizer_state(self) -> dict[str, Tensor]:
        return self.ranks.call("optimizer_state", self.policy.name)

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        kinds = {name: (value.dtype, not name.endswith((".step", "num_updates"))) for name, value in state.items()}
        self.ranks.call("load_optimizer_state", self.policy.name, kinds, first=dict(state))
        self._num_updates = int(state["num_updates"])

    # --- weights ------------------------------------------------------------------------------------------------------

    def score(self, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
        return self._score(rows, token_budget)

    def _score(self, rows: Sequence[Row], token_budget: int) -> list[Tensor]:
        return self.ranks.call("score", self.policy.name, rows, token_budget)

    def state(self) -> Mapping[str, Tensor]:
        return self.policy.state()

    def fork(self, name: str) -> ShardedTrainer:
        twin = self.policy.fork(name)
        self.ranks.call("fork", self.policy.name, Skeleton.of(twin))
        return ShardedTrainer(twin, self.ranks, is_new=False)

    def copy(self, source: Trainer, *, version: int | None = None) -> None:
        self._check_rests()
        self.policy.load_state(source.state(), version=source.version if version is None else version)
        self.ranks.call("copy", source.policy.name, self.policy.name, self.version)

    def save(self, folder: Path) -> None:
        self.policy.save(folder)

    def load(self, folder: Path, *, version: int) -> None:
        self._check_rests()
        self.policy.restore(folder, version=version)
        self.ranks.call("put", self.policy.name, version, first=self.policy.state())

    def push(self, engine: Engine) -> None:
        engine.update_weights(self.version, self.policy)

    def _bring(self, version: int) -> None:
        """Bring this process's copy up to date."""
        self.policy.load_state(self.ranks.call("weights", self.policy.name), version=version)

    def _check_rests(self) -> None:
        """Refuse new weights while a phase trains: the optimiser's float32 copies would still hold the former ones."""
        if self._is_training:
            raise RuntimeError(f"weights of {self.policy.name} were to be replaced while a phase trains them")
