"""Sessions: environments lent to clients, one call at a time, until they are closed or their lease runs out."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.envs.protocol import ACTIONS, Environment, EnvironmentInfo, Stepped, begun, stepped
from whet.envs.retries import CLOSE_S
from whet.envs.server.calls import Late, Thread
from whet.envs.server.served import Served
from whet.envs.wire import Answer, WireError, state_digest
from whet.errors import WhetError, text_of
from whet.types import in_brief

logger = logging.getLogger(__name__)
CAPACITY, LEASE_S, TIMEOUT_S = 256, 600.0, 60.0
"""Defaults: sessions at one time, seconds without a call until one is closed, and seconds of one call."""
MAX_GONE = 65_536
"""Closed sessions whose end is remembered, for the answer to a client that comes late."""


@dataclass(slots=True, eq=False)
class Session:
    """An environment that is lent to one client."""

    id: str
    served: Served
    wants_states: bool = False
    key: str = ""
    thread: Thread | None = None
    """None: the environment is quick, and runs in the server's thread."""
    env: Environment | None = None
    info: EnvironmentInfo | None = None
    """Under the session's settings."""
    latest: Answer | None = None
    """None: no episode has begun."""
    action: str = ""
    """The latest."""
    actions: Sequence[str] | None = None
    """Those that the environment listed last in this episode."""
    total: float = 0.0
    """Rewards of the episode so far."""
    used: float = field(default_factory=time.monotonic)
    """When its latest call ended."""
    is_busy: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    """What a wire keeps with it."""
    when_expired: Callable[[], None] | None = None
    """Called when its lease has run out."""
    ended: asyncio.Future[Any] | None = None
    """The release of its environment, once it is closed."""

    @property
    def made(self) -> Environment:
        assert self.env is not None, "a session is given out once its environment is made"
        return self.env

    def has_begun(self) -> Answer:
        """The latest answer.

        Raises: WireError before the first reset.
        """
        if self.latest is None:
            raise WireError("not_begun", "no episode has begun in this session: reset it with an item first")
        return self.latest

    # These run where the environment runs. They may return an awaitable, which is awaited there.

    def make(self, settings: Mapping[str, Any]) -> None:
        self.env, self.info = self.served.make(settings)

    def close(self) -> Any:
        """One that raises meanwhile is gone either way."""
        try:
            return self.env.close() if self.env is not None else None
        except Exception as error:
            logger.info("an environment did not close: %s", text_of(error))
            return None

    def reset(self, item: int, seed: int) -> Any:
        self.latest, self.action, self.actions, self.total = None, "", None, 0.0
        return _then(self.made.reset(item, seed=seed), self._has_begun)

    def step(self, action: str) -> Any:
        return _then(self.made.step(action), lambda answer: self._has_stepped(action, answer))

    def _has_begun(self, raw: Any) -> Answer:
        observation, info = begun(raw)
        return self._remember((observation, 0.0, False, False, info), "", 0)

    def _has_stepped(self, action: str, raw: Any) -> Answer:
        return self._remember(stepped(raw), action, self.has_begun().turn + 1)

    def _remember(self, answer: Stepped, action: str, turn: int) -> Answer:
        """
        Raises: ValueError where the rewards leave their range, or a state has no digest.
        """
        observation, reward, terminated, truncated, info = answer
        self.total += reward
        assert self.info is not None
        self.info.check_total(self.total)
        state = state_digest(self.made.state_key()) if self.wants_states else None
        listed = info.get(ACTIONS)
        if isinstance(listed, list | tuple):
            self.actions = listed
        self.latest = Answer(observation, reward, terminated, truncated, info, turn, state)
        self.action = action
        return self.latest


