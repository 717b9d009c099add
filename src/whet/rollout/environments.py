"""The service of environments. They are reused from episode to episode, each lent to one rollout at a time.

A rollout begins an item (`Begin`), which lends it an environment, and acts in it (`Act`). The environment comes back
when the rollout has ended, or leaves it (`Leave`). If one breaks, hangs or breaks the protocol, that is a failure, and
it is never used again. By the protocol no action can break one, so invalid actions are answered like any other.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from whet.config.environments import MAX_OBSERVATION_CHARS
from whet.envs.protocol import EnvError, Environment, EnvironmentInfo, Info, begun, stepped
from whet.envs.retries import CLOSE_S, Late, close_within
from whet.envs.wire import state_digest
from whet.errors import WhetError, text_of
from whet.rollout.services import Pool, trace_of
from whet.types import CUT, Failure, shortened

logger = logging.getLogger(__name__)
ENVIRONMENT_SERVICE = "environment"
"""The service that lends environments."""


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """Requests an environment in which this item begins. Answer: `Seen`."""

    environment: EnvironmentInfo
    item: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment, as in `EnvironmentInfo.make`."""
    keeps_states: bool = False
    """Whether each answer has the environment's state."""
    lease: Lease = field(default_factory=lambda: Lease())


@dataclass(frozen=True, slots=True)
class Act:
    """Takes an action in the lent environment. Answer: `Seen`."""

    lease: Lease
    action: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Returns the environment before the rollout ends, which may have several episodes. Answer: an empty `Seen`."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Seen:
    """An environment's answer."""

    observation: str
    """The middle of a long one may be left out: see `within`."""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Info = field(default_factory=dict)
    state: str | None = None
    """The digest of the environment's `state_key` after the step, if requested: checkpoints hold texts."""
    num_cut: int = 0
    """Characters of the observation that were left out of its middle. 0: it is whole."""

    def within(self, max_chars: int) -> Seen:
        """The same with at most this many characters of its observation, and the number of those left out."""
        if len(self.observation) <= max_chars:
            return self
        held = shortened(self.observation, max_chars)
        return replace(self, observation=held, num_cut=len(self.observation) - (len(held) - len(CUT)))

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


@dataclass(slots=True, eq=False)
class Lease:
    """A lent environment."""

    kind: tuple[str, str] = ("", "")
    env: Environment | None = None
    info: EnvironmentInfo | None = None
    """Of its environment."""
    total: float = 0.0
    """Rewards of its episode so far."""
    keeps_states: bool = False
    is_broken: bool = False

    def counted(self, seen: Seen) -> Seen | Failure:
        """The answer, or a failure if the episode's reward is now outside of the environment's range."""
        self.total += seen.reward
        try:
            if self.info is not None:
                self.info.check_total(self.total)
        except ValueError as error:
            return Failure(kind="env_error", reason=f"{self.kind[0]}: {error}")
        return seen


