"""An environment on whet's own server (`whet env serve`), over the wire of `whet.envs.wire`.

Every request may go again after a cut connection, as the server knows it: a session by its key, a step by its turn.
So an episode over the wire is the one in process, to the bit.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Hashable, Mapping
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

from whet.envs.protocol import EnvError, Observed, Stepped
from whet.envs.remote.errors import BadAnswer, Failed, Full, Lost, Refused, RemoteError, TooSlow
from whet.envs.remote.transport import TOKEN, Server
from whet.envs.wire import PREFIX, Answer, WireError

BUSY_S = 0.05
"""Seconds before a session is asked again that is still at work on the request whose connection was cut."""
CLOSE_S = 5.0
"""Seconds that the server has to close a session. It closes the others itself, by their leases."""
MAX_ID_CHARS = 200
ERRORS: Mapping[str, type[RemoteError]] = {
    "unknown_session": Lost,
    "expired": Lost,
    "env_error": Failed,
    "server_error": Failed,
    "timeout": TooSlow,
    "too_slow": TooSlow,
    "full": Full,
    "out_of_order": BadAnswer,
}
"""The failures that codes mean. All other codes: the server refuses."""
CLOSED = (Failed, TooSlow, Lost)
"""Failures after which the server has closed the session, or will by its lease."""


def ask(server: Server, path: str, body: Mapping[str, Any] | None = None, **how: Any) -> Any:
    """The answer of whet's server to a request that may go again.

    Args:
        how: as in `Server.ask`.
    Raises: RemoteError.
    """
    until = time.monotonic() + server.limits.timeout_s
    while True:
        reply = server.ask(f"{PREFIX}{path}", body, repeats=True, **how)
        if reply.status == 200:
            return reply.data
        try:
            error = WireError.of_json(reply.data)
        except ValueError as problem:
            raise BadAnswer(
                f"{server.url}{PREFIX}{path} answers {reply.status}, and {problem}: is it the address of a whet server?"
            ) from problem
        if error.code != "busy" or time.monotonic() > until:
            hint = f" (set {TOKEN} to the server's token)" if error.code == "unauthorized" else ""
            raise ERRORS.get(error.code, Refused)(f"{server.url}: {error.message}{hint}")
        time.sleep(BUSY_S)


class V1Environment:
    """One session on the server. It is made at the first reset, and anew where the server has lost it meanwhile.

    It pickles as one that has not begun.

    Args:
        name: of the environment on the server.
        settings: of the environment.
    """

    def __init__(self, server: Server, name: str, settings: Mapping[str, Any] | None = None) -> None:
        self._server, self._name, self._settings = server, name, dict(settings or {})
        self._id: str | None = None
        self._has_states = False
        """Whether the server sends digests of states, which costs it time: from the first `state_key` on."""
        self._latest: Answer | None = None
        """Of the episode that goes on or has ended. None: none has begun."""
        self._start = (0, 0)
        """Item and seed of the episode."""
        self._said: list[tuple[str, str]] = []
        """Its actions, each with the observation that answered it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._server, self._name, self._settings)

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        self._latest, self._start, self._said = None, (item, seed), []
        is_old = self._id is not None
        try:
            answer = self._begun(item, seed)
        except Lost:
            if not is_old:  # an old session may be lost between two episodes; nothing of it is needed
                raise
            answer = self._begun(item, seed)
        return answer.observation, answer.info

    def step(self, action: str) -> Stepped:
        if self._latest is None or self._latest.is_over:
            raise EnvError(f"this episode of {self._name} has not begun or has ended: call reset(item) first")
        turn = self._latest.turn + 1
        self._latest = self._answered("/step", {"id": self._id, "action": action, "turn": turn}, turn)
        self._said.append((action, self._latest.observation))
        return self._latest.as_stepped

    def state_key(self) -> Hashable:
        """The server's digest of the state. The first call of an environment repeats its episode in a new session."""
        if self._latest is None:
            return None
        if not self._has_states:
            self._repeat_with_states()
        if self._latest.state is None:
            raise BadAnswer(f"{self._server.url} was asked for states of {self._name}, and sends none")
        return self._latest.state

    def fork(self) -> Self:
        other = type(self)(self._server, self._name, self._settings)
        if self._latest is not None:
            other._id = self._id_of(ask(self._server, "/fork", {"id": self._id}))
            other._has_states, other._latest = self._has_states, self._latest
            other._start, other._said = self._start, [*self._said]
        return other

    def close(self) -> None:
        session, self._id, self._latest = self._id, None, None
        if session is not None:
            with contextlib.suppress(RemoteError):  # its lease ends it
                ask(self._server, "/close", {"id": session}, timeout_s=min(CLOSE_S, self._server.limits.timeout_s))

    def _repeat_with_states(self) -> None:
        """Raises: Failed where the same actions are answered otherwise; RemoteError."""
        (item, seed), said = self._start, self._said
        self.close()
        self._has_states = True
        self.reset(item, seed=seed)
        for turn, (action, observation) in enumerate(said, start=1):
            if self.step(action)[0] != observation:
                self.close()
                raise Failed(f"{self._name} on {self._server.url} does not repeat: turn {turn} says something else")

    def _begun(self, item: int, seed: int) -> Answer:
        if self._id is None:
            body = {"env": self._name, "settings": self._settings, "key": uuid4().hex, "states": self._has_states}
            self._id = self._id_of(ask(self._server, "/create", body, waits=True))
        self._latest = self._answered("/reset", {"id": self._id, "item": item, "seed": seed}, 0)
        return self._latest

    def _answered(self, path: str, body: Mapping[str, Any], turn: int) -> Answer:
        """The checked answer. After a failure no episode goes on, and the session is not used again.

        Raises: RemoteError.
        """
        self._latest = None
        try:
            answer = Answer.of_json(ask(self._server, path, body))
            if answer.turn != turn:
                raise ValueError(f"it is of turn {answer.turn}, and turn {turn} was asked for")
        except ValueError as error:
            self.close()
            raise BadAnswer(f"{self._server.url} breaks the protocol of {self._name}: {error}") from error
        except CLOSED:
            self._id = None
            raise
        return answer

    def _id_of(self, data: Any) -> str:
        session = data.get("id") if isinstance(data, dict) else None
        if not isinstance(session, str) or not 0 < len(session) <= MAX_ID_CHARS:
            raise BadAnswer(f"{self._server.url} makes a session of {self._name} without an id")
        return session


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as a query parameter.

    Raises: EnvError where JSON cannot hold them.
    """
    try:
        return json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise EnvError(f"the settings of a remote environment have to be JSON: {error}") from error


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
