"""What trains one policy, wherever its weights are: the one type that the loop and checkpoints name.

`trainer.local` keeps the weights in this process. A trainer of another kind may spread them over devices; the policy is
then a handle (name, tokenizer, version), and `state` gathers the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from whet.engines.protocol import Engine
from whet.models.policy import Policy
from whet.trainer.terms import Update
from whet.types import Row


class Trainer(Protocol):
    """Holds one policy's weights and, while a phase trains it, its optimiser.

    Laws:
        `version` grows with every optimiser step, so no number stands for two sets of weights of one policy.
        `update`, `copy` and `load` change weights here alone. An engine sees them after `push`.
        `save` then `load`, and `optimizer_state` then `load_optimizer_state`, give the same bits back.
        The metrics and weights after `update` depend on the weights, the rows, the seed and the rule alone.
    """

    @property
    def policy(self) -> Policy:
        """The policy as rollouts know it."""
        ...

    @property
    def version(self) -> int:
        """Optimiser steps that the weights have seen."""
        ...

    # --- a phase ------------------------------------------------------------------------------------------------------

    @property
    def num_updates(self) -> int:
        """Optimiser steps of this phase so far."""
        ...

    def begin(self, rule: Update) -> None:
        """A phase begins that trains this policy: a new optimiser, which counts its steps from 0."""
        ...

    def learning_rate(self, update: int) -> float:
        """Of the phase's optimiser step of that number, counted from 0."""
        ...

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        """Learn from one step's rows.

        Args:
            rule: the terms of this step and later ones. None: those of the step before.
        Returns: metrics without prefix. Empty: no row was left to learn from, and no weight changed.
        Raises: RunError where a gradient or a ratio is NaN or infinite.
        """
        ...

    def finish(self) -> None:
        """The phase is over: the weights rest. The optimiser's memory stays, to be saved."""
        ...

    def drop_optimizer(self) -> None:
        """Free the optimiser's memory: nothing will be saved of it or updated with it."""
        ...

    def optimizer_state(self) -> dict[str, Tensor]:
        """The memory of the phase's optimiser, and how many steps it has made, as flat tensors on the CPU."""
        ...

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with an optimiser that was saved. `begin` comes first."""
        ...

    # --- weights ------------------------------------------------------------------------------------------------------

    def score(self, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
        """[N] float32 on the CPU for each row: the logprobs of its N trained tokens, without gradient.

        Args:
            token_budget: tokens of one pass.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """A copy of the weights, as `whet.engines.protocol.Weights` has it."""
        ...

    def fork(self, name: str) -> Trainer:
        """A frozen copy under another name, with weights of its own and the same version."""
        ...

    def copy(self, source: Trainer, *, version: int | None = None) -> None:
        """Take over another trainer's weights.

        Args:
            version: the number that they get here. None: the source's.
        Raises: ConfigError where the shapes differ; RuntimeError while a phase trains this policy, since the optimiser
            would go on from the weights before.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write what `from_pretrained` loads as it is; of an adapter, PEFT's own layout. The tokenizer is with it."""
        ...

    def load(self, folder: Path, *, version: int) -> None:
        """Read back what `save` wrote. Raises: as `copy`."""
        ...

    def push(self, engine: Engine) -> None:
        """Send the weights to an engine: `engine.update_weights`. Free of cost where the engine shares memory.

        Raises: RuntimeError where the engine has open requests.
        """
        ...
