"""First observations of recorded TextCraft episodes: the goal of each published number, and the commands."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from whet.envs.protocol import EnvError
from whet.envs.textcraft.recipes import Table

_COMMANDS, _GOAL = "Crafting commands:\n", "\n\nGoal: craft "


@dataclass(frozen=True, slots=True)
class Opening:
    """The first observation of one item."""

    goal: str
    commands: tuple[str, ...]


def read_openings(path: str | Path, table: Table) -> tuple[Mapping[int, Opening], Sequence[str]]:
    """The openings in a file of records, by item number, and the goals of all numbers.

    A number that was not recorded gets a goal of its depth that was not recorded, in the order of names.

    Raises: EnvError where the file holds no such records, or they do not fit the table.
    """
    place = Path(path).expanduser().resolve()
    try:
        openings = _read(place, place.stat().st_mtime_ns)
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, IndexError) as error:
        raise EnvError(f"{place} holds no recorded episodes of TextCraft: {error!r}.") from error
    goals: list[str | None] = [None] * len(table.goals)
    for number, opening in openings.items():
        is_in_table = opening.goal in table.recipes and table.lines.issuperset(opening.commands)
        fits = is_in_table and number < len(goals) and _depth(table, number) == table.depths[opening.goal]
        if not fits or opening.goal in goals:
            raise EnvError(
                f"textcraft_{number} in {place} does not fit these recipes ({opening.goal}): give the recipes that it "
                "was recorded with."
            )
        goals[number] = opening.goal
    left = {goal: None for goal in table.goals if goal not in set(goals)}
    waiting = {depth: [goal for goal in left if table.depths[goal] == depth] for depth in set(table.depths.values())}
    for number, goal in enumerate(goals):
        if goal is None:
            goals[number] = waiting[_depth(table, number)].pop(0)
    return openings, tuple(goal for goal in goals if goal is not None)


def _depth(table: Table, number: int) -> int:
    """Numbers are in the order of depth in every scheme."""
    return table.depths[table.goals[number]]


@cache
def _read(place: Path, _changed: int) -> Mapping[int, Opening]:
    openings = {}
    for record in json.loads(place.read_text(encoding="utf-8")):
        turns = record["conversations"]
        turns = ast.literal_eval(turns) if isinstance(turns, str) else turns
        shown, goal = turns[2]["value"].partition(_COMMANDS)[2].split(_GOAL)
        openings[int(record["item_id"].rpartition("_")[2])] = Opening(goal.rstrip(". \n"), tuple(shown.split("\n")))
    return openings
