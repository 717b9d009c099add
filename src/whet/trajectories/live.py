"""An environment for loops of other libraries: texts or calls in, observations and a score out.

`whet env export` writes packages around this. It does what a run's rollout does: the environment's own format, a limit
of turns, shortened observations, and checked answers. An environment that breaks gives no score: it raises.

    episode = LiveEpisode("textcraft")
    observation = episode.reset(3)
    turn = episode.reply("Thought: ...\\n\\nAction: inventory")
    turn.observation, episode.score
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.formats import PARSERS
from whet.envs.protocol import INVALID, begun, stepped
from whet.envs.rules import rules_text
from whet.errors import text_of
from whet.trajectories.records import PROMISE
from whet.trajectories.tools import NO_SUCH_CALL, called_action
from whet.types import shortened

A = TypeVar("A")
MAX_OBSERVATION = 4000
"""Default limit on the characters of an observation; the middle of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What an action led to."""

    observation: str
    reward: float
    """Of this step, by the environment."""
    terminated: bool
    truncated: bool
    """Cut by the environment's limit, or by that of turns."""
    is_invalid: bool
    """The action was not understood, or cannot be done now."""

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


_AFTER_THE_END = Turn("The episode has ended.", 0.0, terminated=True, truncated=False, is_invalid=True)


class LiveEpisode:
    """One episode at a time of a registered environment. It is used again after `reset`.

    Args:
        name: of the environment.
        max_turns: None: the environment's usual number.
        max_observation: characters. The middle of a longer observation is left out.
        settings: of the environment.
    Raises: UnknownName; EnvError where a package is missing; TypeError where it does not take the settings.
    """

    def __init__(
        self,
        name: str,
        *,
        max_turns: int | None = None,
        max_observation: int = MAX_OBSERVATION,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.info = ENVIRONMENTS.get(name).settled(settings or {})
        self.max_turns = self.info.max_turns if max_turns is None else max_turns
        self.max_observation = max_observation
        self._environment = self.info.make(**(settings or {}))
        self._parse = PARSERS.get(self.info.parser)
        self._shown = ""
        self._total, self._num_turns = 0.0, 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over, self._failure = True, "no episode has begun: call reset(item) first"

    @property
    def rules(self) -> str:
        """The environment's rules, for the agent's first message. Empty: it has none."""
        return rules_text(self.info.rules)

    @property
    def opening(self) -> tuple[tuple[str, str], ...]:
        """Roles and texts before the first observation: the rules, and the promise to keep them."""
        return (("user", self.rules), ("assistant", PROMISE)) if self.rules else ()

    def items(self, split: str) -> Sequence[int]:
        """Raises: EnvError where there is no such split."""
        splits = self.info.splits()
        if split not in splits:
            raise EnvError(f"{self.info.name} has no split {split!r}; choose of: {', '.join(splits)}")
        return splits[split]

    def reset(self, item: int, *, seed: int = 0) -> str:
        """Begins an item, and returns the first observation.

        Raises: EnvError.
        """
        self._total, self._num_turns, self._is_over, self._failure = 0.0, 0, False, ""
        observation, _ = self._answer(lambda: begun(self._now(self._environment.reset(item, seed=seed))))
        self._shown = shortened(observation, self.max_observation)
        return self._shown

    def reply(self, text: str) -> Turn:
        """Takes a model's whole reply, which the environment's parser reads.

        Raises: EnvError.
        """
        parsed = self._parse(text)
        return self._unread(parsed.answer(self._shown)) if parsed.problem else self.act(parsed.action)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Turn:
        """Takes a call of a tool (`trajectories.tools`). Arguments that are empty texts are left out.

        Raises: EnvError.
        """
        try:
            action = called_action(self.info.name, name, arguments)
        except ValueError:
            return self._unread(NO_SUCH_CALL)
        return self.act(action)

    def act(self, action: str) -> Turn:
        """Takes an action.

        Raises: EnvError.
        """
        if self._is_over:
            return _AFTER_THE_END
        observation, reward, terminated, truncated, info = self._answer(
            lambda: stepped(self._now(self._environment.step(action)))
        )
        self._total += reward
        self._answer(lambda: self.info.check_total(self._total))
        self._shown = shortened(observation, self.max_observation)
        return self._turn(self._shown, reward, terminated, truncated, bool(info.get(INVALID)))

    @property
    def score(self) -> float:
        """The episode's reward so far, in [0, 1].

        Raises: EnvError where the environment has broken: a failure is no reward.
        """
        if self._failure:
            raise EnvError(f"this episode of {self.info.name} has no score: {self._failure}")
        return self.info.score(self._total)

    @property
    def is_success(self) -> bool:
        return not self._failure and self.info.is_success(self._total)

    def close(self) -> None:
        self._environment.close()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _unread(self, answer: str) -> Turn:
        """The turn of a reply that means no action. It does not reach the environment."""
        return _AFTER_THE_END if self._is_over else self._turn(answer, 0.0, False, False, True)

    def _turn(self, observation: str, reward: float, terminated: bool, truncated: bool, is_invalid: bool) -> Turn:
        self._num_turns += 1
        truncated = truncated or (not terminated and self._num_turns >= self.max_turns)
        self._is_over = terminated or truncated
        return Turn(observation, reward, terminated, truncated, is_invalid)

    def _now(self, answer: Any) -> Any:
        """Waits for an environment whose functions are coroutines, in an event loop of its own."""
        if not inspect.isawaitable(answer):
            return answer
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(_awaited(answer))

    def _answer(self, ask: Callable[[], A]) -> A:
        """Raises: EnvError, and records it: the episode then has no score."""
        try:
            return ask()
        except Exception as error:  # a user's environment may raise anything
            self._failure, self._is_over = text_of(error), True
            raise EnvError(f"{self.info.name} has broken: {self._failure}") from error


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
