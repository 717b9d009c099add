"""The trainer of one policy, wherever its weights are: the one type that the loop and checkpoints name.

`trainer.local` has the weights in this process. A trainer of another kind may spread them over devices. The policy is
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
        """Begin a phase that trains this policy, with a new optimiser that counts its steps from 0."""
        ...

    def learning_rate(self, update: int) -> float:
        """The learning rate of the phase's optimiser step with that number, counted from 0."""
        ...

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        """Learn from one step's rows.

        Args:
            seed: of the order of the rows.
            rule: the update of this step and later ones. None: that of the step before.
        Returns: metrics without prefix. Empty: no row was left to learn from, and no weight changed.
        Raises: RunError where a gradient or a ratio is NaN or infinite.
        """
        ...

    def finish(self) -> None:
        """End the phase: the weights no longer train. The optimiser's state stays, to be saved."""
        ...

    def drop_optimizer(self) -> None:
        """Free the optimiser's state. Nothing can save it or update with it from here on."""
        ...

    def optimizer_state(self) -> dict[str, Tensor]:
        """The state of the phase's optimiser and its number of steps, as flat tensors on the CPU."""
        ...

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with a saved optimiser state. `begin` comes first."""
        ...

    # --- weights ------------------------------------------------------------------------------------------------------

    def score(self, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
        """[N] float32 on the CPU for each row: the logprobs of its N trained tokens in nats, without gradient.

        Args:
            token_budget: tokens of one pass.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """A copy of the weights, as `whet.engines.protocol.Weights` describes it."""
        ...

    def fork(self, name: str) -> Trainer:
        """A frozen copy under another name, with copied weights and the same version."""
        ...

    def copy(self, source: Trainer, *, version: int | None = None) -> None:
        """Copy another trainer's weights into this policy.

        Args:
            version: their version here. None: the source's.
        Raises: ConfigError where the shapes differ. RuntimeError while a phase trains this policy, since the optimiser
            would go on from the former weights.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the weights and the tokenizer as `from_pretrained` loads them; an adapter in PEFT's layout."""
        ...

    def load(self, folder: Path, *, version: int) -> None:
        """Read back what `save` wrote. Raises: as `copy`."""
        ...

    def push(self, engine: Engine) -> None:
        """Send the weights to an engine (`engine.update_weights`). It costs nothing where the engine shares memory.

        Raises: RuntimeError where the engine has open requests.
        """
        ...
