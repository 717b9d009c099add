"""Two household games of TextWorldExpress (arXiv:2208.01174), by the package textworld-express.

In `cookingworld` the agent cooks the recipe of a cookbook, in `twc` (TextWorld Commonsense) it puts things where they
belong. An environment is a Java process (0.2 s to start, 0.15 GB). The first `reset` starts it and `close` ends it. A
step's reward is the change of the score, so that an episode's reward is its score, 0 to 1. The same item and actions
give the same episode in any order and process; `seed` changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Literal, Self

from whet.envs.household import tidying
from whet.envs.household.items import item_of, splits
from whet.envs.household.simulator import Said, Simulator, check_installed
from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Observed, Stepped
from whet.envs.scripted import steps_left

LISTED = "AVAILABLE ACTIONS: "
"""Before the list of actions in an observation, as ALFWorld's published client has it."""
_UNKNOWN = "Unknown action"
"""How the simulator's answers to unknown actions begin."""


class Household:
    """One game.

    Args:
        game: `cookingworld` or `twc`.
        list_actions: which observations end in the list of possible actions: the `first` alone, as in ALFWorld's
            published form, `all` of them, or `none`.
    Raises: EnvError where textworld-express or Java is missing.
    """

    def __init__(self, game: str, list_actions: Literal["first", "all", "none"] = "first") -> None:
        if list_actions not in ("first", "all", "none"):
            raise EnvError(f"list_actions is {list_actions!r}: give {game} first, all or none")
        check_installed(game)
        self._game, self._lists = game, list_actions
        self._simulator: Simulator | None = None
        self._item = -1
        self._actions: list[str] = []
        """Those that were understood."""
        self._gold: tuple[str, ...] | None = None
        """None: it was not asked for yet."""
        self._latest: Said | None = None
        self._score = 0.0
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        said = self._begin(item)
        text = f"{said.text.strip()}\n{self._running.task()}"
        return self._shown(text, said, is_first=True), {ACTIONS: said.actions}

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this game has not begun or has ended: call reset(item) before the next step")
        said = self._running.say(action)
        self._latest = said
        is_unknown = said.text.startswith(_UNKNOWN)
        if not is_unknown:
            self._actions.append(action)
        reward, self._score = said.score - self._score, said.score
        self._is_over = said.is_won or said.is_lost
        info = {ACTIONS: said.actions, **({INVALID: True} if is_unknown else {})}
        return self._shown(said.text.strip(), said), reward, self._is_over, False, info

    def state_key(self) -> Hashable:
        """The item and all actions so far that were understood. Two ways to one state have two keys: which
        ingredients have earned their points cannot be read from the simulator."""
        return self._game, self._item, tuple(self._actions), self._is_over

    def fork(self) -> Self:
        """By doing the same actions in a Java process of its own."""
        other = type(self)(self._game, self._lists)
        if self._item >= 0:
            other._begin(self._item)
            for action in self._actions:
                other._latest = other._running.say(action)
            other._actions = list(self._actions)
            other._score, other._is_over = self._score, self._is_over
        return other

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()
        self._simulator, self._is_over = None, True

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of this episode so far that were understood."""
        return tuple(self._actions)

    @property
    def latest(self) -> Said:
        """What the simulator said last."""
        if self._latest is None:
            raise EnvError("no game has begun: call reset(item) first")
        return self._latest

    def gold_actions(self) -> tuple[str, ...]:
        """The simulator's way from the item's start to its goal. It looks for things as an agent has to.

        In `twc` it is a random walk, and another one each time.
        """
        if self._item < 0:
            raise EnvError("no game has begun: call reset(item) before gold_actions")
        if self._gold is None:
            self._gold = _without_reopening(self._running.gold_actions())
        return self._gold

    @property
    def _running(self) -> Simulator:
        if self._simulator is None:
            self._simulator = Simulator(self._game)
        return self._simulator

    def _begin(self, item: int) -> Said:
        said = self._running.load(item_of(self._game, item))
        self._item, self._actions, self._gold, self._latest = item, [], None, said
        self._score, self._is_over = said.score, False
        return said

    def _shown(self, text: str, said: Said, *, is_first: bool = False) -> str:
        has_list = self._lists == "all" or (is_first and self._lists == "first")
        return f"{text}\n{LISTED}{','.join(said.actions)}" if has_list else text


def _without_reopening(actions: Sequence[str]) -> tuple[str, ...]:
    """A way to the goal that opens nothing twice: the simulator's ways do, and it does not understand them then. Doors
    stay, as rooms share their names."""
    kept, opened = [], set[str]()
    for action in actions:
        verb, _, thing = action.partition(" ")
        if verb == "open" and thing in opened:
            continue
        if verb == "open" and not thing.startswith("door "):
            opened.add(thing)
        elif verb == "close":
            opened.discard(thing)
        kept.append(action)
    return tuple(kept)


def expert(env: Household, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The simulator's way to a meal, from the first of its actions that was not done yet. It ends with them."""
    while left := steps_left(env.gold_actions(), env.actions):
        yield _thought(left[0]), left[0]


_WHY = {
    "look": "First I look at what there is here",
    "take": "I will need this, so I take it along",
    "read": "The recipe tells me what to gather and what to do with it",
    "open": "It is closed, and what I look for may be behind it",
    "close": "I have seen what is in it, so I leave it as it was",
    "move": "What is still missing may be in another room, so I go on",
    "prepare": "All ingredients are ready, so I put the meal together",
    "eat": "The meal is prepared, and eating it ends the task",
    "cook": "The recipe asks for this, and only this way of cooking will do",
    **dict.fromkeys(("chop", "slice", "dice"), "The recipe asks for this, and I have the knife"),
}


def _thought(action: str) -> str:
    return f"{_WHY.get(action.split(' ', 1)[0], 'This is the next step')}: {action}."


def _group(game: str, item: int) -> str:
    return item_of(game, item).level.name


def _info(game: str, expert: Callable[..., Iterator[tuple[str, str]]]) -> EnvironmentInfo:
    return EnvironmentInfo(
        name=game,
        make=partial(Household, game),
        splits=splits,
        rules=game,
        max_turns=40,
        group=partial(_group, game),
        item_ids={game: ""},
        needs="household",
        expert=expert,
    )


COOKINGWORLD = _info("cookingworld", expert)
TWC = _info("twc", tidying.expert)
