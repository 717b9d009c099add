"""The environment protocol: one item at a time, gymnasium's five-tuple, text observations.

Everything that depends on chance is drawn from the seed of `reset`, and from nothing else. The same item, seed and
actions give the same episode in any order of episodes, in another process, under another hash seed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from whet.errors import WhetError
from whet.types import MAX_REWARD, as_reward, in_brief, is_whole

Info = dict[str, Any]
Observed = tuple[str, Info]
"""The first observation, and info."""
Stepped = tuple[str, float, bool, bool, Info]
"""Observation, reward of this step, terminated (it has ended), truncated (the environment's limit cut it), info."""

INVALID = "invalid"
"""In a step's info, where true: the action was not understood, or it cannot be done now. It counts as a turn of the
agent, and the observation answers it."""
ACTIONS = "actions"
"""In the info of a reset or a step, if the environment lists them: the actions possible now."""
PICTURE = "picture"
"""In the info, if the environment can be drawn: rows of a grid, as `Picture`."""

ROUNDING = 1e-6
"""Tolerance of an episode's reward, relative to the size of its bounds."""

Picture = Sequence[Sequence[str]]
"""A grid from above, a short name a cell: `wall`, `goal`, `agent >`, `red ball`; empty for nothing."""


def begun(answer: Any) -> Observed:
    """A checked answer of a reset.

    Raises: ValueError where it breaks the protocol.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ValueError(f"reset has to return an observation and info, and returned {str(answer)[:200]!r}")
    observation, _, _, _, info = stepped((answer[0], 0.0, False, False, answer[1]))
    return observation, info


def stepped(answer: Any) -> Stepped:
    """A checked answer of a step.

    Raises: ValueError where it breaks the protocol.
    """
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise ValueError(f"step has to return five things, and returned {str(answer)[:200]!r}")
    observation, reward, terminated, truncated, info = answer
    if not isinstance(observation, str):
        raise ValueError(f"an observation has to be a text, and is {type(observation).__name__}")
    if not is_whole(observation):
        raise ValueError("an observation holds half a character (a lone surrogate)")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or as_reward(reward) is None:
        raise ValueError(
            f"a reward has to be a finite number of at most {MAX_REWARD:g} in size, and is {in_brief(reward)}"
        )
    if not isinstance(info, dict):
        raise ValueError(f"info has to be a dict, and is {type(info).__name__}")
    info = dict(info)
    flags = {"terminated": terminated, "truncated": truncated, f"info[{INVALID!r}]": info.get(INVALID, False)}
    for flag_name, flag in flags.items():
        if isinstance(flag, str) or flag not in (True, False):
            raise ValueError(f"{flag_name} has to be true or false, and is {in_brief(flag)}")
    if INVALID in info:
        info[INVALID] = bool(info[INVALID])
    return str.__str__(observation), float(reward), bool(terminated), bool(truncated), info


class EnvError(WhetError):
    """An environment cannot be made or is not as it should be. The message says what to do."""

    exit_code = 2


def cannot_write(path: Path, error: OSError) -> EnvError:
    """The error for a file of trajectories that cannot be written."""
    return EnvError(f"could not write {path}: {error.strerror or error}; make room, or name a folder that takes it")


class Environment(Protocol):
    """An environment holds one episode. `reset` reuses it for the next one.

    `reset` and `step` may be coroutine functions as well.
    """

    def reset(self, item: int, *, seed: int = 0) -> Observed | Awaitable[Observed]:
        """Begin an item anew; nothing of the previous episode is left.

        Raises: EnvError where there is no such item.
        """
        ...

    def step(self, action: str) -> Stepped | Awaitable[Stepped]:
        """Do the agent's action. Any text is an action: one that makes no sense is answered, not raised.

        Raises: EnvError before `reset`, and after the episode has ended.
        """
        ...

    def state_key(self) -> Hashable:
        """Equal for equal states: what the rest of the episode depends on (not how the state was reached).

        Its parts need a `repr` of their own, as checkpoints and servers keep a digest of it (`wire.state_digest`).
        """
        ...

    def fork(self) -> Self:
        """A copy in the same state, which then changes on its own."""
        ...

    def close(self) -> None:
        """Release all resources. It is not used again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedItems:
    """Which items of an environment are upstream's, so that scores on them may stand beside published ones."""

    split: str
    """The split to measure. In it, an item's number means what it means upstream."""
    is_list: bool = False
    """Whether the split is AgentEval's own list. False: whet chose among upstream's items."""
    settings: tuple[str, ...] = ()
    """Settings that have to be given for this, such as a folder of published recipes."""
    are_all: bool = True
    """Whether the split `test` has no generated items. False: those are measured too, apart."""

    def missing(self, settings: Mapping[str, Any]) -> list[str]:
        """The required settings that are not among these."""
        return [name for name in self.settings if settings.get(name) is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentInfo:
    """An environment as settings name it: its maker, its items, and how its rewards are read.

    Evaluation, filter and trainer all use this.
    """

    name: str
    make: Callable[..., Environment]
    """Takes the environment's settings by name, all with defaults, such as a folder of recipes."""
    splits: Callable[[], Mapping[str, Sequence[int]]]
    """Item numbers by split (`train`, `test`), in the published order where there is one."""
    rules: str
    """The agent's message before the first observation: the name of a file in `prompts/`, or the plug-in's text."""
    max_turns: int
    """The usual number. The limit itself belongs to the run."""
    rewards: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest reward of an episode, which is the sum of its steps' rewards."""
    success_above: float = 0.99
    """An episode with a greater reward is a success."""
    kept_above: float = 0.99
    """An episode with a greater reward is one to imitate (AgentEvol's filter)."""
    scale: float = 1.0
    """What an episode's reward is divided by, so that it lies in [0, 1]; below 0 it counts as 0."""
    group: Callable[[int], str] | None = None
    """The published subgroup of an item, such as TextCraft's depth."""
    item_ids: Mapping[str, str] = field(default_factory=dict)
    """Prefixes of published item names: `textcraft_12` is `{"textcraft": ""}`."""
    named_items: Mapping[str, int] = field(default_factory=dict)
    """Numbers of published item names that do not end in theirs, such as ALFWorld's of training."""
    published: PublishedItems | None = None
    """Its items that are upstream's, for `whet eval --env agenteval`. None: whet generated all of them."""
    parser: str = "react"
    """The parser of replies, as in the published client: a name of `formats.PARSERS`."""
    needs: str = ""
    """The extra that installs what it needs, such as `envs` (`make setup EXTRAS=envs`). Empty: nothing more."""
    expert: Callable[..., Iterator[tuple[str, str]]] | None = None
    """A scripted expert: a generator function of an environment in which an episode has begun, and of `seed` by name.
    Each time it looks at the present state, and yields a thought and the next action."""
    plan: Callable[[Any], str] | None = None
    """The expert's plan, in words, from an environment's present state to the goal. None: it has none."""
    of_settings: Callable[[Mapping[str, Any]], EnvironmentInfo] | None = None
    """The environment under settings that change its items, such as another table of recipes."""

    def settled(self, settings: Mapping[str, Any]) -> EnvironmentInfo:
        """This environment with the items, splits and subgroups of its settings."""
        return self.of_settings(settings) if self.of_settings is not None and settings else self

    def file_settings(self) -> frozenset[str]:
        """The settings that name files or folders: those whose annotation has a path."""
        try:
            parameters = inspect.signature(self.make).parameters.values()
        except ValueError:  # some built-in makers have no signature
            return frozenset()
        return frozenset(parameter.name for parameter in parameters if "Path" in str(parameter.annotation))

    def score(self, reward: float) -> float:
        """An episode's reward, in [0, 1]."""
        return min(1.0, max(0.0, reward / self.scale))

    def check_total(self, total: float) -> None:
        """Checks an episode's reward so far. Call it after every step, as an episode may be cut after any.

        Args:
            total: the sum of its rewards so far.
        Raises: ValueError where it is outside of `rewards`.
        """
        least, greatest = self.rewards
        slack = ROUNDING * max(1.0, abs(least), abs(greatest))
        if not least - slack <= total <= greatest + slack:
            raise ValueError(
                f"the episode's rewards add up to {total:g}, outside of its range, rewards={self.rewards}: mend "
                "its step, or declare the least and the greatest that an episode can reach"
            )

    def is_success(self, reward: float) -> bool:
        return reward > self.success_above