class Sessions:
    """All sessions of a server, whichever wire they came by.

    Args:
        capacity: sessions at one time. One more is refused at once.
        lease_s: seconds without a call after which a session is closed.
        timeout_s: seconds of one call of an environment. None: no limit.
    """

    def __init__(
        self, *, capacity: int = CAPACITY, lease_s: float = LEASE_S, timeout_s: float | None = TIMEOUT_S
    ) -> None:
        self.capacity, self.lease_s, self.timeout_s = capacity, lease_s, timeout_s
        self.counts: Counter[str] = Counter()
        """Sessions created, closed, expired, broken and late; creations refused for lack of room."""
        self._open: dict[str, Session] = {}
        self._being_made: dict[str, asyncio.Future[Session]] = {}
        """By key."""
        self._by_key: dict[str, str] = {}
        self._num_ending = 0
        """Environments whose sessions are closed, but which have not been released yet."""
        self._gone: OrderedDict[str, WireError] = OrderedDict()

    @property
    def num_held(self) -> int:
        """Environments that count against the capacity, including those that hang or are being closed."""
        return len(self._open) + self._num_ending

    # --- a session's life ---------------------------------------------------------------------------------------------

    async def create(
        self, served: Served, settings: Mapping[str, Any], *, id: str, key: str = "", states: bool = False
    ) -> Session:
        """A new session. The same key gets the same one while it lives.

        Raises: WireError where there is no room, or no environment can be made.
        """
        if key and (known := await self._of_key(key)) is not None:
            if known.served is not served:
                raise WireError("bad_request", f"the key {in_brief(key)} has a session of another environment")
            return known
        session = self._admitted(Session(id, served, states, key))
        making: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        if key:
            self._by_key[key], self._being_made[key] = id, making
        try:
            await self.call(session, lambda: session.make(settings))
        finally:
            self._being_made.pop(key, None)
            making.set_result(session)
        self.counts["created"] += 1
        return session

    async def fork(self, session: Session, id: str) -> Session:
        """A second session in the same state.

        Raises: WireError where there is no room, or the environment cannot be forked.
        """
        latest = session.has_begun()
        other = self._admitted(Session(id, session.served, session.wants_states))
        try:
            other.env = await self.call(session, session.made.fork)
        except WireError as error:
            self._end(other, error)
            raise
        other.info, other.latest, other.action = session.info, latest, session.action
        other.actions, other.total = session.actions, session.total
        self.counts["created"] += 1
        return other

    def get(self, id: str) -> Session:
        """An open session.

        Raises: WireError where there is none, or it has ended.
        """
        session = self._open.get(id)
        if session is None or session.env is None:
            raise self._gone.get(id) or WireError("unknown_session", f"there is no session {in_brief(id)}")
        session.used = time.monotonic()
        return session

    def waits(self, id: str) -> bool:
        """Whether the calls of a session run in a thread, so that they take a while."""
        return id in self._open and self._open[id].thread is not None

    async def close(self, id: str) -> bool:
        """Closes a session, and waits a while until its environment is released. False: there was none."""
        session = self._open.get(id)
        if session is None:
            return False
        self.counts["closed"] += 1
        gone = WireError("unknown_session", f"the session {in_brief(id)} was closed")
        await asyncio.wait([self._end(session, gone)], timeout=CLOSE_S)
        return True

    async def close_all(self) -> None:
        """Closes all sessions. Environments that hang are left to their threads."""
        gone = WireError("unknown_session", "the server stops")
        ends = [self._end(session, gone) for session in list(self._open.values())]
        if ends:
            await asyncio.wait(ends, timeout=CLOSE_S)

    async def sweep(self) -> None:
        """Closes sessions whose lease has run out, for as long as the server runs."""
        while True:
            await asyncio.sleep(max(0.02, min(5.0, self.lease_s / 4)))
            late = time.monotonic() - self.lease_s
            for session in [one for one in self._open.values() if not one.is_busy and one.used < late]:
                self.counts["expired"] += 1
                message = f"the session {session.id} had no call for {self.lease_s:g} s and was closed: create another"
                self._end(session, WireError("expired", message))
                if session.when_expired is not None:
                    session.when_expired()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def reset(self, session: Session, item: int, seed: int) -> Answer:
        answer: Answer = await self.call(session, lambda: session.reset(item, seed))
        return answer

    async def step(self, session: Session, action: str, turn: int | None = None) -> Answer:
        """The answer to an action.

        Args:
            turn: the action's, from 1. The latest turn again, with its action, gets the remembered answer. None: next.
        Raises: WireError where it is not its turn, or the environment fails.
        """
        remembered = due(session, action, turn)
        if remembered is not None:
            return remembered
        answer: Answer = await self.call(session, lambda: session.step(action))
        return answer

    async def call(self, session: Session, function: Callable[[], Any]) -> Any:
        """Calls a function of the session's environment, where that runs.

        Raises: WireError where the session is busy or closed. Also where the call fails, which closes the session.
        """
        if session.ended is not None:
            raise self._gone.get(session.id) or WireError("unknown_session", "this session was closed")
        if session.is_busy:
            raise WireError("busy", "an earlier call of this session is still at work: wait for its answer")
        session.is_busy = True
        try:
            if session.thread is None:
                return function()
            return await session.thread.call(function, self.timeout_s)
        except WireError as error:
            if session.env is None:  # it could not be made
                self._end(session, error)
            raise
        except Late:
            self.counts["late"] += 1
            message = f"{session.served.info.name} gave no answer within {self.timeout_s:g} s (--timeout-s)"
            raise self._failed(session, WireError("timeout", message)) from None
        except Exception as error:
            self.counts["broken"] += 1
            if not isinstance(error, WhetError | ValueError):
                logger.warning("%s broke", session.served.info.name, exc_info=error)
            message = f"{session.served.info.name}: {type(error).__name__}: {text_of(error)}"
            raise self._failed(session, WireError("env_error", message)) from error
        finally:
            session.is_busy = False
            session.used = time.monotonic()

    # --- room ---------------------------------------------------------------------------------------------------------

    async def _of_key(self, key: str) -> Session | None:
        if (making := self._being_made.get(key)) is not None:
            await asyncio.shield(making)
        id = self._by_key.get(key)
        return self._open.get(id) if id is not None else None

    def _admitted(self, session: Session) -> Session:
        if self.num_held >= self.capacity:
            self.counts["refused"] += 1
            raise WireError("full", f"all {self.capacity} sessions are in use (--max-sessions): try again later")
        if not session.served.is_quick:
            session.thread = Thread()
        self._open[session.id] = session
        return session

    def _failed(self, session: Session, error: WireError) -> WireError:
        after = f"the session {session.id} was closed after a failure: {error.message}"
        self._end(session, WireError("unknown_session", after))
        return error

    def _end(self, session: Session, gone: WireError) -> asyncio.Future[Any]:
        """Forgets a session and releases its environment. Returns: the release, which never fails."""
        if session.ended is not None:
            return session.ended
        self._open.pop(session.id, None)
        self._by_key.pop(session.key, None)
        self._gone[session.id] = gone
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        self._num_ending += 1
        if session.thread is None:
            session.ended = asyncio.get_running_loop().create_future()
            session.ended.set_result(session.close())
        else:
            session.ended = session.thread.end(session.close)
        session.ended.add_done_callback(self._has_ended)
        return session.ended

    def _has_ended(self, _: asyncio.Future[Any]) -> None:
        self._num_ending -= 1


def due(session: Session, action: str, turn: int | None) -> Answer | None:
    """The remembered answer, if this turn was taken before. None: it is the next one.

    Raises: WireError where it is another turn, or the episode has ended.
    """
    latest = session.has_begun()
    if turn is not None and turn == latest.turn > 0 and action == session.action and not session.is_busy:
        return latest
    if turn is not None and turn != latest.turn + 1:
        raise WireError("out_of_order", f"this is turn {turn}, and the next one is {latest.turn + 1}: send that")
    if latest.is_over:
        raise WireError("has_ended", "this episode has ended: reset the session to begin another")
    return None


def _then(answer: Any, use: Callable[[Any], Answer]) -> Any:
    if not inspect.isawaitable(answer):
        return use(answer)

    async def later() -> Answer:
        return use(await answer)

    return later()
