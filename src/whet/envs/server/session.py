"""A session: an environment that is lent to one client, and its episode so far."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.envs.protocol import ACTIONS, Environment, EnvironmentInfo, Stepped, begun, stepped
from whet.envs.server.calls import Thread
from whet.envs.server.served import Served
from whet.envs.wire import Answer, WireError, state_digest
from whet.errors import text_of

logger = logging.getLogger(__name__)


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
