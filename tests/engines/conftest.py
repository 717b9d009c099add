"""Engines of each kind, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.remote_engine import RemoteEngine
from whet.engines.local import LocalEngine
from whet.engines.protocol import Engine
from whet.models.policy import Policy

KINDS: dict[str, Callable[..., Engine]] = {"local": LocalEngine, "remote": RemoteEngine}
"""On the policy's own memory; with a copy of its weights."""


@pytest.fixture(params=KINDS)
def make_engine(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    """Makes an engine of a kind, with the weights that a policy has now."""

    def make(policy: Policy, **settings: int) -> Engine:
        engine = KINDS[request.param](policy, **settings)
        engine.update_weights(policy.version, policy)
        return engine

    return make
