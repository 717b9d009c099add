"""A scripted expert for BabyAI: minigrid's own bot, in the words of our actions.

The bot plays a copy of the environment to its end by single moves. Each action of ours is tried on a copy too. The one
that gets furthest along the bot's way is taken: `pickup red ball 1` instead of six turns and steps.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from random import Random
from typing import Any, Protocol, Self

from whet.distribution import how_to_install
from whet.envs.babyai.moves import CHECK, DROP, FORWARD, LEFT, PICK_UP, RIGHT, TOGGLE, Actions
from whet.envs.babyai.state import fingerprint
from whet.envs.protocol import EnvError, Stepped
from whet.seeds import seed_of

_THOUGHTS = {
    "turn": (
        "What I need is not ahead of me, so I look to the {side}.",
        "I turn to the {side} and see what is there.",
        "The way on is to my {side}.",
    ),
    "move forward": (
        "One step ahead brings me nearer.",
        "The way ahead is free and leads where I want to go.",
        "I walk on; what I look for is further ahead.",
    ),
    "go to": (
        "I walk up to the {thing}.",
        "The {thing} is in sight, and next I want to stand before it.",
        "To {goal}, the {thing} is where I should be now.",
    ),
    "pickup": (
        "I need the {thing} in my hands.",
        "The {thing} is what I should take now.",
        "To {goal}, I first pick up the {thing}.",
    ),
    "drop": ("My hands should be free, and the place before me is empty.", "This is a good place to put it down."),
    "toggle": ("The door is right before me, so I use it.", "I change the state of the door in front of me."),
    "go through": ("The {thing} lets me into the next room.", "I leave through the {thing}."),
    "toggle and go through": (
        "What I look for may be behind the {thing}.",
        "I open the {thing} and walk through it.",
        "The way on is shut by the {thing}, which I can open.",
    ),
}
"""By the start of an action. The sentences are ours."""
_PREFIXES = sorted(_THOUGHTS, key=len, reverse=True)
_MOVES = {LEFT: "turn left", RIGHT: "turn right", FORWARD: "move forward", DROP: "drop", TOGGLE: "toggle"}

MAX_SUBGOALS = 500
"""Of one run of the bot; one that succeeds takes some tens."""


class Player(Protocol):
    """What the expert needs of an environment."""

    @property
    def grid(self) -> Any: ...
    @property
    def actions(self) -> Actions: ...
    @property
    def goal(self) -> str: ...
    @property
    def ended(self) -> bool: ...
    def fork(self) -> Self: ...
    def step(self, action: str) -> Stepped: ...


def demonstrate(env: Player, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yields a thought and an action for the present state, until the episode ends.

    The bot explores by what it sees, but it does so on a copy: the way that is followed knows what lies behind doors.
    Where the bot gives up, the expert turns and walks at random.
    Args:
        seed: draws the wording, and the steps where the bot has none.
    """
    random = Random(seed_of("babyai expert", seed))
    way: dict[Hashable, int] = {}
    moves: list[int] = []
    while not env.ended:
        now = _place(env.grid)
        if now not in way:
            moves, places = _bot_way(env.grid)
            way = {place: number for number, place in enumerate(places)}
        action = _furthest(env, way, way.get(now, 0))
        if action is None:
            action = _next_move(env, moves, way.get(now, 0), random)
        yield _thought(action, env.goal, random), action


def _bot_way(grid: Any) -> tuple[list[int], list[Hashable]]:
    """The bot's moves from here to the goal, and the state before each; the last state stands at the end."""
    try:
        from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError
    except ImportError as error:
        raise EnvError(f"BabyAI's expert needs minigrid: {how_to_install('envs')}") from error
    grid = copy.deepcopy(grid)
    moves: list[int] = []
    places = [_place(grid)]
    move = None
    try:
        make: Any = BabyAIBot  # minigrid says no types
        bot = make(grid)
        bot.stack = _Subgoals(bot.stack)
        while grid.step_count < grid.max_steps:
            move = int(bot.replan(move))
            moves.append(move)
            _, _, terminated, _, _ = grid.step(move)
            places.append(_place(grid))
            if terminated:
                break
    except (AssertionError, DisappearedBoxError):
        pass  # the bot gives up, and its way so far may still help
    return moves, places


class _Subgoals(list[Any]):
    """The bot's stack. It may push two subgoals in turn for ever; past MAX_SUBGOALS it gives up."""

    num_added = 0

    def append(self, subgoal: Any) -> None:
        self.num_added += 1
        assert self.num_added <= MAX_SUBGOALS
        super().append(subgoal)


def _place(grid: Any) -> Hashable:
    """The state without the number of moves."""
    return fingerprint(grid)[:-1]


def _furthest(env: Player, way: dict[Hashable, int], now: int) -> str | None:
    """The action that meets the goal or gets furthest along the way. None: no action gets further."""
    best, action = now, None
    for candidate, moves in env.actions.can.items():
        if not moves:
            continue
        after = env.fork()
        _, reward, terminated, _, _ = after.step(candidate)
        if terminated and reward > 0:
            return candidate
        reached = -1 if terminated else way.get(_place(after.grid), -1)
        if reached > best:
            best, action = reached, candidate
    return action


def _next_move(env: Player, moves: list[int], now: int, random: Random) -> str:
    can = [action for action, way in env.actions.can.items() if way]
    if now < len(moves):
        if moves[now] == PICK_UP:
            near = [action for action in can if action.startswith("pickup") and env.actions.can[action] == (PICK_UP,)]
            if near:
                return near[0]
        wanted = _MOVES.get(moves[now], CHECK)
        if wanted in can:
            return wanted
    return random.choice([action for action in can if action in ("turn left", "turn right", "move forward")])


def _thought(action: str, goal: str, random: Random) -> str:
    if action.startswith("turn "):
        return random.choice(_THOUGHTS["turn"]).format(side=action.removeprefix("turn "))
    prefix = next(start for start in _PREFIXES if action.startswith(start))
    thing = action.removeprefix(prefix).strip()
    return random.choice(_THOUGHTS[prefix]).format(thing=thing, goal=goal)
