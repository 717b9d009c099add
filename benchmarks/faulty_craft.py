"""TextCraft that fails as real worlds do: the plug-in of `agent_faults.py`.

A share of steps crashes, hangs or answers garbage, and a share of beginnings finds no room. Like real failures these
come from no seed. Each is written down, so that what a run has counted can be held against what has happened.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from whet.envs import ENVIRONMENTS
from whet.envs.textcraft.environment import TEXTCRAFT, TextCraft

KINDS = ("crash", "hang", "garbage")
HANGS_S = 60.0
"""Far past any `pool.timeout_s` of the runs here: on a slow machine too, no hang is an answer."""
GARBAGE = (None, ("?", float("nan"), False, False, {}), (7, 1.0, True, False, {}), ("?", 1.0, True))
"""Some of it would be a reward of 1 to who takes it for an answer."""


class FaultyCraft(TextCraft):
    """
    Args:
        share: of steps that fail, of each kind as many, and of beginnings without room.
        spared: items in which nothing fails.
        log: a file that gets a line a failure.
    """

    def __init__(self, share: float = 0.0, spared: Collection[int] = (), log: str = "") -> None:
        super().__init__()
        self._share, self._spared, self._log = share, frozenset(spared), log
        self._chance = Random()

    def reset(self, item: int, *, seed: int = 0) -> Any:
        self._is_spared = item in self._spared
        if self._fails():
            self._write("no room")
            raise OSError("no room for another world")
        return super().reset(item, seed=seed)

    def step(self, action: str) -> Any:
        if not self._fails():
            return super().step(action)
        kind = self._chance.choice(KINDS)
        self._write(kind)
        if kind == "crash":
            raise RuntimeError("the world has ended")
        if kind == "garbage":
            return self._chance.choice(GARBAGE)
        time.sleep(HANGS_S)
        return super().step(action)

    def _fails(self) -> bool:
        return not self._is_spared and self._chance.random() < self._share

    def _write(self, kind: str) -> None:
        with Path(self._log).open("a") as file:
            file.write(f"{kind}\n")


ENVIRONMENTS.add(
    "faulty_craft", replace(TEXTCRAFT, name="faulty_craft", make=FaultyCraft, of_settings=None), says="it fails"
)
