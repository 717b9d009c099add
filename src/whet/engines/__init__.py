"""Engines: token ids in, token ids and logprobs out, with the version of the weights that wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whet.types import Completion, Request


class Engine(Protocol):
    """What a policy is sampled through. Conformance: tests/engines/test_engine.py."""

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order."""
        ...