class Environments:
    """A service whose payloads are `Begin`, `Act` and `Leave`.

    Args:
        capacity: environments that are lent at one time. Further rollouts wait.
        timeout_s: seconds of one step or reset. None: no limit.
        retries: how often a failed reset is repeated, in a new environment. A step is never repeated.
        max_observation_chars: the middle of a longer observation is left out.
        close_timeout_s: seconds that `close` waits for all environments together.
    """

    is_stepped = False

    @property
    def queued(self) -> Collection[int]:
        """Tickets that wait for an environment."""
        return self._waiting.keys()

    def __init__(
        self,
        *,
        capacity: int = 256,
        workers: int = 64,
        timeout_s: float | None = 60.0,
        retries: int = 1,
        max_observation_chars: int = MAX_OBSERVATION_CHARS,
        close_timeout_s: float = CLOSE_S,
    ) -> None:
        self.capacity, self.retries = capacity, retries
        self.max_observation_chars, self.close_timeout_s = max_observation_chars, close_timeout_s
        self.counts: Counter[str] = Counter()
        """Environments made, reused, thrown away and hung; items begun again; observations cut."""
        self._pool = Pool(self._answer, kind="env_error", workers=workers, timeout_s=timeout_s)
        self._idle: dict[tuple[str, str], list[Environment]] = {}
        self._lent: dict[Lease, None] = {}
        self._waiting: dict[int, Begin] = {}
        self._open: dict[int, Begin | Act | Leave] = {}
        self._dropped: list[tuple[int, Any]] = []
        """Requests answered without an environment: those that left one, or waited for one in vain."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    # --- a service ----------------------------------------------------------------------------------------------------

    def submit(self, ticket: int, payload: Begin | Act | Leave) -> None:
        self._open[ticket] = payload
        if isinstance(payload, Leave):
            self._give_back(payload.lease)
            self._dropped.append((ticket, Seen("")))
            return
        if isinstance(payload, Begin):
            self._waiting[ticket] = payload
            self._lend()
        else:
            self._pool.submit(ticket, payload)

    def advance(self, *, wait: bool) -> list[tuple[int, Seen | Failure]]:
        answers, self._dropped = self._dropped, []
        answers += self._pool.advance(wait=wait and not answers and len(self._open) > len(self._waiting))
        for ticket, answer in answers:
            payload = self._open.pop(ticket)
            if isinstance(answer, Failure):
                payload.lease.is_broken = True
                self._give_back(payload.lease)
            elif answer.num_cut:
                self.counts["cut_observations"] += 1
        if not answers and wait and self._waiting:
            raise WhetError(
                f"{len(self._waiting)} episodes wait for environments, and all {self.capacity} are lent to others that "
                "wait as well: in lockstep every episode needs one (raise the capacity, or set engine.rollout=free)"
            )
        return answers

    def done(self, payloads: Sequence[Begin | Act | Leave]) -> None:
        """The rollout has ended: its environments are free for others, except one that is still at work."""
        leases = {payload.lease: None for payload in payloads}
        for ticket, payload in self._open.items():
            if payload.lease in leases and self._waiting.pop(ticket, None) is not None:
                self._dropped.append((ticket, Failure(kind="env_error", reason="the episode ended before it began")))
            elif payload.lease in leases:
                payload.lease.is_broken = True
        for lease in leases:
            self._give_back(lease)

    def restart(self) -> None:
        """As `Service.restart`: all environments are back, except those that failed or are still at work."""
        self._waiting.clear()
        self._dropped.clear()
        for ticket, answer in self._pool.advance(wait=False):
            payload = self._open.pop(ticket)
            if isinstance(answer, Failure):
                payload.lease.is_broken = True
        for payload in self._open.values():
            payload.lease.is_broken = True
        self._open.clear()
        self._pool.restart()
        for lease in list(self._lent):
            self._give_back(lease)

    def close(self) -> None:
        """Close all environments. Those still open after `close_timeout_s` seconds are abandoned in daemon threads."""
        self._pool.close()
        with self._lock:
            envs = [env for idle_envs in self._idle.values() for env in idle_envs]
            envs += [lease.env for lease in self._lent if lease.env is not None]
            self._idle, self._lent = {}, {}
        closes = [partial(self._end, env) for env in envs]
        if num_hung := close_within(closes, self.close_timeout_s):
            self.counts["hung_closes"] += num_hung
            logger.warning(
                "%d of %d environments did not close within %g s (pool.close_timeout_s) and are left to themselves",
                num_hung,
                len(envs),
                self.close_timeout_s,
            )
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _end(self, env: Environment) -> None:
        self._called(env.close)

    # --- leases -------------------------------------------------------------------------------------------------------

    def _lend(self) -> None:
        while self._waiting and len(self._lent) < self.capacity:
            ticket = next(iter(self._waiting))
            payload = self._waiting.pop(ticket)
            self._lent[payload.lease] = None
            self._pool.submit(ticket, payload)

    def _give_back(self, lease: Lease) -> None:
        if lease not in self._lent:
            return
        del self._lent[lease]
        if lease.env is not None and not lease.is_broken:
            with self._lock:
                self._idle.setdefault(lease.kind, []).append(lease.env)
        elif lease.is_broken:
            self.counts["thrown_away"] += 1  # not closed here: it may hang
        lease.env = None
        self._lend()

    # --- in a thread --------------------------------------------------------------------------------------------------

    def _answer(self, payload: Begin | Act) -> Seen | Failure:
        try:
            return self._acted(payload) if isinstance(payload, Act) else self._begun_again(payload)
        except Late as error:  # a remote one's server; the limit of one step is the pool's
            return Failure(kind="timeout", reason=f"{type(error).__name__}: {error}")

    def _acted(self, payload: Act) -> Seen | Failure:
        env = payload.lease.env
        if env is None:
            name = payload.lease.kind[0]
            return Failure(
                kind="env_error", reason=f"{name}: its item failed or was left, so begin one before an action"
            )
        seen = self._seen(*stepped(self._called(env.step, payload.action)))
        seen = _stated(seen, payload.lease, env)
        if payload.lease.is_broken:  # the rollout has ended meanwhile
            _close(env)
        return payload.lease.counted(seen)

    def _begun_again(self, payload: Begin) -> Seen | Failure:
        """Begins the item, and again where that fails."""
        for attempt in range(self.retries + 1):
            try:
                return self._begun(payload)
            except Late:  # another attempt would be late for the pool
                raise
            except Exception as error:
                if attempt == self.retries:
                    name, reason = payload.environment.name, f"{type(error).__name__}: {text_of(error)}"
                    whole = f"{name}, item {payload.item}: {reason}"
                    return Failure(kind="env_error", reason=whole, trace=trace_of(error))
                self.counts["begun_again"] += 1
        raise AssertionError

    def _begun(self, payload: Begin) -> Seen:
        info, lease = payload.environment, payload.lease
        lease.keeps_states, lease.info, lease.total = payload.keeps_states, info, 0.0
        lease.kind = (info.name, repr(sorted(payload.settings.items())))
        with self._lock:
            idle = self._idle.get(lease.kind, [])
            env = idle.pop() if idle else None
            self.counts["reused" if env is not None else "made"] += 1
        if env is None:
            env = info.make(**payload.settings)
        observation, about = begun(self._called(env.reset, payload.item, seed=payload.seed))
        if lease.is_broken:  # the rollout has ended meanwhile
            _close(env)
        lease.env = env
        return _stated(self._seen(observation, 0.0, False, False, about), lease, env)

    def _seen(self, observation: str, reward: float, terminated: bool, truncated: bool, info: Info) -> Seen:
        """An answer with at most `max_observation_chars` of its observation."""
        return Seen(observation, reward, terminated, truncated, info).within(self.max_observation_chars)

    def _called(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """An environment's answer. Coroutines all run in one loop."""
        answer = function(*args, **kwargs)
        if not inspect.isawaitable(answer):
            return answer
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="environments", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop).result()


async def _awaited(awaitable: Any) -> Any:
    """
    Raises: EnvError where the coroutine ends by SystemExit or KeyboardInterrupt, which would end the loop that all
        environments share.
    """
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        raise EnvError(f"the environment ended its coroutine by {type(error).__name__}") from error


def _stated(seen: Seen, lease: Lease, env: Environment) -> Seen:
    if not lease.keeps_states:
        return seen
    return replace(seen, state=state_digest(env.state_key()))  # what it raises is an error of the environment


def _close(env: Environment) -> None:
    try:
        env.close()
    except BaseException:  # it is gone either way
        return
