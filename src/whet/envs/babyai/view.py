"""The view of BabyAI's agent, in words: the things in it, the walls, what it faces and what it carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.envs.protocol import Picture

Cell = tuple[int, int]
"""Column and row of the grid, from the upper left."""

SIDE = 7
"""Cells of the view, ahead and across. The agent stands in the middle of its nearest row."""
HALF = SIDE // 2
TURNS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""A step ahead by direction, as minigrid numbers them: east, south, west, north."""
_ARROWS = (">", "v", "<", "^")
_BARRIERS = ("wall", "box")
"""The text names these as faced, and `move forward` is refused before them. Others stop the agent silently."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in view, but no wall."""

    name: str
    """`red ball`, `grey locked door`."""
    number: int
    """From 1 among those with the same name, the nearest first."""
    ahead: int
    aside: int
    """Steps to the right; below 0 to the left."""
    cell: Cell
    thing: Any
    """minigrid's own object."""

    @property
    def label(self) -> str:
        return f"{self.name} {self.number}"

    def __str__(self) -> str:
        if self.aside == 0:
            return f"There is a {self.label} right in front of you {self.ahead} steps away. "
        side = "right" if self.aside > 0 else "left"
        return (
            f"There is a {self.label} {self.ahead} steps in front of you and {abs(self.aside)} steps to your {side}. "
        )


@dataclass(frozen=True, slots=True)
class View:
    """What is seen from where the agent stands."""

    agent: Cell
    direction: int
    things: tuple[Thing, ...]
    """By their distance, on the shortest way; among equals the farther ahead, then the farther left, comes first."""
    taken: frozenset[Cell]
    """Cells in view that no way leads through: all but empty ones and doors."""
    ahead: tuple[Any, ...]
    """What is in the cells straight ahead, the nearest first, as far as is seen; None for an empty one."""
    holding: Any
    anything: bool
    """Whether there is anything at all, walls included, in view."""

    @property
    def faced(self) -> str | None:
        """The type of what is in the very next cell; None where it is empty."""
        return self.ahead[0].type if self.ahead and self.ahead[0] is not None else None

    @property
    def barred(self) -> bool:
        return self.faced in _BARRIERS

    def describe(self) -> str:
        """The observation, without goal and actions."""
        carrying = f"You are carrying a {name_of(self.holding)}." if self.holding else "You are not carrying anything."
        if not self.anything:
            return f"You cannot see any objects within sight.The room has walls around you. {carrying}"
        seen = "".join(f"{thing} " for thing in self.things)
        return (
            f"In front of you in this room, you can see several objects: {seen}The room has walls around you. "
            f"{self._facing()}{carrying}"
        )

    def _facing(self) -> str:
        for steps, thing in enumerate(self.ahead, start=1):
            if thing is not None and thing.type in _BARRIERS:
                return f"You are facing a {thing.type} {steps} steps away. "
            if thing is not None and thing.type == "door" and not thing.is_open:
                return ""
        return ""


def name_of(thing: Any) -> str:
    """Colour and type; a door with its state."""
    if thing.type != "door":
        return f"{thing.color} {thing.type}"
    state = "open" if thing.is_open else "locked" if thing.is_locked else "closed"
    return f"{thing.color} {state} door"


def agent_of(env: Any) -> tuple[Cell, int]:
    """Where minigrid's agent stands, and its direction."""
    x, y = env.agent_pos
    return (int(x), int(y)), int(env.agent_dir)


def look(env: Any) -> View:
    """The present view of a minigrid agent."""
    agent, direction = agent_of(env)
    rows = _in_view(env.grid, agent, direction)
    seen = _lit(rows)
    sightings: list[tuple[int, int, int, Cell, Any]] = []
    taken: list[Cell] = []
    for ahead in range(SIDE):
        for place in range(SIDE):
            cell, thing = rows[ahead][place]
            if thing is None or not seen[ahead][place] or (ahead, place) == (0, HALF):
                continue
            if thing.type != "door":
                taken.append(cell)
            if thing.type != "wall":
                aside = place - HALF
                sightings.append((ahead + abs(aside), -ahead, aside, cell, thing))
    straight = tuple(rows[ahead][HALF][1] for ahead in range(1, SIDE) if seen[ahead][HALF])
    anything = bool(sightings or taken)
    return View(agent, direction, _numbered(sightings), frozenset(taken), straight, env.carrying, anything)


def _numbered(sightings: list[tuple[int, int, int, Cell, Any]]) -> tuple[Thing, ...]:
    count: Counter[str] = Counter()
    things = []
    for _, behind, aside, cell, thing in sorted(sightings, key=lambda sighting: sighting[:3]):
        name = name_of(thing)
        count[name] += 1
        things.append(Thing(name, count[name], -behind, aside, cell, thing))
    return tuple(things)


_Rows = Sequence[Sequence[tuple[Cell, Any]]]


def _in_view(grid: Any, agent: Cell, direction: int) -> _Rows:
    """The view's cells, the agent's own row first, each from left to right; None for what is outside the grid."""
    (ahead_x, ahead_y), (right_x, right_y) = TURNS[direction], TURNS[(direction + 1) % 4]
    rows = []
    for ahead in range(SIDE):
        row = []
        for aside in range(-HALF, HALF + 1):
            x = agent[0] + ahead * ahead_x + aside * right_x
            y = agent[1] + ahead * ahead_y + aside * right_y
            inside = 0 <= x < grid.width and 0 <= y < grid.height
            row.append(((x, y), grid.get(x, y) if inside else None))
        rows.append(row)
    return rows


def _lit(rows: _Rows) -> list[list[bool]]:
    """Which of the view's cells are seen, by minigrid's rule.

    Sight spreads from the agent sideways and ahead, never back, and not past a wall or a shut door.
    """
    lit = [[False] * SIDE for _ in range(SIDE)]
    lit[0][HALF] = True
    for ahead in range(SIDE):
        for places, side in ((range(SIDE - 1), 1), (range(SIDE - 1, 0, -1), -1)):
            for place in places:
                thing = rows[ahead][place][1]
                if not lit[ahead][place] or (thing is not None and not thing.see_behind()):
                    continue
                lit[ahead][place + side] = True
                if ahead + 1 < SIDE:
                    lit[ahead + 1][place] = lit[ahead + 1][place + side] = True
    return lit


def picture(env: Any) -> Picture:
    """The whole grid from above, with what the agent does not see."""
    grid, ((x, y), direction) = env.grid, agent_of(env)
    names = ["" if thing is None else "wall" if thing.type == "wall" else name_of(thing) for thing in grid.grid]
    names[y * grid.width + x] = f"agent {_ARROWS[direction]}"
    return [names[start : start + grid.width] for start in range(0, len(names), grid.width)]
