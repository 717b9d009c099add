"""The server's scheduler with engines that hold copies of the weights, and that may fail a request."""

from __future__ import annotations

import asyncio

import pytest

from support.remote_engine import RemoteEngine, make_engines_remote
from whet.config.parts import EngineConfig
from whet.engines.local import LocalEngine
from whet.serve.scheduler import Event, Scheduler
from whet.serve.schemas import ApiError
from whet.types import Completion, Failure, Request, Sampling

REQUEST = Request(context=(5, 6, 7), sampling=Sampling(max_new_tokens=6), seed=3)


async def events_of(policies, settings) -> tuple[int, list[Event]]:
    """Requests that may be in work at one time, and what one of them gets."""
    scheduler = Scheduler(policies, settings)
    await scheduler.start()
    try:
        return scheduler.max_rows, [event async for event in scheduler.events("policy", REQUEST, tokens=True)]
    finally:
        await asyncio.to_thread(scheduler.close)


def test_replies_and_room_are_the_engines(random_policy, monkeypatch):
    made = make_engines_remote(monkeypatch)
    max_rows, events = asyncio.run(events_of({"policy": random_policy}, EngineConfig(max_rows=3)))
    [own] = LocalEngine(random_policy).generate([REQUEST])
    *tokens, done = events
    assert isinstance(done, Completion)
    assert done.tokens == own.tokens == tuple(token.id for token in tokens)
    assert (max_rows, [engine.version for engine in made]) == (3, [0])


def test_a_request_that_its_engine_fails_is_answered_by_an_error(random_policy, monkeypatch):
    make_engines_remote(monkeypatch)
    advance = RemoteEngine.advance

    def fails(self: RemoteEngine, *, wait: bool = False):
        failure = Failure(kind="endpoint_error", reason="the connection is gone")
        return [(ticket, failure) for ticket, _ in advance(self, wait=wait)]

    monkeypatch.setattr(RemoteEngine, "advance", fails)
    with pytest.raises(ApiError, match="the engine failed: the connection is gone") as error:
        asyncio.run(events_of({"policy": random_policy}, EngineConfig()))
    assert (error.value.status, error.value.code) == (503, "engine_failed")
