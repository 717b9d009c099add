"""TextCraft (ADaPT, arXiv:2311.05772) as in AgentGym: craft an item by text, from base items.

Rules and sentences are the published ones. Two things are ours. Items are numbered by (depth, name); upstream's numbers
follow the order in which a disk lists its files. And the list of commands is drawn from the seed of `reset`; upstream's
follows a hash seed. `openings` gives published numbers and lists back, from records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Info, Observed, PublishedItems, Stepped
from whet.envs.textcraft.expert import expert, plan
from whet.envs.textcraft.first_observations import Opening, read_openings
from whet.envs.textcraft.recipes import Recipe, Table, published, shipped, written
from whet.seeds import seed_of

MAX_DISTRACTORS = 10
TEST_SHARE = 0.2
"""Of the items of each depth of our table, in `test`."""

_CRAFT = re.compile(r"craft (.*) using (.*)")
# Eighteen digits at most: Python refuses to read or write numbers of thousands of them.
_GET = re.compile(r"get ([0-9]{1,18}) (.*)")
_COUNTED = re.compile(r"([0-9]{1,18}) (.*)")


class _Failed(Exception):
    """The action cannot be done. The text is the observation."""


class TextCraft:
    """The environment. Its `inventory` and `goal` may be read, and `table` has the recipes."""

    def __init__(
        self,
        recipes: str | Path | None = None,
        *,
        openings: str | Path | None = None,
        max_distractors: int = MAX_DISTRACTORS,
    ) -> None:
        """
        Args:
            recipes: a folder of recipe files in the game's layout, or a tar archive of one. None: our own table.
            openings: a file of recorded episodes (AgentTraj's JSON). An item in it begins as it was recorded, with that
                goal and those commands. The other goals of a depth get its other numbers, by name.
            max_distractors: how many commands in the list no way to the goal needs, at most.
        Raises: EnvError where a file is not as it should be.
        """
        self.table: Table = shipped() if recipes is None else published(recipes)
        self._openings: Mapping[int, Opening] = {}
        self.goals: Sequence[str] = self.table.goals
        if openings is not None:
            self._openings, self.goals = read_openings(openings, self.table)
        self._max_distractors = max_distractors
        self.goal = ""
        self.commands: tuple[str, ...] = ()
        self.inventory: dict[str, int] = {}
        self._actions: tuple[str, ...] = ()
        """The listed commands, and a `get` for each input. Some of them cannot be done."""
        self.has_ended = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        if not 0 <= item < len(self.goals):
            raise EnvError(f"TextCraft has the items 0 to {len(self.goals) - 1}, not {item}.")
        goal = self.goals[item]
        if item in self._openings:
            return self.begin(goal, self._openings[item].commands)
        return self.begin(goal, self._drawn(goal, Random(seed_of("textcraft", seed, goal))))

    def begin(self, goal: str, commands: Sequence[str]) -> Observed:
        """An episode with this goal and list of commands. The rules stay those of the table."""
        self.goal, self.commands = goal, tuple(commands)
        self.inventory, self.has_ended = {}, False
        gets = dict.fromkeys(f"get {part}" for line in commands for part in line.partition(" using ")[2].split(", "))
        self._actions = (*self.commands, *gets, "inventory")
        return "Crafting commands:\n" + "\n".join(self.commands) + f"\n\nGoal: craft {goal}.", {ACTIONS: self._actions}

    def _drawn(self, goal: str, random: Random) -> list[str]:
        """The lines that the goal may need, and some that use the same ingredients, shuffled."""
        tree = self.table.tree(goal)
        others = sorted({line for lines in tree.others for line in random.sample(lines, min(10, len(lines)))})
        lines = [*tree.lines, *random.sample(others, min(self._max_distractors, len(others)))]
        random.shuffle(lines)
        return lines

    def step(self, action: str) -> Stepped:
        if self.has_ended:
            raise EnvError("No episode is under way in this TextCraft: call `reset` first.")
        info: Info = {ACTIONS: self._actions}
        try:
            observation, made = self._done(action)
        except _Failed as answer:
            observation, made, info = str(answer), "", {ACTIONS: self._actions, INVALID: True}
        self.has_ended = made == self.goal
        return observation, float(self.has_ended), self.has_ended, False, info

    def _done(self, action: str) -> tuple[str, str]:
        """The observation, and the item that the agent has gained."""
        if match := _CRAFT.match(action):
            return self._craft(*match.groups())
        if match := _GET.match(action):
            return self._get(int(match[1]), match[2])
        if action.startswith("inventory"):
            return self._carried(), ""
        raise _Failed(f"Could not execute {action}")

    def _get(self, number: int, typed: str) -> tuple[str, str]:
        name = typed.replace("_", " ")
        if name not in self.table.base_items:
            raise _Failed(f"Could not find {typed}")
        self.inventory[name] = self.inventory.get(name, 0) + number
        return f"Got {number} {typed}", name

    def _carried(self) -> str:
        if not self.inventory:
            return "Inventory: You are not carrying anything."
        return "Inventory: " + " ".join(f"[{name}] ({number})" for name, number in self.inventory.items())

    def _craft(self, made: str, used: str) -> tuple[str, str]:
        match = _COUNTED.match(made)
        count, output = (int(match[1]), match[2]) if match else (1, made)
        output = output.replace("_", " ")
        is_kind = output in self.table.kinds
        inputs = [_counted(text.strip()) for text in used.split(",")]
        needed: Counter[str] = Counter()
        for number, name in inputs:
            needed[name] += number
        if any(self.inventory.get(name, -1) < number for name, number in needed.items()):
            raise _Failed(f"Could not find enough items to craft {None if is_kind else written(output)}")
        recipe = self._matching(output, inputs)
        if recipe is None:
            tag, item = (written(output), None) if is_kind else (None, written(output))
            wanted = f"ItemTagWithCount(item_tag=ItemTag(tag={tag!r}, item_id={item!r}), count={count})"
            raise _Failed(f"Could not find a valid recipe for {wanted}")
        for name, number in needed.items():
            self.inventory[name] -= number
            if not self.inventory[name]:
                del self.inventory[name]
        self.inventory[output] = self.inventory.get(output, 0) + recipe.count
        return f"Crafted {recipe.count} {written(output)}", output

    def _matching(self, output: str, inputs: Sequence[tuple[int, str]]) -> Recipe | None:
        """The first recipe that takes exactly these inputs, in any order."""
        for recipe in self.table.recipes.get(output, ()):
            left = list(inputs)
            for number, name in recipe.inputs:
                match = next((entry for entry in left if self._is(entry[1], name)), None)
                if match is None or match[0] != number:
                    break
                left.remove(match)
            else:
                if not left:
                    return recipe
        return None

    def _is(self, item: str, ingredient: str) -> bool:
        if ingredient in self.table.members:
            return self.table.kind_of.get(item) == ingredient
        return item == ingredient

    def depth(self, item: int) -> int:
        """Crafting steps to an item's goal, 1 and more."""
        return self.table.depths[self.goals[item]]

    def state_key(self) -> Hashable:
        return self.goal, self.has_ended, tuple(sorted(self.inventory.items()))

    def fork(self) -> Self:
        twin = copy(self)
        twin.inventory = dict(self.inventory)
        return twin

    def close(self) -> None:
        """There is nothing to release."""


def _counted(text: str) -> tuple[int, str]:
    match = _COUNTED.match(text)
    if match is None:
        raise _Failed(f"Wrong item format: {text}")
    return int(match[1]), match[2].replace("_", " ")


@cache
def splits() -> Mapping[str, Sequence[int]]:
    """Item numbers of our table: of each depth, a fifth is `test`, chosen by a hash of the name."""
    return _splits(shipped().goals, shipped().depths)


def _splits(goals: Sequence[str], depths: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
    test: set[int] = set()
    for depth in sorted(set(depths.values())):
        items = [number for number, goal in enumerate(goals) if depths[goal] == depth]
        items.sort(key=lambda number: seed_of("textcraft test", goals[number]))
        test.update(items[: round(TEST_SHARE * len(items))])
    train = tuple(number for number in range(len(goals)) if number not in test)
    return {"train": train, "test": tuple(sorted(test))}


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With other recipes: their items, split by the same rule, and their depths."""
    env = TextCraft(**settings)
    goals, depths = env.goals, env.table.depths
    split_items = _splits(goals, depths)
    return replace(TEXTCRAFT, splits=lambda: split_items, group=lambda item: f"depth {depths[goals[item]]}")


def group(item: int) -> str:
    """The depth of an item of our table."""
    table = shipped()
    return f"depth {table.depths[table.goals[item]]}"


TEXTCRAFT = EnvironmentInfo(
    name="textcraft",
    make=TextCraft,
    splits=splits,
    rules="textcraft",
    max_turns=20,
    group=group,
    item_ids={"textcraft": ""},
    published=PublishedItems(split="test", settings=("recipes", "openings")),
    parser="cleaned",
    expert=expert,
    plan=plan,
    of_settings=of_settings,
)
