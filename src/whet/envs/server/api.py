"""The wire `/v1`, which whet's own client speaks: see `envs.wire`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whet.distribution import version
from whet.envs.server.requests import answered, body_of, flag_in, number_in, object_in, table_in, text_in
from whet.envs.server.served import Served
from whet.envs.server.sessions import Session, Sessions
from whet.envs.wire import MAX_BATCH, MAX_KEY_CHARS, PREFIX, Answer, WireError
from whet.types import in_brief

AT_ONCE = 64
"""Steps of quick environments in a batch after which other requests get their turn."""


class Api:
    """The endpoints of `/v1`."""

    def __init__(self, served: Mapping[str, Served], sessions: Sessions) -> None:
        self.served, self.sessions = served, sessions

    def routes(self) -> list[Route]:
        posts = {
            "create": self.create,
            "reset": self.reset,
            "step": self.step,
            "steps": self.steps,
            "fork": self.fork,
            "close": self.close,
        }
        gets = {
            "observe": self.observe,
            "actions": self.actions,
            "info": self.names,
            "info/{name}": self.info,
            "health": self.health,
        }
        return [
            *(Route(f"{PREFIX}/{path}", endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            *(Route(f"{PREFIX}/{path}", endpoint, methods=["GET"]) for path, endpoint in gets.items()),
        ]

    async def create(self, request: Request) -> Response:
        body = await body_of(request)
        served = self._served(text_in(body, "env"))
        key = text_in(body, "key", "")
        if len(key) > MAX_KEY_CHARS:
            raise WireError("bad_request", f"'key' has more than {MAX_KEY_CHARS} characters: send a shorter one")
        settings = served.with_settings(table_in(body, "settings"))
        session = await self.sessions.create(
            served, settings, id=secrets.token_hex(16), key=key, states=flag_in(body, "states")
        )
        return answered(self._lease(session))

    async def reset(self, request: Request) -> Response:
        body = await body_of(request)
        session = self._session(body)
        item, seed = number_in(body, "item"), number_in(body, "seed", 0)
        return answered((await self.sessions.reset(session, item, seed)).as_json())

    async def step(self, request: Request) -> Response:
        return answered((await self._stepped(await body_of(request))).as_json())

    async def steps(self, request: Request) -> Response:
        """Those of one session in their order, those of several sessions at once."""
        steps = (await body_of(request)).get("steps")
        if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_BATCH:
            raise WireError("bad_request", f"'steps' has to be a list of 1 to {MAX_BATCH:,} steps")
        answers: list[dict[str, Any]] = [{}] * len(steps)
        slow: dict[str, list[int]] = {}
        for place, step in enumerate(steps):
            if self._is_slow(step):
                slow.setdefault(step["id"], []).append(place)
                continue
            answers[place] = await self._outcome(step)
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

        async def one_session(places: list[int]) -> None:
            for place in places:
                answers[place] = await self._outcome(steps[place])

        await asyncio.gather(*map(one_session, slow.values()))
        return answered({"answers": answers})

    async def observe(self, request: Request) -> Response:
        return answered(self._session(request.query_params).has_begun().as_json())

    async def actions(self, request: Request) -> Response:
        session = self._session(request.query_params)
        session.has_begun()
        return answered({"actions": None if session.actions is None else list(session.actions)})

    async def fork(self, request: Request) -> Response:
        session = self._session(await body_of(request))
        return answered(self._lease(await self.sessions.fork(session, secrets.token_hex(16))))

    async def close(self, request: Request) -> Response:
        return answered({"closed": await self.sessions.close(text_in(await body_of(request), "id"))})

    async def names(self, _: Request) -> Response:
        return answered({"environments": list(self.served)})

    async def info(self, request: Request) -> Response:
        served = self._served(request.path_params["name"])
        settings = served.with_settings(object_in(request.query_params.get("settings", "{}")))
        return answered(await asyncio.to_thread(served.described, settings))

    async def health(self, _: Request) -> Response:
        sessions = self.sessions
        return answered(
            {
                "status": "ok",
                "version": version(),
                "environments": list(self.served),
                "sessions": sessions.num_held,
                "capacity": sessions.capacity,
                "counts": dict(sessions.counts),
            }
        )

    def _served(self, name: str) -> Served:
        if name not in self.served:
            known = ", ".join(self.served)
            raise WireError("unknown_environment", f"there is no environment {in_brief(name)} here; choose of: {known}")
        return self.served[name]

    def _session(self, body: Mapping[str, Any]) -> Session:
        return self.sessions.get(text_in(body, "id"))

    def _lease(self, session: Session) -> dict[str, Any]:
        return {"id": session.id, "lease_s": self.sessions.lease_s}

    async def _stepped(self, body: Mapping[str, Any]) -> Answer:
        session = self._session(body)
        return await self.sessions.step(session, text_in(body, "action"), number_in(body, "turn"))

    async def _outcome(self, step: Any) -> dict[str, Any]:
        """One answer of a batch, or its error."""
        try:
            if not isinstance(step, dict):
                raise WireError("bad_request", f"a step is {in_brief(step)}: send an object")
            return (await self._stepped(step)).as_json()
        except WireError as error:
            return error.as_json()

    def _is_slow(self, step: Any) -> bool:
        """Whether a step of a batch waits for a thread."""
        id = step.get("id") if isinstance(step, dict) else None
        return isinstance(id, str) and self.sessions.waits(id)
