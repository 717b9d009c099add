"""What every engine of a trained policy does, wherever its weights are: the one type that rollouts, runs and the server
name.

`engines.local` computes in this process, on the trainer's own weights. An engine elsewhere holds a copy. Both get new
weights by `update_weights` alone, so nothing that changes a policy can pass an engine by. Conformance: tests/engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from whet.types import Completion, Failure, Request, Row, Token

Wrote = Callable[[Token], None]
"""Receives a request's tokens as they come. If it raises, the request ends, `cancelled`."""


class Weights(Protocol):
    """Where an engine reads new weights: a policy of this process, or a trainer whose weights are spread."""

    name: str

    def state(self) -> Mapping[str, Tensor]:
        """All weights that make this policy differ from others, on the CPU, by names that do not depend on its own.

        It costs a copy. An engine that shares memory with the source does not call it."""
        ...


class Engine(Protocol):
    """Samples tokens from one policy. A service (`whet.rollout.services`) whose payloads are requests.

    Laws:
        A completion depends on its request and on the weights alone, up to rounding: not on what else is asked.
        The same calls in the same order give the same bits.
        `score` and `Completion.logprobs` are those of the weights numbered `version`.
        Weights change in `update_weights` alone. After it, nothing computed from older weights is used.
    """

    is_stepped: bool
    """True: it computes in `advance`, a step a call, in the caller's thread."""

    @property
    def queued(self) -> Collection[int]:
        """Tickets that wait for room which other rollouts hold. An engine finds room for all by itself: ()."""
        ...

    @property
    def capacity(self) -> int:
        """Requests that it works on at one time. More may be asked; they wait their turn."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens read and written so far, counted by request: also what equal requests share."""
        ...

    @property
    def num_open(self) -> int:
        """Requests that were submitted and have not ended."""
        ...

    # --- sampling -----------------------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order.

        Raises: RunError where the engine cannot answer: a lost engine ends the run, and is never a reward.
            ConstraintError where a request's constraint cannot be followed; `advance` gives a Failure instead.
        """
        ...

    def submit(self, ticket: int, payload: Request, wrote: Wrote | None = None) -> None:
        """Ask for a completion, by a number that no open request has.

        Args:
            wrote: receives the tokens as they come. None: nobody does.
        """
        ...

    def advance(self, *, wait: bool = False) -> Sequence[tuple[int, Completion | Failure]]:
        """What has ended since the last call, by ticket.

        Args:
            wait: until something has ended, where something is asked. An engine that is stepped makes one step.
        """
        ...

    def cancel(self, tickets: Collection[int]) -> None:
        """Nobody waits for these any more: they end soon, as `cancelled`. Numbers that are not open are ignored."""
        ...

    def restart(self) -> None:
        """Forget all requests, and all that is held for later ones. Ticket numbers may be used again."""
        ...

    def remembered(self, payload: Request) -> Request | None:
        """What `done` needs of a request, which may be less than the whole. None: nothing."""
        ...

    def done(self, payloads: Sequence[Request]) -> None:
        """The rollout that asked these has ended: what is held for it can go."""
        ...

    def rest(self) -> None:
        """Nothing will be asked for a while, as an update comes: give back the memory that only speed needs.

        Results are the same without it. Open requests go on."""
        ...

    # --- weights ------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int | None:
        """The number of the weights that it samples with: updates seen. None: it was never given any."""
        ...

    def score(self, rows: Sequence[Row], *, token_budget: int = 16384) -> list[Tensor]:
        """[N] float32 on the CPU for each row: the logprobs of its N trained tokens.

        Args:
            token_budget: tokens of one pass.
        """
        ...

    def shares_memory(self, source: Weights) -> bool:
        """Whether it computes with the source's own memory. Then a change there is a change here, and no copy is sent.

        Where False, the run scores a probe on both sides after each update (`whet.trainer.selfchecks`)."""
        ...

    def update_weights(self, version: int, source: Weights) -> None:
        """Sample with the source's weights from now on, under this number.

        Raises: RuntimeError where requests are open.
        """
        ...
