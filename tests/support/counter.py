"""The smallest world: it counts down to 0. It can crash, hang or answer garbage."""

import asyncio
import random
import time

from whet.envs.protocol import EnvError, EnvironmentInfo


class Counter:
    """Counts to its item. It can crash, hang or answer garbage, by what its settings say."""

    made = 0

    def __init__(self, fault="", share=1.0):
        type(self).made += 1
        self.fault, self.share, self.left, self.rng = fault, share, None, None

    def reset(self, item, *, seed=0):
        self.left, self.rng = item, random.Random(seed)
        if self.fault == "reset" and self.rng.random() < self.share:
            raise OSError("no room left")
        return f"{item} to go", {}

    def step(self, action):
        if self.left is None:
            raise EnvError("reset it first")
        if self.rng.random() < self.share:
            if self.fault == "crash":
                raise RuntimeError("the world has ended")
            if self.fault == "hang":
                time.sleep(10)  # in a thread that nobody waits for
            if self.fault == "garbage":
                return f"{self.left} to go", float("nan"), False, False, {}
        self.left -= 1
        return f"{self.left} to go", float(self.left == 0), self.left == 0, False, {}

    def close(self):
        self.left = None


class AsyncCounter(Counter):
    async def reset(self, item, *, seed=0):
        await asyncio.sleep(0)
        return super().reset(item, seed=seed)

    async def step(self, action):
        await asyncio.sleep(0)
        return super().step(action)


def info_of(make=Counter):
    return EnvironmentInfo(
        name="counter", make=make, splits=lambda: {"train": [1], "test": [2]}, rules="counter", max_turns=9
    )
