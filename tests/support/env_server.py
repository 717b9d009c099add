"""A server of environments in a thread of this process, and environments that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from whet.envs import EnvironmentInfo
from whet.envs.server.app import app_of
from whet.envs.server.served import Served, served_environments
from whet.envs.server.sessions import Sessions
from whet.envs.user_environment import UserEnvironment
from whet.web.http import protocol

SPLITS = {"train": range(6), "test": range(6, 9)}


class Wild:
    """Does what its action says: hang, break, cheat, exit, ... Anything else is answered."""

    closed: list[int] = []  # noqa: RUF012 - shared on purpose: the items whose environments were closed

    def reset(self, item, *, seed=0):
        self.item = item
        return f"item {item}, seed {seed}", {"actions": ("hang", "break")}

    def step(self, action):
        if action == "hang":
            time.sleep(1.5)
        if action == "slow":
            time.sleep(0.3)
        if action == "break":
            raise RuntimeError("the game broke")
        if action == "exit":
            raise SystemExit(3)
        if action == "cheat":
            return "too much", 7.0, False, False, {}
        if action == "end":
            return "over", 0.25, True, False, {}
        return action.upper(), 1 / 64, False, False, {}

    def close(self):
        type(self).closed.append(self.item)


class Late(Wild):
    """The same by coroutines."""

    async def reset(self, item, *, seed=0):
        await asyncio.sleep(0)
        return Wild.reset(self, item, seed=seed)

    async def step(self, action):
        await asyncio.sleep(0.01)
        return Wild.step(self, action)


def wild(kind: type = Wild, name: str = "wild") -> Served:
    info = EnvironmentInfo(
        name=name,
        make=lambda: UserEnvironment(kind, name=name, splits=lambda: SPLITS),
        splits=lambda: SPLITS,
        rules="Do as you like.",
        max_turns=9,
    )
    return Served(info, "an environment that misbehaves", False, {})


@contextmanager
def env_server(*names: str, more: Mapping[str, Served] | None = None, token: str | None = None, **settings: Any):
    """The address of a server, and its sessions. `more` are further environments; `settings` are of `Sessions`."""
    max_body_bytes = settings.pop("max_body_bytes", 2_000_000)
    own = settings.pop("own", None)
    served = {**(served_environments(names, own) if names else {}), **(more or {})}
    sessions = Sessions(**settings)
    app = app_of(served, sessions, token=token, max_body_bytes=max_body_bytes)
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # or asyncio leaves its delay on: 40 ms a request
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", http=protocol(), ws="websockets-sansio", ws_max_size=max_body_bytes)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", sessions
    finally:
        server.should_exit = True
        thread.join(20)


class Wire:
    """A plain client of `/v1`."""

    def __init__(self, address: str, **headers: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=30, headers=headers)

    def post(self, path: str, **body: Any) -> Any:
        """The answer, or (status, code) of an error."""
        return self._read(self.http.post(f"/v1/{path}", json=body))

    def get(self, path: str, **query: Any) -> Any:
        return self._read(self.http.get(f"/v1/{path}", params=query))

    def begin(self, env: str, item: int = 0, seed: int = 0, **more: Any) -> str:
        """A session in which an episode has begun."""
        id = self.post("create", env=env, **more)["id"]
        assert self.post("reset", id=id, item=item, seed=seed)["turn"] == 0
        return id

    @staticmethod
    def _read(answer: httpx.Response) -> Any:
        data = answer.json()
        if answer.status_code == 200:
            return data
        assert set(data) == {"error"}
        assert set(data["error"]) == {"code", "message"}
        return answer.status_code, data["error"]["code"]


def until(is_so: Any, seconds: float = 5.0) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


def steps_of(answers: list[Any]) -> Iterator[tuple[Any, ...]]:
    for answer in answers:
        yield tuple(answer[name] for name in ("observation", "reward", "terminated", "truncated", "info"))
