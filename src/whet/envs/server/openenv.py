"""OpenEnv 0.10's wire, at `/openenv/NAME`: an episode over a WebSocket, and the Task API at `/openenv`.

OpenEnv's message has no place for what tells `terminated` from `truncated`, nor for the item: both are in `metadata`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from whet.distribution import version
from whet.envs.server.openenv_session import Connection
from whet.envs.server.openenv_shapes import ACTION, OBSERVATION, STATE
from whet.envs.server.requests import answered, body_of, number_in, text_in
from whet.envs.server.served import Served
from whet.envs.server.sessions import Sessions
from whet.envs.wire import WireError
from whet.types import in_brief

PREFIX = "/openenv"
MAX_TASKS = 10_000
"""Tasks of one answer; more are asked for by ranges."""
KINDS = ("train", "validation", "test")
"""What a split can be of. A split of another name is a validation set, as for OpenEnv."""
Answering = Callable[[Served, Mapping[str, Any]], Any]
"""Answers a request by the environment that it names, and its body."""


class OpenEnv:
    """The endpoints. Errors over HTTP are `{"detail": TEXT}`, as OpenEnv's are."""

    def __init__(self, served: Mapping[str, Served], sessions: Sessions) -> None:
        self.served, self.sessions = served, sessions

    def routes(self) -> list[BaseRoute]:
        gets: dict[str, Callable[[Served], Any]] = {
            "health": lambda _: {"status": "healthy"},
            "metadata": _metadata,
            "schema": lambda _: {"action": ACTION, "observation": OBSERVATION, "state": STATE},
            "state": lambda _: {"episode_id": None, "step_count": 0},  # episodes are of connections
            "splits": _splits,
        }
        posts: dict[str, Answering] = {
            "num_tasks": lambda served, body: {"num_tasks": len(_split(served, body))},
            "task": _task,
            "tasks": _tasks,
            "task_range": _tasks,
        }
        place = f"{PREFIX}/{{name}}"
        return [
            Route(f"{PREFIX}/list_environments", self.names, methods=["GET"]),
            WebSocketRoute(f"{place}/ws", self.episodes),
            *(
                Route(f"{place}/{path}", self._endpoint(_bare(answer)), methods=["GET"])
                for path, answer in gets.items()
            ),
            *(Route(f"{place}/{path}", self._endpoint(post), methods=["POST"]) for path, post in posts.items()),
        ]

    async def names(self, _: Request) -> Response:
        return answered(list(self.served))

    async def episodes(self, socket: WebSocket) -> None:
        """An episode after the other in one environment, until the client leaves."""
        served = self.served.get(socket.path_params["name"])
        if served is None:
            await socket.close(4404, "there is no such environment here")
            return
        await Connection(socket, served, self.sessions, secrets.token_hex(16)).run()

    def _endpoint(self, answer: Answering) -> Any:
        async def endpoint(request: Request) -> Response:
            name = request.path_params["name"]
            if name not in self.served:
                return answered({"detail": f"unknown environment {in_brief(name)}"}, 404)
            try:
                body = await body_of(request)
                return answered(await asyncio.to_thread(answer, self.served[name], body))  # splits may be read late
            except WireError as error:
                return answered({"detail": error.message}, error.status)

        return endpoint


def _bare(answer: Callable[[Served], Any]) -> Answering:
    """An answer that needs no body."""
    return lambda served, _: answer(served)


def _metadata(served: Served) -> dict[str, Any]:
    return {"name": served.info.name, "description": served.says, "version": version()}


def _splits(served: Served) -> list[dict[str, str]]:
    return [{"name": name, "type": name if name in KINDS else "validation"} for name in served.splits()]


def _split(served: Served, body: Mapping[str, Any]) -> Sequence[int]:
    return served.split(text_in(body, "split"))


def _task(served: Served, body: Mapping[str, Any]) -> dict[str, Any]:
    items, index = _split(served, body), number_in(body, "index")
    if index >= len(items):
        raise WireError("bad_request", "Invalid task index")
    return {"task": _described(served, body, index, items[index])}


def _tasks(served: Served, body: Mapping[str, Any]) -> dict[str, Any]:
    items = _split(served, body)
    start, stop = (None if body.get(name) is None else number_in(body, name) for name in ("start", "stop"))
    places = range(len(items))[start:stop]
    if len(places) > MAX_TASKS:
        raise WireError("bad_request", f"there are more than {MAX_TASKS:,} tasks: ask for them by /task_range")
    tasks = [_described(served, body, index, items[index]) for index in places]
    return {"tasks": tasks, "env_name": served.info.name}


def _described(served: Served, body: Mapping[str, Any], index: int, item: int) -> dict[str, Any]:
    group = {} if served.info.group is None else {"group": served.info.group(item)}
    return {"split": body["split"], "index": index, "item": item, **group}
