"""What an environment is: a world that plays one item at a time, in gymnasium's five-tuple, with text observations.

Everything that depends on chance is drawn from the seed that `reset` is given, and from nothing else: the same item,
seed and actions are the same episode in any order of play, in another process, under another hash seed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from whet.errors import WhetError
from whet.types import MAX_REWARD, as_reward, in_brief, is_whole

Info = dict[str, Any]
Observed = tuple[str, Info]
"""The first observation, and what else there is to say."""
Stepped = tuple[str, float, bool, bool, Info]
"""Observation, reward of this step, terminated (the world has ended), truncated (its own limit cut it), info."""

INVALID = "invalid"
"""In a step's info, where true: the world did not understand the action, or it cannot be done now. That is the
player's own turn, and the observation says what the world answers."""
ACTIONS = "actions"
"""In the info of a reset or a step, where the world lists them: the actions that it would take now."""
PICTURE = "picture"
"""In the info, where the world can be drawn: rows of a grid, as `Picture`."""

ROUNDING = 1e-6
"""Of an episode's rewards, by the size of their bounds."""

Picture = Sequence[Sequence[str]]
"""A grid from above, a short name a cell: `wall`, `goal`, `agent >`, `red ball`; empty for nothing."""


def begun(answer: Any) -> Observed:
    """What a reset has answered.

    Raises: ValueError where that is something else than the protocol has.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ValueError(f"a world has to begin with an observation and info, and answered {str(answer)[:200]!r}")
    observation, _, _, _, info = stepped((answer[0], 0.0, False, False, answer[1]))
    return observation, info


def stepped(answer: Any) -> Stepped:
    """What a step has answered.

    Raises: ValueError where that is something else than the protocol has.
    """
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise ValueError(f"a world has to answer five things, and answered {str(answer)[:200]!r}")
    observation, reward, terminated, truncated, info = answer
    if not isinstance(observation, str):
        raise ValueError(f"an observation has to be a text, and is {type(observation).__name__}")
    if not is_whole(observation):
        raise ValueError("an observation holds half a character (a lone surrogate)")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or as_reward(reward) is None:
        raise ValueError(f"a reward has to be a finite number of at most {MAX_REWARD:g} in size, and is "
                         f"{in_brief(reward)}")  # fmt: skip
    if not isinstance(info, dict):
        raise ValueError(f"info has to be a dict, and is {type(info).__name__}")
    info = dict(info)
    flags = {"terminated": terminated, "truncated": truncated, f"info[{INVALID!r}]": info.get(INVALID, False)}
    for what, flag in flags.items():
        if isinstance(flag, str) or flag not in (True, False):
            raise ValueError(f"{what} has to be true or false, and is {in_brief(flag)}")
    if INVALID in info:
        info[INVALID] = bool(info[INVALID])
    return str.__str__(observation), float(reward), bool(terminated), bool(truncated), info


class EnvError(WhetError):
    """An environment cannot be made or is not as it should be: one sentence with what to do."""

    exit_code = 2


def cannot_write(path: Path, error: OSError) -> EnvError:
    """The error of a file of trajectories that the disk does not take."""
    return EnvError(f"could not write {path}: {error.strerror or error}; make room, or name a folder that takes it")


class Environment(Protocol):
    """One world. It holds one episode, and is reused for the next one by `reset`.

    `reset` and `step` may be coroutine functions as well.
    """

    def reset(self, item: int, *, seed: int = 0) -> Observed | Awaitable[Observed]:
        """Begin an item anew; nothing of the episode before is left.

        Raises: EnvError where there is no such item.
        """
        ...

    def step(self, action: str) -> Stepped | Awaitable[Stepped]:
        """Do what the player says. Any text is an action: what makes no sense is answered, not raised.

        Raises: EnvError before `reset`, and after the episode has ended.
        """
        ...

    def state_key(self) -> Hashable:
        """Equal for equal states: what the rest of the episode depends on (not how the world came there)."""
        ...

    def fork(self) -> Self:
        """A world in the same state, which goes its own way from here."""
        ...

    def close(self) -> None:
        """Give back what it holds. It is not used again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentInfo:
    """An environment as settings name it: how it is made, what its items are, how its rewards are read. Evaluation,
    filter and trainer all go by this."""

    name: str
    make: Callable[..., Environment]
    """Takes the environment's own settings by name, all with defaults, such as a folder of recipes."""
    splits: Callable[[], Mapping[str, Sequence[int]]]
    """Item numbers by split (`train`, `test`), in the published order where there is one."""
    rules: str
    """What a player is told before the first observation: the name of a file in `prompts/`, or of the plug-in's own
    text."""
    max_turns: int
    """As usually played. The limit itself belongs to the run."""
    rewards: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest that an episode can come to: the sum of its steps' rewards."""
    success_above: float = 0.99
    """An episode that comes to more than this is a success."""
    kept_above: float = 0.99
    """An episode that comes to more than this is one to imitate (AgentEvol's filter)."""
    scale: float = 1.0
    """What an episode's reward is divided by, so that it lies in [0, 1]; below 0 it counts as 0."""
    group: Callable[[int], str] | None = None
    """The published subgroup of an item, such as TextCraft's depth."""
    item_ids: Mapping[str, str] = field(default_factory=dict)
    """Published names of the item, by what they begin with: `textcraft_12` is `{"textcraft": ""}`."""
    parser: str = "react"
    """How a reply is read, as the published client does: a name of `formats.PARSERS`."""
    needs: str = ""
    """The extra that installs what it needs, such as `envs` (`make setup EXTRAS=envs`). Empty: nothing more."""
    expert: Callable[..., Iterator[tuple[str, str]]] | None = None
    """A scripted expert: a generator function of a world in which an episode has begun, and of `seed` by name. Each
    time it is asked it looks at the world as it is then, and gives a thought and the next action."""
    plan: Callable[[Any], str] | None = None
    """What the expert would say of the whole way to the goal from where a world is, where it can put that in words."""
    of_settings: Callable[[Mapping[str, Any]], EnvironmentInfo] | None = None
    """The environment as it is with settings that change what its items are, such as another table of recipes."""

    def settled(self, settings: Mapping[str, Any]) -> EnvironmentInfo:
        """With the environment's own settings: the items, splits and subgroups are theirs."""
        return self.of_settings(settings) if self.of_settings is not None and settings else self

    def score(self, reward: float) -> float:
        """An episode's reward, in [0, 1]."""
        return min(1.0, max(0.0, reward / self.scale))

    def check_total(self, total: float) -> None:
        """Whether an episode may come to this: to call after every step, as an episode may be cut after any.

        Args:
            total: of its rewards so far.
        Raises: ValueError where that is outside of `rewards`.
        """
        least, greatest = self.rewards
        slack = ROUNDING * max(1.0, abs(least), abs(greatest))
        if not least - slack <= total <= greatest + slack:
            raise ValueError(
                f"the episode's rewards come to {total:g}, outside of its range, rewards={self.rewards}: mend "
                "its step, or declare the least and the greatest that an episode can come to"
            )

    def is_success(self, reward: float) -> bool:
        return reward > self.success_above
