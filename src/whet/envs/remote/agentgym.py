"""An environment on one of AgentGym's servers.

They number their sessions from 0, and a server that was started again gives the same numbers once more. So sessions
from before a cut connection, or before a number came again, are given up: their steps would act in another's episode.
For the same reason a step is never sent twice.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.envs.protocol import EnvError, EnvironmentInfo, Observed, Stepped, begun, stepped
from whet.envs.registry import ENVIRONMENTS
from whet.envs.remote.dialects import DIALECTS, Dialect, Fields
from whet.envs.remote.errors import BadAnswer, Failed, Lost, Refused, RemoteError, TooSlow, Unreachable
from whet.envs.remote.transport import Reply, Server
from whet.envs.user_environment import UserEnvironment
from whet.types import shortened

TIMED_OUT = "TimeoutError"
"""The observation of a WebArena reset that took too long."""
CLOSE_S = 5.0
MAX_ITEM = 2**31
MAX_SAID = 200
"""Characters of a server's error that a message quotes."""


def info_of(server: Server, name: str, splits: Mapping[str, Sequence[int]]) -> EnvironmentInfo:
    """What whet knows of an environment on one of AgentGym's servers.

    Args:
        splits: as settings say. {}: those of whet's own environment of that name.
    Raises: EnvError where the name has no dialect, or whet does not know its items.
    """
    if name not in DIALECTS:
        raise EnvError(f"AgentGym has no server of {name!r}; it has {', '.join(DIALECTS)}")
    dialect = DIALECTS[name]
    known = ENVIRONMENTS.get(name) if name in ENVIRONMENTS else None
    has_our_items = known is not None and not dialect.has_other_items
    splits = splits or dialect.splits or (known.splits() if known is not None and has_our_items else {})
    if not splits:
        raise EnvError(
            f"whet does not know the items of {name}: give data.env.{name}.splits, such as "
            "{train: [0, 80], test: [80, 100]}"
        )
    make = partial(_make, server, name)
    get_splits: Callable[[], dict[str, Sequence[int]]] = partial(dict, splits)
    if known is None:
        return EnvironmentInfo(
            name=name,
            make=make,
            splits=get_splits,
            rules="",
            max_turns=20,
            item_ids={name: ""},
            parser=dialect.parser,
        )
    group = known.group if has_our_items and not dialect.splits else dialect.group
    return replace(known, make=make, splits=get_splits, group=group, needs="", expert=None, plan=None, of_settings=None)


def _make(server: Server, name: str) -> UserEnvironment:
    return UserEnvironment(partial(AgentGymSession, server, name), name=name, splits=_any_item)


def _any_item() -> Mapping[str, Sequence[int]]:
    """Lists of published items go beyond the splits: the server says which there are."""
    return {"published": range(MAX_ITEM)}


class _Sessions:
    """The numbers that this process holds at one server, and how often it was seen to begin anew."""

    def __init__(self) -> None:
        self.generation = 0
        self._numbers: set[int] = set()
        self._lock = threading.Lock()

    def add(self, number: int) -> int:
        """The generation of a new session. A number that is held already means that the server was started again."""
        with self._lock:
            if number in self._numbers:
                self.generation += 1
                self._numbers.clear()
            self._numbers.add(number)
            return self.generation

    def remove(self, number: int, generation: int) -> None:
        with self._lock:
            if generation == self.generation:
                self._numbers.discard(number)

    def give_up(self) -> None:
        """All sessions: a connection was cut, and the server may have been started again."""
        with self._lock:
            self.generation += 1
            self._numbers.clear()


_held: dict[str, _Sessions] = {}
"""By address."""
_held_lock = threading.Lock()


def _sessions_at(url: str) -> _Sessions:
    with _held_lock:
        return _held.setdefault(url, _Sessions())


