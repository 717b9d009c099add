"""Episodes without a model: of listed actions, noise or scripted experts. For checks and tests."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Sequence
from typing import Any

from whet.envs.protocol import ACTIONS, Environment, EnvironmentInfo

NOISE = (
    "",
    " ",
    "\x00",
    "look",
    "Action: x\nAction: y",
    "x" * 10_000,
    "go to \u202e 1",
    "get -1 log",
    "{}",
    "🙂 a b c d",
)
"""Actions that no environment knows, and that each has to answer."""
NUM_STEPS = 12
"""Of an episode of listed actions and noise."""
MOST_STEPS = 200
"""The limit of `run_to_end`."""

Said = tuple[str, float, bool, bool, tuple[str, ...]]
"""Observation, reward, terminated and truncated of one step, and the actions that are listed."""


def steps_left(way: Sequence[str], done: Sequence[str]) -> Sequence[str]:
    """A way's actions from the first one on that was not done yet.

    Args:
        done: all actions so far. Those that were not next on the way count for nothing.
    """
    num_done = 0
    for action in done:
        num_done += num_done < len(way) and action == way[num_done]
    return way[num_done:]


def some_items(info: EnvironmentInfo, count: int = 4) -> list[int]:
    """Items of all splits: the first of each, then the last, then the middle one. At least 2, if there are so many."""
    splits = [items for items in info.splits().values() if items]
    chosen = [items[place] for place in (0, -1) for items in splits] + [items[len(items) // 2] for items in splits]
    return list(dict.fromkeys(chosen))[: max(2, count)]


def episode(env: Environment, info: EnvironmentInfo, item: int, seed: int) -> list[Said]:
    """All answers of an episode whose actions are drawn from the listed ones and noise."""
    rng = random.Random(f"{info.name} {item} {seed}")
    observation, about = answered(env.reset(item, seed=seed))
    answers: list[Said] = [(observation, 0.0, False, False, listed_in(about))]
    for _ in range(NUM_STEPS):
        action = drawn(rng, answers[-1][-1])
        observation, reward, terminated, truncated, about = answered(env.step(action))
        answers.append((observation, float(reward), bool(terminated), bool(truncated), listed_in(about)))
        if terminated or truncated:
            break
    return answers


def expert_episode(
    env: Environment, info: EnvironmentInfo, item: int, seed: int, limit: int = 100
) -> tuple[list[tuple[str, str]], float]:
    """An expert's episode. Returns: its thoughts and actions, and the episode's reward."""
    assert info.expert is not None
    answered(env.reset(item, seed=seed))
    done: list[tuple[str, str]] = []
    total = 0.0
    for thought, action in info.expert(env, seed=seed):
        _, reward, terminated, truncated, _ = answered(env.step(action))
        done.append((thought, action))
        total += reward
        if terminated or truncated or len(done) >= limit:
            break
    return done, total


def run_to_end(env: Environment, info: EnvironmentInfo, item: int) -> float | None:
    """An episode of the expert, else of drawn actions. Returns: its reward. None: it did not end."""
    _, total, has_ended = episodes(env, info, item, 0, MOST_STEPS)
    return total if has_ended else None


def episodes(
    env: Environment, info: EnvironmentInfo, item: int, seed: int, limit: int
) -> tuple[list[str], float, bool]:
    """The actions of an episode, its reward, and whether it has ended."""
    rng = random.Random(f"{info.name} {item} {seed}")
    _, about = answered(env.reset(item, seed=seed))
    moves = info.expert(env, seed=seed) if info.expert is not None else None
    done: list[str] = []
    total = 0.0
    while len(done) < limit:
        _, action = next(moves, ("", None)) if moves is not None else ("", drawn(rng, listed_in(about)))
        if action is None:
            break
        done.append(action)
        _, reward, terminated, truncated, about = answered(env.step(action))
        total += reward
        if terminated or truncated:
            return done, total, True
    return done, total, False


def answered(answer: Any) -> Any:
    """An environment's answer, also where it is a coroutine."""
    return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def drawn(rng: random.Random, listed: Sequence[str]) -> str:
    return rng.choice(listed) if listed and rng.random() < 0.8 else rng.choice(NOISE)


def listed_in(about: Any) -> tuple[str, ...]:
    return tuple(sorted(about.get(ACTIONS, ())))
