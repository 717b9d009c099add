"""Plays environments by rule, and what came of it as one digest; run as a script it prints that of another process.

python -m support.worlds textcraft 3 0 5
"""

from __future__ import annotations

import random
import sys
from hashlib import sha256

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.protocol import ACTIONS

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
NUM_STEPS = 12


def world_of(name):
    """An instance. Raises: EnvError where what it needs is not installed."""
    return ENVIRONMENTS.get(name).make()


def some_items(info, count=3):
    """Of each split the first, one in the middle and the last."""
    found = []
    for items in info.splits().values():
        found += [items[0], items[len(items) // 2], items[-1]][:count]
    return list(dict.fromkeys(found))


def episode(world, info, item, seed):
    """All that it says, to what is drawn from what it lists, an expert's first steps, and noise."""
    rng = random.Random(f"{info.name} {item} {seed}")
    observation, about = world.reset(item, seed=seed)
    said = [(observation, 0.0, False, False, sorted(about.get(ACTIONS, ())))]
    for _ in range(NUM_STEPS):
        listed = said[-1][-1]
        action = rng.choice(listed) if listed and rng.random() < 0.8 else rng.choice(NOISE)
        observation, reward, terminated, truncated, about = world.step(action)
        said.append((observation, float(reward), bool(terminated), bool(truncated), sorted(about.get(ACTIONS, ()))))
        if terminated or truncated:
            break
    return said


def expert_episode(world, info, item, seed, limit=100):
    """An expert's play. Returns: what it did, and the episode's reward."""
    world.reset(item, seed=seed)
    done, total = [], 0.0
    for thought, action in info.expert(world, seed=seed):
        _, reward, terminated, truncated, _ = world.step(action)
        done.append((thought, action))
        total += reward
        if terminated or truncated or len(done) >= limit:
            break
    return done, total


def digest(name, items, seed=0):
    """Of episodes in turn in one world."""
    info, world = ENVIRONMENTS.get(name), world_of(name)
    try:
        return [sha256(repr(episode(world, info, item, seed)).encode(errors="replace")).hexdigest() for item in items]
    finally:
        world.close()


if __name__ == "__main__":
    try:
        print("\n".join(digest(sys.argv[1], [int(item) for item in sys.argv[2:]])))
    except EnvError as error:
        sys.exit(str(error))
