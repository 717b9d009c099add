"""Episodes on an OpenEnv server, over its WebSocket. A connection is a session, so a step is never sent twice."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whet.distribution import how_to_install
from whet.envs.protocol import INVALID, EnvError, Observed, Stepped, begun, stepped
from whet.envs.remote.errors import BadAnswer, Failed, Full, Refused, RemoteError, TooSlow, Unreachable
from whet.envs.remote.transport import FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_BYTES, Server, token
from whet.envs.wire import info_of_json
from whet.types import in_brief, shortened

logger = logging.getLogger(__name__)
CLOSE_S = 2.0
MAX_SAID = 300
"""Characters of a server's error that a message quotes."""
FULL = "CAPACITY_REACHED"
NOT_UNDERSTOOD = ("VALIDATION_ERROR", "INVALID_JSON")
"""Errors of a step whose action is no action of this environment. The session goes on."""
NEITHER = "an action here is a JSON object of {names}, and nothing was sent: {said}"


@dataclass(frozen=True, slots=True)
class Part:
    """A split on the server, and the items that stand for it here."""

    split: str | None
    """Its name on the server. None: the server has no splits, and an item is its index."""
    items: range


@dataclass(frozen=True, slots=True)
class Interface:
    """What a server's environment reads and answers."""

    parts: tuple[Part, ...]
    fields: tuple[str, ...]
    """Of an action."""
    text_field: str | None
    """The field that an action's text is put into. None: the text has to be the whole action, as JSON."""

    def place(self, item: int) -> tuple[str | None, int]:
        """The split on the server and the index in it of an item.

        Raises: EnvError where there is no such item.
        """
        for part in self.parts:
            if item in part.items:
                return part.split, item if part.split is None else part.items.index(item)
        raise EnvError(f"there is no item {item} on the server")

    def action(self, text: str) -> dict[str, Any]:
        """The action that a text means.

        Raises: ValueError where it is none. The message answers the agent.
        """
        if self.text_field is not None:
            return {self.text_field: text}
        try:
            action = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(NEITHER.format(names=", ".join(self.fields), said=in_brief(text))) from error
        if not isinstance(action, dict):
            raise ValueError(NEITHER.format(names=", ".join(self.fields), said=in_brief(text)))
        return action


