"""From environments to tasks by split, and what a player is told before they begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random

from whet.config import ConfigError
from whet.config.world_data import WorldData
from whet.envs import ENVIRONMENTS, EnvironmentInfo
from whet.envs.trajectories import PROMISE
from whet.play.agent import ITEM
from whet.tasks.dialects import Message
from whet.tasks.splits import Problems
from whet.types import Task

ENVIRONMENT = "environment"
"""In a task's `info`: the name of its environment."""


def load_worlds(data: WorldData) -> Problems:
    """The items of environments as tasks.

    Raises: UnknownName; ConfigError where an environment has too few items; EnvError where a package is missing.
    """
    tasks: dict[str, list[Task]] = {"train": [], "validation": [], "test": []}
    for name in data.shares:
        info = ENVIRONMENTS.get(name)
        splits = info.splits()
        train, test = list(splits["train"]), list(splits["test"])
        if len(train) <= data.num_validation:
            raise ConfigError(
                f"{name} has {len(train)} training items, and data.num_validation = {data.num_validation} of them are "
                "to be left out of training: lower it"
            )
        held = set(Random(f"validation of {name}").sample(train, data.num_validation))
        chosen = {
            "train": [item for item in train if item not in held][: data.num_train],
            "validation": [item for item in train if item in held],
            "test": evenly(test, data.num_test),
        }
        for split, items in chosen.items():
            tasks[split] += [world_task(info, item) for item in items]
    said = ", ".join(data.shares)
    return Problems({split: tuple(each) for split, each in tasks.items()}, f"items of {said}")


def world_task(info: EnvironmentInfo, item: int) -> Task:
    return Task(id=f"{info.name}_{item}", prompt="", info={ENVIRONMENT: info.name, ITEM: item})


def evenly(items: Sequence[int], count: int | None) -> list[int]:
    """So many of them, from all parts of the list: environments order theirs by difficulty."""
    if count is None or count >= len(items):
        return list(items)
    return [items[i * len(items) // count] for i in range(count)]


@dataclass(frozen=True)
class Rules:
    """What stands before the first observation."""

    text: str

    def opening(self, *, shown: bool) -> tuple[Message, ...]:
        if not shown or not self.text:
            return ()
        return {"role": "user", "content": self.text}, {"role": "assistant", "content": PROMISE}


def rules_of(info: EnvironmentInfo) -> Rules:
    """Of a file of ours, or the text that a plug-in gives."""
    if re.fullmatch(r"[a-z_]{1,40}", info.rules):
        place = files("whet.envs") / "prompts" / f"{info.rules}.md"
        return Rules(place.read_text(encoding="utf-8").strip() if place.is_file() else info.rules)
    return Rules(info.rules)
