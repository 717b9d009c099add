"""A scripted expert for `twc`: it walks through the rooms, takes what lies about, and puts it where it belongs.

It sees what an agent sees, and knows from the package's own list where things usually belong. The simulator's way to
the goal is not used here: it is a random walk, and another one each time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whet.envs.household.simulator import Said, usual_places

if TYPE_CHECKING:
    from whet.envs.household.environment import Household

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

_ROOM = re.compile(r"You are in the (.+?)\.")
_PUT = re.compile(r"put (.+) in (.+)")
_OPEN = re.compile(r"open (?!door to )(.+)")
_TAKE = re.compile(r"take (.+)")
_MOVE = re.compile(r"move (.+)")
_ARTICLE = re.compile(r"^(?:an?|some|the) ")


class _Memory:
    """What the expert has seen in an episode."""

    def __init__(self) -> None:
        self.exits: dict[str, dict[str, str | None]] = {}
        """By room and direction, the room behind. None: not seen yet."""
        self.looks: dict[str, str] = {}
        """By room, what it looked like last."""
        self.placed: set[str] = set()
        self.room = ""
        self._num_actions = 0

    def update(self, env: Household) -> None:
        """Takes in what was said last, and where the last move led."""
        said, done = env.latest, env.actions
        match = _ROOM.search(said.look)
        before, self.room = self.room, match[1] if match else ""
        moved = _MOVE.fullmatch(done[-1]) if len(done) == self._num_actions + 1 else None
        self._num_actions = len(done)
        exits = self.exits.setdefault(self.room, {})
        for action in said.actions:
            if direction := _MOVE.fullmatch(action):
                exits.setdefault(direction[1], None)
        if moved and before and before != self.room:
            self.exits[before][moved[1]] = self.room
            exits[OPPOSITE[moved[1]]] = before
        self.looks[self.room] = said.look

    def way_to(self, places: frozenset[str]) -> str | None:
        """The first direction of a shortest way to a room that has one of the places, or else to a room not seen yet.
        None: there is neither."""
        to_unseen = None
        queue: deque[tuple[str, str]] = deque([(self.room, "")])
        seen = {self.room}
        while queue:
            room, first = queue.popleft()
            if first and any(place in self.looks[room] for place in places):
                return first
            for direction, behind in sorted(self.exits[room].items()):
                if behind is None:
                    to_unseen = to_unseen or first or direction
                elif behind not in seen:
                    seen.add(behind)
                    queue.append((behind, first or direction))
        return to_unseen


def expert(env: Household, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Says and does the next thing, until all is in its place, or no room is left to look into."""
    memory = _Memory()
    while True:
        memory.update(env)
        step = _next(memory, env.latest)
        if step is None:
            return
        yield step


def _next(memory: _Memory, said: Said) -> tuple[str, str] | None:
    usual = usual_places()
    for action in said.actions:
        put = _PUT.fullmatch(action)
        if put and put[2] in usual.get(put[1], ()):
            memory.placed.add(put[1])
            return f"The {put[1]} usually belongs there: I put it in the {put[2]}.", action
    for action in said.actions:
        take = _TAKE.fullmatch(action)
        if take and take[1] not in memory.placed:
            memory.placed.discard(take[1])
            return f"The {take[1]} lies in the wrong place, so I take it along.", action
    wanted = frozenset(place for thing in _held(said) for place in usual.get(thing, ()))
    for action in said.actions:
        opened = _OPEN.fullmatch(action)
        if opened and opened[1] in wanted:
            return f"Something that I carry belongs in the {opened[1]}, so I open it.", action
    direction = memory.way_to(wanted)
    if direction is None:
        return None
    if re.search(rf"To the {direction} you see a closed ", said.look, re.IGNORECASE):
        return f"There may be more behind the door to the {direction}, so I open it.", f"open door to {direction}"
    reason = "For what I carry I need another room" if wanted else "Here is nothing left to do"
    return f"{reason}, so I go {direction}.", f"move {direction}"


def _held(said: Said) -> list[str]:
    """The names of what is carried."""
    lines = (line.strip() for line in said.inventory.splitlines()[1:])
    return [_ARTICLE.sub("", line) for line in lines if line and "empty" not in line]
