"""Engines: token ids in, token ids and logprobs out, with the version of the weights that wrote them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from torch import Tensor

from whet.types import Completion, Failure, Request, Row


class Engine(Protocol):
    """What a policy is sampled through: a service (`whet.rollout.services`) whose payloads are requests. Conformance:
    tests/engines."""

    is_stepped: bool

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order."""
        ...

    def submit(self, ticket: int, payload: Request) -> None:
        """Ask for a completion, by a number that no open request has."""
        ...

    def advance(self, *, wait: bool) -> list[tuple[int, Completion | Failure]]:
        """What has ended since the last call."""
        ...

    def cancel(self, tickets: Collection[int]) -> None:
        """Nobody waits for these any more: they end soon, as `cancelled`."""
        ...

    def done(self, payloads: Sequence[Request]) -> None:
        """The flow that asked these has ended."""
        ...

    def logprobs(self, rows: Sequence[Row]) -> list[Tensor]:
        """[N] of each row's trained tokens, under the weights that sample."""
        ...

    def update_weights(self, version: int, source: Any) -> None:
        """From now on these weights."""
        ...
