"""A connection of OpenEnv's WebSocket, which is a session with an environment of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from whet.envs.server.openenv_shapes import SocketError, observed
from whet.envs.server.requests import number_in, text_in
from whet.envs.server.served import Served
from whet.envs.server.session import Session
from whet.envs.server.sessions import Sessions
from whet.envs.wire import WireError, encoded
from whet.types import in_brief

FATAL = ("env_error", "timeout", "expired", "unknown_session")
"""Errors after which there is no session any more."""


class Connection:
    """Answers one client's messages in turn."""

    def __init__(self, socket: WebSocket, served: Served, sessions: Sessions, id: str) -> None:
        self.socket, self.served, self.sessions, self.id = socket, served, sessions, id
        self.session: Session
        self.episode_id: str | None = None
        self.about: dict[str, Any] = {}
        """The item of the present episode."""

    async def run(self) -> None:
        await self.socket.accept()
        try:
            self.session = await self._created()
            self.session.when_expired = self._expire
            while (text := await self._received()) is not None:
                try:
                    answer = await self._answer(text)
                except SocketError as error:
                    await self._send(error.as_json())
                    if error.is_last:
                        break
                    continue
                if answer is None:
                    break
                await self._send(answer)
        except SocketError as error:
            await self._send(error.as_json())
        except WebSocketDisconnect:
            pass
        finally:
            await self.sessions.close(self.id)
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the client has closed it
                await self.socket.close()

    async def _created(self) -> Session:
        try:
            return await self.sessions.create(self.served, self.served.settings, id=self.id)
        except WireError as error:
            if error.code != "full":
                raise SocketError("FACTORY_ERROR", error.message, factory_name=self.served.info.name) from error
            counts = {"active_sessions": self.sessions.num_held, "max_sessions": self.sessions.capacity}
            raise SocketError("CAPACITY_REACHED", error.message, **counts) from error

    async def _received(self) -> str | None:
        message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        return text if text is not None else message["bytes"].decode(errors="replace")

    async def _send(self, message: dict[str, Any]) -> None:
        await self.socket.send({"type": "websocket.send", "text": encoded(message).decode()})

    async def _answer(self, text: str) -> dict[str, Any] | None:
        """The answer to a message. None: the client closes the session."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SocketError("INVALID_JSON", f"Invalid JSON: {in_brief(error)}") from error
        if not isinstance(message, dict):
            raise SocketError.of_field("message", "has to be an object")
        match message.get("type"):
            case "reset":
                return await self._reset(_data(message))
            case "step":
                return await self._step(_data(message))
            case "state":
                return self._state()
            case "close":
                return None
            case other:
                raise SocketError("UNKNOWN_TYPE", f"Unknown message type: {in_brief(other)}")

    async def _reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Begins `index` of `split`. Without an index, the seed chooses it."""
        seed = _number(data, "seed", 0)
        episode_id = data.get("episode_id")
        if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= 255):
            raise SocketError.of_field("episode_id", "has to be a text of at most 255 characters")
        split = data.get("split", "train")
        if not isinstance(split, str):
            raise SocketError.of_field("split", "has to be a text")
        try:
            items = await asyncio.to_thread(self.served.split, split)  # they may be read from a file now
            index = seed % len(items) if data.get("index") is None else _number(data, "index", 0)
            if index >= len(items):
                raise WireError("bad_request", f"the split {split!r} has {len(items):,} items, from 0 on: no {index}")
            answer = await self.sessions.reset(self.session, items[index], seed)
        except WireError as error:
            raise _of_wire(error) from error
        self.episode_id = episode_id
        self.about = {"split": split, "index": index, "item": items[index], "seed": seed}
        return observed(answer, self.about)

    async def _step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if unknown := [name for name in data if name not in ("text", "metadata")]:
            raise SocketError.of_field(unknown[0], "is no field of an action, which has `text` alone")
        try:
            action = text_in(data, "text")
        except WireError as error:
            raise SocketError.of_field("text", "has to be a text of whole characters") from error
        try:
            return observed(await self.sessions.step(self.session, action), self.about)
        except WireError as error:
            raise _of_wire(error) from error

    def _state(self) -> dict[str, Any]:
        turn = self.session.latest.turn if self.session.latest is not None else 0
        return {"type": "state", "data": {"episode_id": self.episode_id, "step_count": turn, **self.about}}

    def _expire(self) -> None:
        async def say_goodbye() -> None:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await self._send(SocketError("SESSION_ERROR", "the session had no message for too long").as_json())
                await self.socket.close()

        self._goodbye = asyncio.create_task(say_goodbye())  # kept, or the loop would lose it


def _of_wire(error: WireError) -> SocketError:
    return SocketError("SESSION_ERROR" if error.code in FATAL else "EXECUTION_ERROR", error.message)


def _data(message: Mapping[str, Any]) -> Mapping[str, Any]:
    data = message.get("data", {} if message["type"] == "reset" else None)
    if not isinstance(data, dict):
        raise SocketError.of_field("data", "has to be an object")
    return data


def _number(data: Mapping[str, Any], name: str, default: int) -> int:
    try:
        return default if data.get(name) is None else number_in(data, name)
    except WireError as error:
        raise SocketError.of_field(name, "has to be a whole number from 0") from error
