"""The maze of LMRL-Gym (arXiv:2311.18232) as in AgentGym: walk to the goal of a double T by words.

A cell is (row, column) from the upper left corner. The observation says where the agent is, where the goal is and which
of the four cells beside it are walls. Layout, order of the starts and every sentence are the published ones, so that
recorded episodes replay to the letter. There is no chance in it, so seeds change nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from whet.envs.protocol import (
    ACTIONS,
    INVALID,
    PICTURE,
    EnvError,
    EnvironmentInfo,
    Info,
    Observed,
    Picture,
    PublishedItems,
    Stepped,
)

Cell = tuple[int, int]

LAYOUT = (
    "#############",
    "#.....#.....#",
    "###.#####.###",
    "###.#####.###",
    "###.#####.###",
    "###.......###",
    "######.######",
    "######.######",
    "######.######",
    "#############",
)
GOAL: Cell = (8, 6)
STARTS: tuple[Cell, ...] = (
    *((1, column) for column in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)),
    *((2, 3), (3, 3), (4, 3), (5, 3), (5, 4), (5, 5), (5, 6), (6, 6), (7, 6)),
    *((5, 7), (5, 8), (5, 9), (4, 9), (3, 9), (2, 9), GOAL),
)
"""Start cells by item. The last is the goal itself: there, any step that stays is a success."""
MOVES: dict[str, Cell] = {"move left": (0, -1), "move right": (0, 1), "move up": (-1, 0), "move down": (1, 0)}
MAX_MOVES = 50
"""The step after this many is answered by `FAILURE`, and moves nothing."""
SUCCESS = "Success\n"
FAILURE = "Failure\n"

_SIDES = {"to your right": (0, 1), "to your left": (0, -1), "above you": (-1, 0), "below you": (1, 0)}


def _is_free(cell: Cell) -> bool:
    return LAYOUT[cell[0]][cell[1]] == "."


def _beside(cell: Cell, delta: Cell) -> Cell:
    return cell[0] + delta[0], cell[1] + delta[1]


def describe(cell: Cell) -> str:
    """The observation in a cell."""
    walls = [side for side, delta in _SIDES.items() if not _is_free(_beside(cell, delta))]
    if len(walls) > 1:
        around = f"There are walls {', '.join(walls)}."
    else:
        around = f"There is a wall {walls[0]}." if walls else "There are no walls near you."
    goal, here = f"{GOAL[0]}, {GOAL[1]}", f"{cell[0]}, {cell[1]}"
    return f"The goal is at position {goal}. Your current position is at position {here}. {around}\n"


def draw(agent: Cell) -> Picture:
    """The maze from above."""
    names = {"#": "wall", ".": ""}
    rows = [[names[mark] for mark in line] for line in LAYOUT]
    rows[GOAL[0]][GOAL[1]] = "goal"
    rows[agent[0]][agent[1]] = "agent"
    return tuple(map(tuple, rows))


def distances() -> dict[Cell, int]:
    """Moves from each free cell to the goal, by breadth-first search."""
    steps, queue = {GOAL: 0}, deque([GOAL])
    while queue:
        cell = queue.popleft()
        for delta in MOVES.values():
            other = _beside(cell, delta)
            if _is_free(other) and other not in steps:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps


@dataclass(frozen=True, slots=True)
class _Place:
    """The answers in a cell, computed once."""

    says: str
    leads: Mapping[str, Cell]
    info: Info


_DISTANCE = distances()
_PLACES: dict[Cell, _Place] = {}
for _cell in STARTS:
    _leads = {move: _beside(_cell, delta) for move, delta in MOVES.items() if _is_free(_beside(_cell, delta))}
    _PLACES[_cell] = _Place(describe(_cell), _leads, {ACTIONS: tuple(_leads), PICTURE: draw(_cell)})


class Maze:
    """One walk. The reward is 1 for the step that ends in the goal, and 0 for all others.

    A move into a wall and any other text change nothing but count as a step; a step's info has `invalid` for them.
    """

    def __init__(self) -> None:
        self._cell: Cell = GOAL
        self._moves = 0
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        if not 0 <= item < len(STARTS):
            raise EnvError(f"maze has no item {item}: its items are 0 to {len(STARTS) - 1}, one a start cell")
        self._cell = STARTS[item]
        self._moves = 0
        self._is_over = False
        place = _PLACES[self._cell]
        return place.says, dict(place.info)

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this walk has not begun or has ended: call reset(item) before the next step")
        place = _PLACES[self._cell]
        if self._moves >= MAX_MOVES:
            self._is_over = True
            return FAILURE, 0.0, False, True, dict(place.info)
        self._moves += 1
        leads_to = place.leads.get(action)
        if leads_to is not None:
            self._cell = leads_to
            place = _PLACES[leads_to]
        info = dict(place.info)
        if leads_to is None:
            info[INVALID] = True
        if self._cell == GOAL:
            self._is_over = True
            return SUCCESS, 1.0, True, False, info
        return place.says, 0.0, False, False, info

    def state_key(self) -> Hashable:
        """The cell, the moves made (there is a limit on them), and whether it is over."""
        return self._cell, self._moves, self._is_over

    def fork(self) -> Self:
        other = type(self)()
        other._cell, other._moves, other._is_over = self._cell, self._moves, self._is_over
        return other

    def close(self) -> None:
        self._is_over = True

    @property
    def cell(self) -> Cell:
        """Where the agent is now."""
        return self._cell


def expert(env: Maze, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The shortest way, by breadth-first search from the goal."""
    while True:
        cell = env.cell
        if cell == GOAL:
            yield "I stand on the goal already. Walking into the wall keeps me there.", "move down"
            continue
        leads = _PLACES[cell].leads
        action = min(leads, key=lambda move: _DISTANCE[leads[move]])
        yield _thought(cell, action), action


def _thought(cell: Cell, action: str) -> str:
    steps = _DISTANCE[cell]
    way = action.removeprefix("move ")
    here = f"I am at {cell[0]}, {cell[1]} and the goal is at {GOAL[0]}, {GOAL[1]}"
    if steps == 1:
        return f"{here}, right {'below' if way == 'down' else way} of me: I go {way}."
    others = len(_PLACES[cell].leads) - 1
    why = f"of the {others + 1} ways that are open, the one that leads there" if others else "the only way that is open"
    return f"{here}. I go {way}, {why}; {steps - 1} more moves after this one."


def splits() -> Mapping[str, Sequence[int]]:
    """`train` and `test` have no cell in common, nor the goal; the published lists share 10 of 25."""
    ours = range(len(STARTS) - 1)
    return {
        "train": tuple(item for item in ours if item % 3 != 2),
        "test": tuple(item for item in ours if item % 3 == 2),
        "published_train": (*range(13, 23), 25),  # without repetitions: the list names most of them many times
        "published_test": range(25),
    }


MAZE = EnvironmentInfo(
    name="maze",
    make=Maze,
    splits=splits,
    rules="maze",
    max_turns=15,
    item_ids={"lmrlgym_maze": ""},
    published=PublishedItems(split="published_test", is_list=True),
    parser="after_action",
    expert=expert,
)
