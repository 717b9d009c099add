"""A server of policies in a thread, as a client sees it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from whet.config.parts import EngineConfig, SamplingConfig
from whet.models.policy import Policy
from whet.serve.app import app_of
from whet.serve.models import ServedPolicies
from whet.tasks.prompts import find_prompts


@contextmanager
def served(cast: ServedPolicies, **settings: Any) -> Iterator[str]:
    """Its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app_of(cast, **settings), log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def only_policies(policies: Mapping[str, Policy], max_new_tokens: int = 8) -> ServedPolicies:
    """These policies without a run: no pipeline, and nothing to read in a critique."""
    limits = {name: SamplingConfig(max_new_tokens=max_new_tokens) for name in policies}
    return ServedPolicies(policies, limits, find_prompts("chains"), lambda text, words: {}, EngineConfig(), (), 0)
