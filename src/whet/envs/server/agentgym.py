"""AgentGym's published servers, at `/agentgym/NAME`, for the authors' clients. What each answers is in `dialects`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whet.envs.protocol import EnvError
from whet.envs.server.dialect import Dialect
from whet.envs.server.dialects import DIALECTS, OTHERS
from whet.envs.server.requests import answered, body_of, text_in
from whet.envs.server.served import Served
from whet.envs.server.session import Session
from whet.envs.server.sessions import Sessions
from whet.envs.wire import MAX_SEED, RETRY_AFTER_S, WireError
from whet.types import in_brief


class AgentGym:
    """The endpoints. Errors are answered with status 200 and `{"error": TEXT}`, as the published servers do."""

    def __init__(self, served: Mapping[str, Served], sessions: Sessions) -> None:
        self.served, self.sessions = served, sessions
        self._num_created: Counter[str] = Counter()
        """By environment. Ids count up from 0, and none is used twice."""

    def routes(self) -> list[Route]:
        return [
            Route("/agentgym/{name}", self.answer, methods=["GET"]),
            Route("/agentgym/{name}/{path:path}", self.answer, methods=["GET", "POST"]),
        ]

    async def answer(self, request: Request) -> Response:
        name, path = request.path_params["name"], request.path_params.get("path", "")
        served = self.served.get(name)
        if served is None:
            known = ", ".join(self.served)
            raise WireError("unknown_environment", f"there is no environment {in_brief(name)} here; choose of: {known}")
        dialect = DIALECTS.get(name, OTHERS)
        place = _Place(self, served, dialect)
        try:
            return answered(await place.answer(request, path))
        except WireError as error:
            if error.code == "unknown_url":
                raise
            status = {"full": 503, "bad_request": 422}.get(error.code, dialect.error_status)
            response = answered({"error": error.message}, status)
            if status == 503:
                response.headers["Retry-After"] = str(RETRY_AFTER_S)
            return response

    def next_id(self, name: str) -> int:
        self._num_created[name] += 1
        return self._num_created[name] - 1

    def open_ids(self, name: str) -> list[int]:
        """The ids of an environment's sessions that are open, in the order of their creation."""
        return [id for id in range(self._num_created[name]) if self.sessions.is_open(f"agentgym/{name}/{id}")]

    def was_given(self, name: str, id: int) -> bool:
        return id < self._num_created[name]


class _Place:
    """One environment, as its published server."""

    def __init__(self, gym: AgentGym, served: Served, dialect: Dialect) -> None:
        self.gym, self.sessions = gym, gym.sessions
        self.served, self.dialect, self.name = served, dialect, served.info.name

    async def answer(self, request: Request, path: str) -> Any:
        if request.method == "POST":
            posts = {"create": self.create, "reset": self.reset, "step": self.step, "close": self.close}
            if path in posts:
                return await posts[path](await body_of(request))
        elif not path:
            return f"This is environment {self.name}."
        elif path in self.dialect.lists:
            return self.dialect.lists[path]
        elif path == "list_envs" and self.dialect.lists_ids:
            return self.gym.open_ids(self.name)
        elif path in ("observation", "detail") or path in self.dialect.questions:
            id, session = self._session(request.query_params)
            self._check_under_way(id, session)
            return await self._asked(session, path)
        raise WireError("unknown_url", f"AgentGym's server of {self.name} has no {request.method} /{path} here")

    async def create(self, body: Mapping[str, Any]) -> Any:
        id = self.gym.next_id(self.name)
        number = _whole(self.dialect.item_key, self.dialect.first_number(id, body))
        session = await self.sessions.create(self.served, self.served.settings, id=f"agentgym/{self.name}/{id}")
        session.notes |= self.dialect.created()
        if not self.dialect.begins_at_create:
            return self.dialect.opened(id, None)
        return self.dialect.opened(id, await self._begun(id, session, number))

    async def reset(self, body: Mapping[str, Any]) -> Any:
        id, session = self._session(body)
        default = session.notes.get("number", 0) if self.dialect.begins_at_create else None
        given = body.get(self.dialect.item_key)
        return await self._begun(id, session, _whole(self.dialect.item_key, default if given is None else given))

    async def step(self, body: Mapping[str, Any]) -> Any:
        id, session = self._session(body)
        action = text_in(body, "action")
        self._check_under_way(id, session)
        if session.latest is not None and session.latest.is_over:
            raise WireError("has_ended", f"The task with environment {id} has finished.")
        answer = await self.sessions.step(session, action)
        payload = self.dialect.stepped(session, answer)
        session.notes |= self.dialect.known(session, payload)
        return payload

    async def close(self, body: Mapping[str, Any]) -> bool:
        return await self.sessions.close(f"agentgym/{self.name}/{self._id(body)}")

    async def _begun(self, id: int, session: Session, number: int) -> Any:
        try:
            item = self.dialect.item(number, session)
        except EnvError as error:  # nothing has happened to the environment
            raise WireError("env_error", str(error)) from error
        answer = await self.sessions.reset(session, item, 0)
        payload = self.dialect.begun(id, number, session, answer)
        session.notes |= {"deleted": False, **self.dialect.known(session, payload)}
        return payload

    async def _asked(self, session: Session, path: str) -> Any:
        if path == "detail":
            return self.dialect.detail(session)
        if path in self.dialect.questions:
            return await self.sessions.call(session, lambda: self.dialect.questions[path](session.made))
        session.has_begun()
        return self.dialect.observation(session)

    def _session(self, body: Mapping[str, Any]) -> tuple[int, Session]:
        id = self._id(body)
        try:
            return id, self.sessions.get(f"agentgym/{self.name}/{id}")
        except WireError as error:
            is_told = error.code == "expired" or (self.dialect.keeps_closed and self.gym.was_given(self.name, id))
            message = f"The task with environment {id} has been deleted." if is_told else f"The id {id} is not valid."
            raise WireError(error.code, message) from error

    def _id(self, body: Mapping[str, Any]) -> int:
        return _whole(self.dialect.id_key, body.get(self.dialect.id_key))

    def _check_under_way(self, id: int, session: Session) -> None:
        if self.dialect.keeps_done and session.notes["done"]:
            raise WireError("has_ended", f"The task with environment {id} has finished.")


def _whole(name: str, value: Any) -> int:
    """A number from 0, also as digits: queries hold texts, and the published servers read those as numbers."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if type(value) is not int or not 0 <= value < MAX_SEED:
        raise WireError("bad_request", f"{name!r} is {in_brief(value)}: send a whole number from 0")
    return value