class AgentGymSession:
    """Resets and steps of one session. `UserEnvironment` adds the rest of the protocol around it."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name
        self._number: int | None = None
        self._generation = 0
        self._total = 0.0
        """Of this episode, where the server tells running totals."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._server, self._name)

    @property
    def _dialect(self) -> Dialect:
        return DIALECTS[self._name]

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """`seed` changes nothing: these servers take none."""
        if self._number is None or not self._is_held:
            self._create()
        dialect = self._dialect
        answer = self._asked("/reset", {dialect.item_key: item, **dialect.reset})
        self._total = 0.0
        with self._checked():
            text = self._observation() if dialect.first is None else dialect.first(answer)
            if text == TIMED_OUT:
                raise TooSlow(f"{self._server.url} could not begin item {item} of {self._name} in time")
            return begun((text, {}))

    def step(self, action: str) -> Stepped:
        dialect = self._dialect
        if self._number is None or not self._is_held:
            raise Lost(f"the session at {self._server.url} is given up, as its server may have been started again")
        answer = self._asked("/step", {"action": dialect.action(action)})
        with self._checked():
            terminated, truncated = (
                (answer["terminated"], answer["truncated"]) if dialect.has_flags else (answer["done"], False)
            )
            reward = answer[dialect.reward_key] if terminated or not dialect.has_flags else 0.0
            text, reward, terminated, truncated, _ = stepped(
                (answer[dialect.text_key], reward, terminated, truncated, {})
            )
            if dialect.is_running_total:
                reward, self._total = reward - self._total, reward
            return text, reward, terminated, truncated, {}

    def close(self) -> None:
        number, self._number = self._number, None
        if number is None or not self._is_held:
            return
        _sessions_at(self._server.url).remove(number, self._generation)
        with contextlib.suppress(RemoteError):  # most of these servers have no /close, and answer 404
            self._server.ask("/close", {self._dialect.id_key: number}, timeout_s=CLOSE_S)

    @property
    def _is_held(self) -> bool:
        return self._generation == _sessions_at(self._server.url).generation

    def _create(self) -> None:
        sessions = _sessions_at(self._server.url)
        try:
            reply = self._server.ask("/create", self._dialect.create, waits=True)
        except Unreachable:
            sessions.give_up()
            raise
        data = self._fine(reply, "/create")
        number = data.get("id", data.get("env_idx")) if isinstance(data, dict) else data
        if type(number) is not int or number < 0:
            raise BadAnswer(f"{self._server.url}/create gives no number of a session: {shortened(str(data), MAX_SAID)}")
        self._number, self._generation = number, sessions.add(number)

    def _observation(self) -> Any:
        params = {self._dialect.id_key: self._number}
        data = self._fine(self._server.ask("/observation", params=params, is_get=True), "/observation")
        return data.get("observation") if isinstance(data, dict) else data

    def _asked(self, path: str, body: Fields) -> Any:
        """The answer to a request of this session, which is sent once.

        Raises: RemoteError. Lost, where the server may have been started again meanwhile.
        """
        sessions, generation = _sessions_at(self._server.url), self._generation
        try:
            reply = self._server.ask(path, {self._dialect.id_key: self._number, **body})
        except Unreachable:
            sessions.give_up()
            raise
        if sessions.generation != generation:
            raise Lost(f"{self._server.url} was started again during a request: its answer may be of another episode")
        return self._fine(reply, path)

    def _fine(self, reply: Reply, path: str) -> Any:
        """Raises: RemoteError where the answer is an error, with any status: some errors come with 200."""
        where, data = f"{self._server.url}{path}", reply.data
        said = data.get("error", data.get("detail")) if isinstance(data, dict) else None
        if reply.status in (401, 403, 404, 405, 422):
            raise Refused(
                f"{where} answers {reply.status} ({shortened(str(said), MAX_SAID)}): is it AgentGym's server of "
                f"{self._name}?"
            )
        if reply.status in (502, 504):  # a proxy's, before a server that is gone
            _sessions_at(self._server.url).give_up()
        if reply.status != 200 or (isinstance(data, dict) and "error" in data):
            raise Failed(f"{where} answers {reply.status}: {shortened(str(said), MAX_SAID)}")
        return data

    @contextlib.contextmanager
    def _checked(self) -> Any:
        """Raises: BadAnswer where the answer lacks what it should have. The session is closed then."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self.close()
            problem = f"there is no {error}" if isinstance(error, LookupError) else str(error)
            raise BadAnswer(f"{self._server.url} breaks the protocol of {self._name}: {problem}") from error
