"""Replay: sends recorded actions to an environment again, and compares its answers with the record.

It tells whether our environment is the one that the data come from, and reports the first difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import Any

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS
from whet.envs.retries import CLOSE_S, close_within
from whet.envs.user_environment import refused_settings
from whet.errors import WhetError
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories
from whet.trajectories.format_detection import parser_name
from whet.trajectories.records import ENV_SEED, Trajectory, item_number

SHOWN = 60
"""Characters on either side of the first difference of two texts."""


class NothingCompared(WhetError):
    """A replay compared no episode, so that it says nothing of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Which parts of two observations have to be equal."""

    ignore_before: str = ""
    """Only what follows the last place of this text counts, where it stands."""
    ignore_after: str = ""
    """Only what is before the first place of this text counts."""
    first_in_any_order: bool = False
    """The lines of the first observation may come in another order."""
    ignore_ends: bool = False
    """Spaces and line breaks at the ends do not count."""

    parser: str = ""
    """The parser of the replies when they were published, a name of `PARSERS`. Empty: the environment's, which also
    read those of `whet env record`."""

    def reduced(self, text: str) -> str:
        """The part of an observation that counts."""
        if self.ignore_before:
            text = text.rpartition(self.ignore_before)[2]
        if self.ignore_after:
            text = text.partition(self.ignore_after)[0]
        return text.strip() if self.ignore_ends else text


COMPARISONS: Mapping[str, Comparison] = {
    "babyai": Comparison(ignore_after="\nAvailable actions", ignore_ends=True, parser="react"),  # an older client's
    "textcraft": Comparison(ignore_before="Instruction:\n", first_in_any_order=True, ignore_ends=True),
    "maze": Comparison(ignore_before="given the current environment state:\n", ignore_ends=True),
}
"""For the published files, which record more than the observation, or lines in the order of a set."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a replay and its record."""

    turn: int
    """0: the first observation; else the reply that the observation answers, from 1."""
    expected: str
    """The part of the record that counts."""
    got: str
    at: int
    """The first character that differs."""
    reason: str = ""
    """For a difference that is not between two texts, such as an episode that has ended."""

    def __str__(self) -> str:
        if self.reason:
            return f"turn {self.turn}: {self.reason}"
        begin, end = max(0, self.at - SHOWN), self.at + SHOWN
        expected, got = self.expected[begin:end], self.got[begin:end]
        return f"turn {self.turn}, character {self.at}: recorded {expected!r}, got {got!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of one trajectory."""

    item_id: str
    equal_steps: int
    """Of the recorded observations, the first one included."""
    num_steps: int
    difference: Difference | None
    reward: float
    """Of the replay: the sum of its steps' rewards."""
    has_ended: bool
    was_compared: bool = True
    """False: the environment could not begin or carry out the episode, as where its package is missing."""

    @property
    def is_equal(self) -> bool:
        return self.difference is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """The result of a file."""

    path: str
    environment: str
    episodes: tuple[Replayed, ...]
    num_successes: int = 0
    """Replays whose reward is a success by the environment's rule."""
    differing: tuple[Replayed, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "differing", tuple(episode for episode in self.episodes if not episode.is_equal))

    def __str__(self) -> str:
        num_episodes, num_steps = len(self.episodes), sum(episode.num_steps for episode in self.episodes)
        equal_steps = sum(episode.equal_steps for episode in self.episodes)
        return (
            f"{self.path} in {self.environment}: episodes equal {num_episodes - len(self.differing)} of "
            f"{num_episodes}, steps equal {equal_steps} of {num_steps}, successes {self.num_successes}"
        )


