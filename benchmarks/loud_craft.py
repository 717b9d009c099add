"""TextCraft whose every observation has ten million characters, and which does not close: the plug-in of
`boundaries.py`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from whet.envs import ENVIRONMENTS
from whet.envs.textcraft.environment import TEXTCRAFT, TextCraft

SIZE = 10_000_000
HANGS_S = 3600.0


class LoudCraft(TextCraft):
    def reset(self, item: int, *, seed: int = 0) -> Any:
        observation, info = super().reset(item, seed=seed)
        return loud(observation), info

    def step(self, action: str) -> Any:
        observation, *rest = super().step(action)
        return (loud(observation), *rest)

    def close(self) -> None:
        time.sleep(HANGS_S)


def loud(text: str) -> str:
    """The text over and over, so that a tokenizer which knows it knows all of it."""
    return (f"{text}\n" * (SIZE // (len(text) + 1) + 1))[:SIZE]


ENVIRONMENTS.add("loud_craft", replace(TEXTCRAFT, name="loud_craft", make=LoudCraft, of_settings=None), says="loud")
