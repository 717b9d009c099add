"""Replay: recorded actions are sent to a world again, and what it answers is compared with what was recorded.

It tells whether a world of ours is the world that the data come from, and names the first place where it is not.
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
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories
from whet.trajectories.format_detection import parser_name
from whet.trajectories.records import ENV_SEED, Trajectory, item_number

SHOWN = 60
"""Characters on either side of the place where two texts part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What of two observations has to be equal."""

    ignore_before: str = ""
    """Only what follows the last place of this text counts, where it stands."""
    ignore_after: str = ""
    """Only what is before the first place of this text counts."""
    first_in_any_order: bool = False
    """The lines of the first observation may come in another order."""
    ignore_ends: bool = False
    """Spaces and line breaks at the ends do not count."""

    parser: str = ""
    """How replies were read when they were published, by a name of `PARSERS`. Empty: as the environment reads them, as
    were those that `whet env record` has recorded."""

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
"""For the published files: what was recorded beside the world's own words, or drawn from a set."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replay and its record part."""

    turn: int
    """0: the first observation; else the reply that the observation answers, from 1."""
    expected: str
    """The part of the record that counts."""
    got: str
    at: int
    """The character at which they part."""
    reason: str = ""
    """Where it is no matter of two texts, such as an episode that has ended."""

    def __str__(self) -> str:
        if self.reason:
            return f"turn {self.turn}: {self.reason}"
        begin, end = max(0, self.at - SHOWN), self.at + SHOWN
        expected, got = self.expected[begin:end], self.got[begin:end]
        return f"turn {self.turn}, character {self.at}: recorded {expected!r}, got {got!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of one trajectory."""

    item_id: str
    equal_steps: int
    """Of the observations that were recorded, the first one among them."""
    num_steps: int
    difference: Difference | None
    reward: float
    """Of the replay: the sum of its steps' rewards."""
    has_ended: bool

    @property
    def is_equal(self) -> bool:
        return self.difference is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummary:
    """What came of a file."""

    path: str
    environment: str
    episodes: tuple[Replayed, ...]
    num_successes: int = 0
    """Replays whose reward is a success by the environment's own rule."""
    differing: tuple[Replayed, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "differing", tuple(each for each in self.episodes if not each.is_equal))

    def __str__(self) -> str:
        num_episodes, num_steps = len(self.episodes), sum(each.num_steps for each in self.episodes)
        equal_steps = sum(each.equal_steps for each in self.episodes)
        return (
            f"{self.path} in {self.environment}: episodes equal {num_episodes - len(self.differing)} of "
            f"{num_episodes}, steps equal {equal_steps} of {num_steps}, successes {self.num_successes}"
        )


def replay(
    trajectory: Trajectory, env: Environment, info: EnvironmentInfo, *, ignore_after: str = "",
    how: Comparison | None = None, item: int | None = None, seed: int = 0,
) -> Replayed:  # fmt: skip
    """Send every recorded reply through the environment's parser to a world, and compare what it answers.

    Args:
        world: is reset first; not closed.
        ignore_after: short for `how=Comparison(ignore_after=...)`.
        how: None: everything has to be equal.
        item: its number; None: as the trajectory's name ends.
        seed: for the world's reset.
    Raises: EnvError where the world has no such item.
    """
    how = how or Comparison(ignore_after=ignore_after)
    number = item_number(trajectory.item_id) if item is None else item
    return asyncio.run(_replay(trajectory, env, info, how, number, seed))


def replay_file(
    path: str | Path, environment: str | EnvironmentInfo, *, how: Comparison | None = None, limit: int | None = None,
    trials: Mapping[str, int] | None = None, seed: int = 0, **settings: Any,
) -> ReplaySummary:  # fmt: skip
    """Replay the trajectories of a file in one world, one after another.

    Args:
        environment: or its name.
        how: None: as suits the published file of that environment, or everything.
        limit: replay the first so many. None: all.
        trials: see `item_number`.
        seed: of the worlds of episodes whose records name none.
        settings: of the environment, such as a folder of recipes.
    Raises: DataError for the file, EnvError where no world can be made. An item that the world does not have is a
        difference.
    """
    info = ENVIRONMENTS.get(environment) if isinstance(environment, str) else environment
    how = how or COMPARISONS.get(info.name, Comparison())
    trajectories = read_trajectories(path)[:limit]
    _check_items(path, trajectories, info)
    env = info.make(**settings)
    try:
        episodes = asyncio.run(_replay_all(trajectories, env, info, how, trials, seed))
    finally:
        close_within([env.close], CLOSE_S)
    num_successes = sum(info.is_success(each.reward) for each in episodes)
    return ReplaySummary(path=str(path), environment=info.name, episodes=episodes, num_successes=num_successes)


def _check_items(path: str | Path, trajectories: tuple[Trajectory, ...], info: EnvironmentInfo) -> None:
    for each in trajectories:
        if each.environment != info.name and each.item_id.rpartition("_")[0] not in info.item_ids:
            raise DataError(
                f"{path} holds {each.item_id}, an item of {each.environment}, and would be replayed in {info.name}; "
                "name the environment that the file is of"
            )


async def _replay_all(
    trajectories: tuple[Trajectory, ...], env: Environment, info: EnvironmentInfo, how: Comparison,
    trials: Mapping[str, int] | None, seed: int,
) -> tuple[Replayed, ...]:  # fmt: skip
    episodes = []
    for each in trajectories:
        try:
            number = item_number(each.item_id, trials)
            episodes.append(await _replay(each, env, info, how, number, seed))
        except EnvError as error:
            episodes.append(_refused(each, str(error)))
    return tuple(episodes)


async def _replay(
    trajectory: Trajectory, env: Environment, info: EnvironmentInfo, how: Comparison, item: int, seed: int
) -> Replayed:
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
            observation, given, terminated, truncated, _ = await _answered(env.step(parsed.action))
            reward, has_ended = reward + given, terminated or truncated
        if turn < len(expected) and len(differences) == turn:
            differences.append(_compare(turn, expected[turn], observation, how))
    found = [each for each in differences if each is not None]
    return Replayed(
        item_id=trajectory.item_id,
        equal_steps=differences[: len(expected)].count(None),
        num_steps=len(expected),
        difference=found[0] if found else None,
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
    )


def _compare(turn: int, expected: str, got: str, how: Comparison) -> Difference | None:
    expected, got = how.reduced(expected), how.reduced(got)
    if turn == 0 and how.first_in_any_order:
        expected, got = ("\n".join(sorted(text.split("\n"))) for text in (expected, got))
    if expected == got:
        return None
    at = next((at for at, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other), None)
    return Difference(turn, expected, got, min(len(expected), len(got)) if at is None else at)
