"""An engine whose weights are not the trainer's memory: what an engine on another machine is to a run.

It holds a whole copy of the model, which begins as zeros, and gets weights by `update_weights` alone. It has the
members of `whet.engines.protocol.Engine` and no others, so a caller that asks for more fails here.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from whet.config.parts import EngineConfig
from whet.engines import building
from whet.engines.local import LocalEngine
from whet.engines.protocol import Engine, Weights, Wrote
from whet.models.policy import Policy
from whet.types import Completion, Request, Row


class RemoteEngine:
    """See the module's docstring."""

    is_stepped = True
    queued: Collection[int] = ()

    def __init__(self, policy: Policy, **settings: int) -> None:
        twin = replace(policy, model=copy.deepcopy(policy.model), version=-1)
        with torch.no_grad():
            for _, parameter in twin.trainable_parameters():
                parameter.requires_grad_(False).zero_()
        self._local = LocalEngine(twin, **settings)
        self._version: int | None = None

    @property
    def capacity(self) -> int:
        return self._local.capacity

    @property
    def num_tokens(self) -> int:
        return self._local.num_tokens

    @property
    def num_open(self) -> int:
        return self._local.num_open

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return self._local.generate(requests)

    def submit(self, ticket: int, payload: Request, wrote: Wrote | None = None) -> None:
        self._local.submit(ticket, payload, wrote)

    def advance(self, *, wait: bool = False) -> list[tuple[int, Completion]]:
        return self._local.advance(wait=wait)

    def cancel(self, tickets: Collection[int]) -> None:
        self._local.cancel(tickets)

    def restart(self) -> None:
        self._local.restart()

    def remembered(self, payload: Request) -> Request | None:
        return self._local.remembered(payload)

    def done(self, payloads: Sequence[Request]) -> None:
        self._local.done(payloads)

    def rest(self) -> None:
        self._local.rest()

    @property
    def version(self) -> int | None:
        return self._version

    def score(self, rows: Sequence[Row], *, token_budget: int = 16384) -> list[Tensor]:
        return self._local.score(rows, token_budget=token_budget)

    def shares_memory(self, source: Weights) -> bool:
        return False

    def update_weights(self, version: int, source: Weights) -> None:
        self._local.update_weights(version, source)
        self._version = version


def new_remote_engine(policy: Policy, settings: EngineConfig) -> Engine:
    """In the place of `whet.engines.building.new_engine`."""
    prefix_bytes = round(settings.prefix_gib * 2**30) if settings.rollout == "free" else 0
    return RemoteEngine(
        policy, max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens, prefix_bytes=prefix_bytes
    )


def make_engines_remote(monkeypatch: pytest.MonkeyPatch) -> list[RemoteEngine]:
    """From now on every engine holds a copy of the weights. Returns: those that were made, in order."""
    made: list[RemoteEngine] = []

    def new_engine(policy: Policy, settings: EngineConfig) -> Engine:
        made.append(new_remote_engine(policy, settings))
        return made[-1]

    monkeypatch.setattr(building, "new_engine", new_engine)
    return made
