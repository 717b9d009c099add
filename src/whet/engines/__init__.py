"""Engines: token ids in, token ids and logprobs out, with the version of the weights that wrote them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from whet.types import Completion, Request


class Watcher(Protocol):
    """Who looks on while a batch is written. Requests go by their place in the batch."""

    def wrote(self, index: int, token: int, logprob: float) -> None:
        """A request got its next token."""
        ...

    def ended(self, index: int, completion: Completion) -> None:
        """A request is done."""
        ...

    def gone(self) -> Collection[int]:
        """The requests whose completion nobody waits for any more: they end at once, as `cancelled`."""
        ...


class Engine(Protocol):
    """What a policy is sampled through. Conformance: tests/engines/test_engine.py."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order."""
        ...
