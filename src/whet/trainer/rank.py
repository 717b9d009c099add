"""A process that trains policies together with others: it holds its part of their weights and does what it is told.

`whet.trainer.sharded` tells all ranks the same, in the same order. Each command runs in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from whet.models import sharding
from whet.models.group import whole
from whet.models.policy import Policy
from whet.models.scoring import score_here
from whet.models.sharding import ProcessGroup
from whet.models.skeleton import Skeleton
from whet.trainer.learner import Learner
from whet.trainer.process import set_determinism
from whet.trainer.terms import Update
from whet.types import Row


class Rank:
    """The commands of one rank. Weights come and go as whole tensors at rank 0, one at a time.

    Args:
        group: the ranks, of which this is one.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.policies: dict[str, Policy] = {}
        self._bases: dict[str, Policy] = {}
        self._learners: dict[str, Learner] = {}

    def run(self, command: str, *arguments: Any, first: Any = None) -> Any:
        """Run the command of that name.

        Args:
            first: one more argument, that rank 0 alone was given.
        """
        with_first = {"first": first} if command in WITH_FIRST else {}
        return getattr(self, command)(*arguments, **with_first)

    def settle(self, num_threads: int | None) -> None:
        """Begin a run: forget the policies of the one before, and compute as the run's own process does."""
        self.policies, self._bases, self._learners = {}, {}, {}
        set_determinism(num_threads)

    # --- policies -----------------------------------------------------------------------------------------------------

    def make(self, skeleton: Skeleton, *, first: Mapping[str, Tensor] | None) -> None:
        """Build a policy. `first`: the weights of its whole model, by name."""
        shared = self._bases.get(skeleton.base)
        if shared is None:
            policy = sharding.build(skeleton, self.group)
            for name, parameter in policy.model.named_parameters():
                sharding.place(parameter, None if first is None else first[name])
            sharding.prepare(policy)
            if skeleton.adapter is not None:
                self._bases[skeleton.base] = policy
        else:
            policy = Policy(
                skeleton.name, shared.model, shared.tokenizer, skeleton.adapter, full_logits=skeleton.full_logits
            )
        self.policies[skeleton.name] = policy

    def fork(self, source: str, skeleton: Skeleton) -> None:
        """Build a frozen policy with another one's weights, which stay where they are."""
        origin = self.policies[source]
        if origin.adapter is None:
            twin = sharding.build(skeleton, self.group)
        else:
            assert skeleton.adapter is not None
            origin.model.add_adapter(skeleton.adapter, skeleton.adapters[skeleton.adapter])  # type: ignore[operator]
            twin = Policy(skeleton.name, origin.model, origin.tokenizer, skeleton.adapter)
            twin.full_logits = origin.full_logits
        twin.frozen = True
        self.policies[skeleton.name] = twin
        self.copy(source, skeleton.name, 0)
        for _, parameter in twin.trainable_parameters():
            parameter.requires_grad_(False)

    def copy(self, source: str, target: str, version: int) -> None:
        """Copy one policy's weights into another."""
        pairs = zip(
            self.policies[target].trainable_parameters(), self.policies[source].trainable_parameters(), strict=True
        )
        for (_, mine), (_, theirs) in pairs:
            sharding.copy_within(mine, theirs)
        self.policies[target].version = version

    def put(self, name: str, version: int, *, first: Mapping[str, Tensor] | None) -> None:
        """Give a policy new weights. `first`: as `Policy.state` gives them."""
        policy = self.policies[name]
        for key, parameter in policy.trainable_parameters():
            sharding.place(parameter, None if first is None else first[policy.neutral(key)])
        policy.version = version

    def weights(self, name: str) -> dict[str, Tensor]:
        """A policy's weights, as `Policy.state` gives them. Empty but in rank 0."""
        policy = self.policies[name]
        state: dict[str, Tensor] = {}
        for key, parameter in policy.trainable_parameters():
            value = whole(parameter.detach())
            if self.group.rank == 0:
                state[policy.neutral(key)] = value.to("cpu", copy=True)
        return state

    def score(self, name: str, rows: Sequence[Row], token_budget: int) -> list[Tensor]:
        """As `Trainer.score`."""
        return score_here(self.policies[name], rows, token_budget=token_budget, group=self.group)

    # --- a phase ------------------------------------------------------------------------------------------------------

    def begin(self, name: str, rule: Update, version: int) -> None:
        """As `Trainer.begin`."""
        self.policies[name].version = version
        self._learners[name] = Learner(self.policies[name], rule, self.group)

    def update(
        self, name: str, rows: Sequence[Row], seed: int, rule: Update | None
    ) -> tuple[dict[str, float], int, int]:
        """As `Trainer.update`. Returns: the metrics, the policy's version, and the phase's number of updates."""
        learner = self._learners[name]
        metrics = learner.update(rows, seed=seed, rule=rule)
        return metrics, learner.policy.version, learner.num_updates

    def finish(self, name: str) -> None:
        """As `Trainer.finish`."""
        self._learners[name].finish()

    def drop_optimizer(self, name: str) -> None:
        """As `Trainer.drop_optimizer`."""
        self._learners.pop(name, None)

    def optimizer_state(self, name: str) -> dict[str, Tensor]:
        """As `Trainer.optimizer_state`. Empty but in rank 0."""
        state = self._learners[name].state()
        return state if self.group.rank == 0 else {}

    def load_optimizer_state(
        self, name: str, kinds: Mapping[str, tuple[torch.dtype, bool]], *, first: Mapping[str, Tensor] | None
    ) -> None:
        """As `Trainer.load_optimizer_state`.

        Args:
            kinds: by name, each tensor's type, and whether it has the shape of its weights.
            first: the tensors.
        """
        learner = self._learners[name]
        state: dict[str, Tensor] = {}
        for key, (dtype, is_spread) in kinds.items():
            value = None if first is None else first[key]
            if is_spread:
                state[key] = sharding.spread_like(learner.masters[int(key.partition(".")[0])], value, dtype)
            else:
                state[key] = self.group.gather(value)[0]  # type: ignore[assignment]
        learner.load_state(state)


WITH_FIRST = ("make", "put", "load_optimizer_state")
"""Commands with an argument for rank 0 alone."""
