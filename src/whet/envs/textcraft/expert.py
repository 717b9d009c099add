"""A scripted expert for TextCraft: it counts the items needed, from the goal down, and gets or crafts the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from random import Random
from typing import TYPE_CHECKING

from whet.envs.textcraft.recipes import Recipe, Table
from whet.seeds import seed_of

if TYPE_CHECKING:
    from whet.envs.textcraft.environment import TextCraft

LOOK_FIRST = 0.2
"""The share of episodes that begin with a look at the inventory."""

_LOOKING = (
    "Before I plan anything I check what I have with me.",
    "First I want to know whether I am carrying something already.",
    "Let me see what is in my inventory.",
)
_GETTING = (
    "For the {goal} I need {number} {name}, and no command makes that, so I fetch it.",
    "{number} {name} is still missing. It is not crafted by any command, so it can be found.",
    "No command makes {name}, so I get the {number} that the plan calls for.",
    "I have too little {name}; {number} more will be enough for all the steps ahead.",
)
_CRAFTING = (
    "I carry all that {name} takes, and it is needed on the way to the {goal}.",
    "Next comes {name}: its ingredients are all here.",
    "The {goal} depends on {name}, and I can make that now.",
    "With {used} in hand I can turn to {name}.",
)
_FINISHING = (
    "All ingredients of the {goal} are here, so this is the last step.",
    "Now nothing is missing any more: I craft the {goal} itself.",
    "I have {used}, which is just what the {goal} takes.",
)

Choice = tuple[Recipe, tuple[tuple[int, str], ...]]
"""A recipe, and its inputs with an item in place of each generic ingredient."""


class Planner:
    """What to do next towards one goal."""

    def __init__(self, table: Table, goal: str) -> None:
        self._table = table
        self._choices: dict[str, Choice] = {}
        self._costs: dict[str, float] = {}
        self.goal = goal
        self._order: tuple[str, ...] = self._ordered()

    def plan(self, carried: Mapping[str, int]) -> str:
        """The items still to be crafted, from the goal down, each with all its inputs."""
        parts = []
        for name, lack in self._lacking(carried).items():
            if name in self._choices:
                recipe, inputs = self._choices[name]
                parts.append(f"For {lack} {name} I need {_listed(inputs, ceil(lack / recipe.count))}.")
        return " ".join(parts)

    def next(self, carried: Mapping[str, int], random: Random) -> tuple[str, str]:
        """A thought and an action: the last step of the plan that can be done now."""
        for name, lack in reversed(self._lacking(carried).items()):
            if name not in self._choices:
                thought = random.choice(_GETTING).format(goal=self.goal, number=lack, name=name)
                return thought, f"get {lack} {name}"
            if all(carried.get(ingredient, 0) >= number for number, ingredient in self._choices[name][1]):
                return self._crafting(name, random)
        raise AssertionError("an item's inputs stand after it in the plan, and base items can always be had")

    def _lacking(self, carried: Mapping[str, int]) -> dict[str, int]:
        """The missing items and their numbers, each before its ingredients."""
        needed, lacking = Counter({self.goal: 1 + carried.get(self.goal, 0)}), {}
        for name in self._order:
            if (lack := needed[name] - carried.get(name, 0)) <= 0:
                continue
            lacking[name] = lack
            recipe, inputs = self._choices.get(name, (None, ()))
            for number, ingredient in inputs:
                needed[ingredient] += number * ceil(lack / (recipe.count if recipe else 1))
        return lacking

    def _crafting(self, name: str, random: Random) -> tuple[str, str]:
        recipe, inputs = self._choices[name]
        used = _listed(inputs)
        thought = random.choice(_FINISHING if name == self.goal else _CRAFTING)
        return thought.format(goal=self.goal, name=name, used=used), f"craft {recipe.count} {name} using {used}"

    def _ordered(self) -> tuple[str, ...]:
        """All items of the plan, each before its ingredients."""
        self._cost(self.goal)
        order: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in order:
                return
            for _, ingredient in reversed(self._choices[name][1] if name in self._choices else ()):
                visit(ingredient)
            order[name] = None

        visit(self.goal)
        return tuple(reversed(order))

    def _cost(self, name: str) -> float:
        """Crafting actions for one piece, roughly. A base item costs next to nothing: one action gets any number."""
        if name not in self._table.recipes:
            return 0.01
        if name not in self._costs:
            ways = [(recipe, self._items(recipe.inputs)) for recipe in self._table.recipes[name]]
            costs = [self._cost_of(*way) for way in ways]
            self._costs[name] = min(costs)
            self._choices[name] = ways[costs.index(min(costs))]
        return self._costs[name]

    def _cost_of(self, recipe: Recipe, inputs: Sequence[tuple[int, str]]) -> float:
        return (1 + sum(number * self._cost(ingredient) for number, ingredient in inputs)) / recipe.count

    def _items(self, inputs: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        """Inputs with the cheapest item in place of a generic ingredient, and none twice where that can be helped."""
        named = {name for _, name in inputs}
        chosen = []
        for number, name in inputs:
            if name in self._table.members:
                name = min(self._table.members[name], key=lambda item: (item in named, self._cost(item), item))
            chosen.append((number, name))
        return tuple(chosen)


def _listed(inputs: Sequence[tuple[int, str]], times: int = 1) -> str:
    return ", ".join(f"{number * times} {name}" for number, name in inputs)


def plan(env: TextCraft) -> str:
    """The items still to be crafted, from the goal down, as in the expert's first thought."""
    return Planner(env.table, env.goal).plan(env.inventory)


def expert(env: TextCraft, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yields a thought and an action until the goal is made. The wording depends on the seed.

    The first thought about the goal is the whole plan, so that later thoughts can refer to it.
    """
    random = Random(seed_of("textcraft expert", seed, env.goal))
    planner = Planner(env.table, env.goal)
    if not env.has_ended and not env.inventory and random.random() < LOOK_FIRST:
        yield random.choice(_LOOKING), "inventory"
    plan = planner.plan(env.inventory)
    while not env.has_ended:
        thought, action = planner.next(env.inventory, random)
        yield plan or thought, action
        plan = ""