def replay_file(
    path: str | Path,
    environment: str | EnvironmentInfo,
    *,
    how: Comparison | None = None,
    limit: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> ReplaySummary:
    """Replay the trajectories of a file in one environment, one after another.

    Args:
        environment: or its name.
        how: None: the environment's entry in COMPARISONS, or else everything has to be equal.
        limit: replay at most this many. None: all.
        seed: of episodes whose records have none.
        settings: of the environment, such as a folder of recipes.
    Raises: DataError for the file; EnvError where no environment can be made; NothingCompared where none of the
        episodes could be compared. An unknown item among others is a difference.
    """
    info = ENVIRONMENTS.get(environment) if isinstance(environment, str) else environment
    how = how or COMPARISONS.get(info.name, Comparison())
    trajectories = read_trajectories(path, info.name)[:limit]
    _check_items(path, trajectories, info)
    try:
        info = info.settled(settings)
        env = info.make(**settings)
    except TypeError as error:
        raise EnvError(refused_settings(info, error)) from error
    try:
        episodes = asyncio.run(_replay_all(trajectories, env, info, how, seed))
    finally:
        close_within([env.close], CLOSE_S)
    _check_compared(path, info, episodes)
    num_successes = sum(info.is_success(episode.reward) for episode in episodes)
    return ReplaySummary(path=str(path), environment=info.name, episodes=episodes, num_successes=num_successes)


def _check_items(path: str | Path, trajectories: tuple[Trajectory, ...], info: EnvironmentInfo) -> None:
    for trajectory in trajectories:
        if trajectory.environment != info.name and trajectory.item_id.rpartition("_")[0] not in info.item_ids:
            raise DataError(
                f"{path} holds {trajectory.item_id}, an item of {trajectory.environment}, and would be replayed in "
                f"{info.name}; name the environment that the file is of"
            )


def _check_compared(path: str | Path, info: EnvironmentInfo, episodes: tuple[Replayed, ...]) -> None:
    if any(episode.was_compared for episode in episodes):
        return
    if not episodes:
        raise NothingCompared(f"{path} holds no episode to compare: give a file that has one, and a limit of 1 or more")
    first = episodes[0].difference.reason if episodes[0].difference is not None else ""
    raise NothingCompared(f"none of the {len(episodes)} episodes of {path} could be compared in {info.name}: {first}")


async def _replay_all(
    trajectories: tuple[Trajectory, ...],
    env: Environment,
    info: EnvironmentInfo,
    how: Comparison,
    seed: int,
) -> tuple[Replayed, ...]:
    episodes = []
    for trajectory in trajectories:
        try:
            number = item_number(trajectory.item_id, info.named_items)
            episodes.append(await replay(trajectory, env, info, how, item=number, seed=seed))
        except EnvError as error:
            episodes.append(_refused(trajectory, str(error)))
    return tuple(episodes)


async def replay(
    trajectory: Trajectory, env: Environment, info: EnvironmentInfo, how: Comparison, *, item: int, seed: int
) -> Replayed:
    """Send every recorded reply through the environment's parser to the environment, and compare its answers.

    Args:
        env: is reset first; not closed.
        item: its number.
        seed: of an episode whose record has none.
    Raises: EnvError where the environment has no such item.
    """
    expected, replies = trajectory.observations(), trajectory.replies()
    is_ours = ENV_SEED in trajectory.info
    parse = PARSERS.get(parser_name(trajectory, info, info.parser if is_ours else how.parser))
    observation, _ = await _answered(env.reset(item, seed=trajectory.env_seed(seed)))
    differences = [_compare(0, expected[0], observation, how)]
    reward, has_ended = 0.0, False
    for turn, reply in enumerate(replies, 1):
        parsed = parse(reply)
        if has_ended:
            differences.append(Difference(turn, "", "", 0, f"the episode has ended, and {reply[-SHOWN:]!r} follows"))
        elif parsed.problem:
            observation = parsed.answer(observation)
        else:
            observation, step_reward, terminated, truncated, _ = await _answered(env.step(parsed.action))
            reward, has_ended = reward + step_reward, terminated or truncated
        if turn < len(expected) and len(differences) == turn:
            differences.append(_compare(turn, expected[turn], observation, how))
    mismatches = [difference for difference in differences if difference is not None]
    return Replayed(
        item_id=trajectory.item_id,
        equal_steps=differences[: len(expected)].count(None),
        num_steps=len(expected),
        difference=mismatches[0] if mismatches else None,
        reward=reward,
        has_ended=has_ended,
    )


async def _answered(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


def _refused(trajectory: Trajectory, reason: str) -> Replayed:
    return Replayed(
        item_id=trajectory.item_id,
        equal_steps=0,
        num_steps=len(trajectory.observations()),
        difference=Difference(0, "", "", 0, reason),
        reward=0.0,
        has_ended=False,
        was_compared=False,
    )


def _compare(turn: int, expected: str, got: str, how: Comparison) -> Difference | None:
    expected, got = how.reduced(expected), how.reduced(got)
    if turn == 0 and how.first_in_any_order:
        expected, got = ("\n".join(sorted(text.split("\n"))) for text in (expected, got))
    if expected == got:
        return None
    at = next((at for at, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other), None)
    return Difference(turn, expected, got, min(len(expected), len(got)) if at is None else at)
