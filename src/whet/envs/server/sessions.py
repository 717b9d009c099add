"""Sessions: environments lent to clients, one call at a time, until they are closed or their lease runs out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from whet.envs.retries import CLOSE_S
from whet.envs.server.calls import Late, Thread
from whet.envs.server.served import Served
from whet.envs.server.session import Session, due
from whet.envs.wire import Answer, WireError
from whet.errors import WhetError, text_of
from whet.types import in_brief

logger = logging.getLogger(__name__)
CAPACITY, LEASE_S, TIMEOUT_S = 256, 600.0, 60.0
"""Defaults: sessions at one time, seconds without a call until one is closed, and seconds of one call."""
MAX_GONE = 65_536
"""Closed sessions whose end is remembered, for the answer to a client that comes late."""


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

    def is_open(self, id: str) -> bool:
        return id in self._open

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
        other.is_busy = True  # a lease that is shorter than the fork would close it before it is there
        try:
            other.env = await self.call(session, session.made.fork)
        except WireError as error:
            self._end(other, error)
            raise
        finally:
            other.is_busy = False
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