class OpenEnvSession:
    """Resets and steps over one connection. `UserEnvironment` adds the rest of the protocol around it."""

    def __init__(self, server: Server, name: str, interface: Interface) -> None:
        self._server, self._name, self._interface = server, name, interface
        self._socket: Any = None
        self._connection = contextlib.ExitStack()
        """Closes the socket."""
        self.tells_item: bool | None = None
        """Whether the answer of the latest reset says which item it begins. None: there was none."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._server, self._name, self._interface)

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        split, index = self._interface.place(item)
        asked: dict[str, Any] = {"seed": seed, "index": index}
        if split is not None:
            asked["split"] = split
        data = self._begun({"type": "reset", "data": asked})
        told = {**_metadata(data), **_metadata(data.get("observation"))}
        answered = {key: told[key] for key in ("split", "index") if key in told and key in asked}
        self.tells_item = "index" in answered
        if any(told_value != asked[key] for key, told_value in answered.items()):
            self.close()
            raise BadAnswer(f"{self._server.url} was asked for {asked} of {self._name}, and begins {answered}")
        with self._checked():
            return begun((_text(data.get("observation")), _info(told)))

    def step(self, action: str) -> Stepped:
        if self._socket is None:
            raise Unreachable(f"the connection with {self._server.url} is gone, and the episode with it")
        try:
            message = {"type": "step", "data": self._interface.action(action)}
        except ValueError as error:
            return str(error), 0.0, False, False, {INVALID: True}
        data = self._answer(message)
        if data.get("code") in NOT_UNDERSTOOD:
            return shortened(str(data.get("message")), MAX_SAID), 0.0, False, False, {INVALID: True}
        self._fine(data)
        with self._checked():
            told = {**_metadata(data), **_metadata(data.get("observation"))}
            done = data["done"]
            if isinstance(done, str) or done not in (True, False):
                raise ValueError(f"done has to be true or false, and is {in_brief(done)}")
            truncated = told.get("truncated", False)
            terminated = told.get("terminated", done and not truncated)
            if bool(done) != bool(terminated or truncated):
                raise ValueError(f"done is {done}, terminated {terminated} and truncated {truncated}")
            reward = data.get("reward")
            if reward is None or isinstance(reward, bool):  # OpenEnv allows these too
                reward = float(reward or False)
            return stepped((_text(data.get("observation")), reward, terminated, truncated, _info(told)))

    def close(self) -> None:
        self._socket = None
        with contextlib.suppress(Exception):  # it is gone either way
            self._connection.close()

    # --- the connection -----------------------------------------------------------------------------------------------

    def _begun(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a reset, over the connection at hand or a new one. A full server is waited for.

        Raises: RemoteError.
        """
        until, pause_s, is_old = time.monotonic() + self._server.limits.wait_s, FIRST_PAUSE_S, self._socket is not None
        while True:
            if self._socket is None:
                self._socket = self._connected()
            try:
                data = self._answer(message)
            except Unreachable:
                if not is_old:  # an old connection may be cut between two episodes; nothing of it is needed
                    raise
                is_old = False
                continue
            if data.get("code") != FULL:
                self._fine(data)
                return data
            self.close()
            if time.monotonic() + pause_s > until:
                raise Full(
                    f"{self._server.url} is full, and was waited for {self._server.limits.wait_s:g} s (wait_s): lower "
                    "pool.capacity, or let the server hold more sessions"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _connected(self) -> Any:
        client, exceptions = _websockets()
        url = f"ws{self._server.url.removeprefix('http')}/ws"
        headers = {"Authorization": f"Bearer {held}"} if (held := token()) is not None else None
        try:
            return self._connection.enter_context(
                client.connect(
                    url,
                    additional_headers=headers,
                    open_timeout=self._server.limits.connect_s,
                    close_timeout=CLOSE_S,
                    max_size=MAX_BYTES,
                )
            )
        except exceptions.InvalidStatus as error:
            raise Refused(f"{url} answers {error.response.status_code}: is it an OpenEnv server?") from error
        except (OSError, exceptions.WebSocketException) as error:
            raise Unreachable(f"no connection with {url}: {str(error)[:200]}; is its server up?") from error

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The data of the server's answer: an observation's, or an error's with its `code`.

        Raises: RemoteError. The connection is closed then.
        """
        _, exceptions = _websockets()
        limit_s = self._server.limits.timeout_s
        try:
            with contextlib.suppress(exceptions.ConnectionClosed):  # a full server says so, and closes
                self._socket.send(json.dumps(message))
            text = self._socket.recv(timeout=limit_s)
        except TimeoutError as error:
            self.close()
            raise TooSlow(f"{self._server.url} did not answer within {limit_s:g} s (timeout_s)") from error
        except (OSError, exceptions.WebSocketException) as error:
            self.close()
            raise Unreachable(f"the connection with {self._server.url} was cut: {str(error)[:200]}") from error
        with self._checked():
            answer = json.loads(text)
            kind, data = answer["type"], answer["data"]
            if kind not in ("observation", "error") or not isinstance(data, dict):
                raise ValueError(f"an answer of the type {in_brief(kind)}")
            # Whatever a server says as the code of an error, it is one: its reward never counts.
            return {**data, "code": str(data.get("code", ""))[:60] if kind == "error" else None}

    def _fine(self, data: Mapping[str, Any]) -> None:
        """Raises: Failed where the answer is an error."""
        if data["code"] is not None:
            self.close()
            said = shortened(str(data.get("message")), MAX_SAID)
            raise Failed(f"{self._server.url} could not go on with {self._name} ({data['code']}): {said}")

    @contextlib.contextmanager
    def _checked(self) -> Any:
        """Raises: BadAnswer where an answer lacks what it should have. The connection is closed then."""
        try:
            yield
        except RemoteError:
            raise
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            self.close()
            problem = f"there is no {error}" if isinstance(error, LookupError) else str(error)
            raise BadAnswer(f"{self._server.url} breaks the protocol of {self._name}: {problem}") from error


def _metadata(data: Any) -> Mapping[str, Any]:
    metadata = data.get("metadata") if isinstance(data, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _info(told: Mapping[str, Any]) -> dict[str, Any]:
    """The environment's info, which whet's server puts into the metadata."""
    info = told.get("info")
    return info_of_json(info) if isinstance(info, dict) else {}


def _text(observation: Any) -> str:
    """An observation as the agent reads it: its one text, or else all of it, as JSON."""
    if not isinstance(observation, dict):
        raise TypeError(f"an observation has to be an object, and is {in_brief(observation)}")
    shown = {name: value for name, value in observation.items() if name not in ("metadata", "reward", "done")}
    texts = [value for value in shown.values() if isinstance(value, str)]
    return texts[0] if len(texts) == len(shown) == 1 else json.dumps(shown, ensure_ascii=False)


def _websockets() -> tuple[Any, Any]:
    """The client and the exceptions of `websockets`."""
    try:
        from websockets import exceptions
        from websockets.sync import client
    except ImportError as error:
        raise EnvError(f"OpenEnv servers need websockets: {how_to_install('remote')}") from error
    return client, exceptions
