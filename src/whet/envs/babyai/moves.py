"""BabyAI's actions in words: minigrid's moves for each, and which of them can be done now.

Ways are searched as in the published environment, which the recorded episodes show. A way stays in and around the view.
It avoids everything seen but doors, and passes through whatever is not seen. So a way may lead into a wall that the
agent does not know of; there it stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from whet.envs.babyai.view import HALF, SIDE, TURNS, Cell, Thing, View, name_of

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = range(6)
"""minigrid's moves."""
CHECK = "check available actions"
UNKNOWN = "The action is not recognized. Please check valid actions."
UNCHANGED = "No change in state."
_NO_WAY = ", as there is no path leading to it."
_OTHER_KEY = ", as the color of the key you are carrying does not match the color of door."

Moves = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions possible from a view, and why some others are not."""

    can: Mapping[str, Moves]
    """Moves by action, in the order in which they are listed."""
    cannot: Mapping[str, str]
    """The answer to each impossible action."""


def actions_in(view: View) -> Actions:
    """The actions of a view."""
    ways = ways_to(view, {thing.cell for thing in view.things})
    can: dict[str, Moves] = {"turn left": (LEFT,), "turn right": (RIGHT,)}
    cannot: dict[str, str] = {}
    if view.barred:
        cannot["move forward"] = "There is a barrier in front of you, you can't move forward."
    else:
        can["move forward"] = (FORWARD,)
    hands = [thing for thing in view.things if thing.thing.type != "door"]
    if view.holding is not None:
        if view.faced is None:
            can["drop"] = (DROP,)
        else:
            cannot["drop"] = "You cannot drop the object, as there is already an object in front of you."
    else:
        for thing in hands:
            _add(can, cannot, f"pickup {thing.label}", f"pickup {thing.label}", ways.get(thing.cell), (PICK_UP,))
    _add_doors(view, ways, can, cannot)
    for thing in view.things:
        _add(can, cannot, f"go to {thing.label}", f"go to {thing.label}", ways.get(thing.cell), ())
    can[CHECK] = ()
    return Actions(can, cannot)


def _add(
    can: dict[str, Moves], cannot: dict[str, str], action: str, phrase: str, way: Moves | None, then: Moves
) -> None:
    if way is None:
        cannot[action] = f"You cannot {phrase}{_NO_WAY}"
    else:
        can[action] = way + then


def _add_doors(view: View, ways: Mapping[Cell, Moves], can: dict[str, Moves], cannot: dict[str, str]) -> None:
    counted: dict[str, int] = {}
    for thing in view.things:
        if thing.thing.type != "door":
            continue
        counted[thing.name] = thing.number
        way = ways.get(thing.cell)
        if thing.thing.is_open:
            _add(can, cannot, f"go through {thing.label}", f"go through {thing.name} {counted}", way, (FORWARD,))
            continue
        action = f"toggle and go through {thing.label}"
        if thing.thing.is_locked and not _fits(view.holding, thing):
            cannot[action] = f"You cannot {action}{_OTHER_KEY}"
            continue
        # The published environment prints its count of the doors so far where the number should be.
        _add(can, cannot, action, f"toggle and go through {thing.name} {counted}", way, (TOGGLE, FORWARD))
        if way == ():
            can["toggle"] = (TOGGLE,)


def _fits(holding: Any, door: Thing) -> bool:
    return holding is not None and name_of(holding) == f"{door.thing.color} key"


def ways_to(view: View, cells: Collection[Cell]) -> dict[Cell, Moves]:
    """The fewest moves after which each cell is the next one ahead. Cells without a way are left out."""
    left = set(cells)
    ways: dict[Cell, Moves] = {}
    start = (view.agent, view.direction)
    came: dict[tuple[Cell, int], tuple[tuple[Cell, int], int] | None] = {start: None}
    waiting = deque([start])
    low, high = _bounds(view)
    while waiting and left:
        state = waiting.popleft()
        (x, y), direction = state
        ahead = (x + TURNS[direction][0], y + TURNS[direction][1])
        if ahead in left:
            left.discard(ahead)
            ways[ahead] = _back(came, state)
        after = []
        if ahead not in view.taken and low[0] <= ahead[0] <= high[0] and low[1] <= ahead[1] <= high[1]:
            after.append((FORWARD, (ahead, direction)))
        after += [(LEFT, ((x, y), (direction - 1) % 4)), (RIGHT, ((x, y), (direction + 1) % 4))]
        for move, reached in after:
            if reached not in came:
                came[reached] = (state, move)
                waiting.append(reached)
    return ways


def _back(came: Mapping[tuple[Cell, int], tuple[tuple[Cell, int], int] | None], state: tuple[Cell, int]) -> Moves:
    moves = []
    while (step := came[state]) is not None:
        state, move = step
        moves.append(move)
    return tuple(reversed(moves))


def _bounds(view: View) -> tuple[Cell, Cell]:
    """The least and the greatest cell of a way: the view's, and one more towards the upper left."""
    (x, y), (step_x, step_y) = view.agent, TURNS[view.direction]
    middle_x, middle_y = x + HALF * step_x, y + HALF * step_y
    low = (middle_x - HALF - 1, middle_y - HALF - 1)
    return low, (low[0] + SIDE, low[1] + SIDE)
