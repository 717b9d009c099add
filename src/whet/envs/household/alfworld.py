"""ALFWorld (arXiv:2010.03768) as in AgentGym: household goals in text, with a user's own games.

Items are numbered by AgentGym's two files of mappings: 0 to 2419 are of ALFWorld's `train`, 2420 to 2619 of
`valid_train`. Neither games nor mappings ship with whet. Games run in this process, by the packages alfworld and
textworld. The same item and actions give the same episode; `seed` changes nothing. The reward is 1 for the goal.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from whet.distribution import how_to_install
from whet.envs.household.environment import LISTED
from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Observed, PublishedItems, Stepped
from whet.envs.scripted import steps_left

NUM_TRAIN, NUM_ITEMS = 2420, 2620
FOLDERS = (("mappings_train.json", "train"), ("mappings_test.json", "valid_train"))
"""AgentGym's files of mappings, and the folder of ALFWorld that each is about."""
GAMES = "json_2.1.1"
NOTHING_HAPPENS = "Nothing happens."
"""The game's answer to an action that it does not know, or that cannot be done now."""

_ARRIVED = "You arrive at loc "


class AlfWorld:
    """One game.

    Args:
        data: ALFWorld's folder, with `json_2.1.1` in it: where `alfworld-download` puts it.
        mappings: the folder of AgentGym's `mappings_train.json` and `mappings_test.json`.
    Raises: EnvError where one is missing.
    """

    def __init__(self, data: str | Path | None = None, *, mappings: str | Path | None = None) -> None:
        if data is None or mappings is None:
            raise EnvError(
                "alfworld needs your games: give data=FOLDER, where alfworld-download puts them (~/.cache/alfworld), "
                "and mappings=FOLDER, AgentGym's agentenv-alfworld/configs; cookingworld and twc need no data"
            )
        self._games = read_games(Path(data), Path(mappings))
        self._item = -1
        self._game: Any = None
        self._state: Any = None
        self._actions: list[str] = []
        """Those that changed something."""
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        self.check_item(item)
        if self._item != item or self._game is None:
            self._close_game()
            self._game = _start(self._games[item])
        self._state = self._game.reset()
        self._item, self._actions, self._is_over = item, [], False
        # The game begins with a title, and AgentGym's server leaves it out.
        text = "\n".join(self._state.feedback.split("\n\n")[1:])
        return f"{text}\n{LISTED}{','.join(self.listed)}", {ACTIONS: self.listed}

    def check_item(self, item: int) -> None:
        """Raises: EnvError where there is no such item."""
        if not 0 <= item < len(self._games):
            raise EnvError(f"alfworld has the items 0 to {len(self._games) - 1}, not {item}")

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this game has not begun or has ended: call reset(item) before the next step")
        self._state, _, is_done = self._game.step(action)
        text = self._state.feedback.strip()
        if text.startswith(_ARRIVED):
            text = text[text.find(". ") + 2 :]
        is_known = text != NOTHING_HAPPENS
        if is_known:
            self._actions.append(action)
        self._is_over = bool(is_done or self._state.won)
        info = {ACTIONS: self.listed, **({} if is_known else {INVALID: True})}
        return text, float(self._state.won), self._is_over, False, info

    def state_key(self) -> Hashable:
        """The item and all actions so far that did something. Two ways to one state have two keys."""
        return self._item, tuple(self._actions), self._is_over

    def fork(self) -> Self:
        """By doing the same actions in another game."""
        other = type(self).__new__(type(self))
        other._games, other._item, other._game, other._state = self._games, -1, None, None
        other._actions, other._is_over = [], True
        if self._item >= 0:
            other.reset(self._item)
            for action in self._actions:
                other.step(action)
            other._is_over = self._is_over
        return other

    def close(self) -> None:
        self._close_game()
        self._is_over = True

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of this episode so far that did something."""
        return tuple(self._actions)

    def walkthrough(self) -> tuple[str, ...]:
        """The game's own way from its start to the goal, or the planner's where the game has none."""
        if self._item < 0:
            raise EnvError("no game has begun: call reset(item) before walkthrough")
        return _walkthrough_of(self._games[self._item])

    @property
    def listed(self) -> tuple[str, ...]:
        """The actions that are possible now."""
        return tuple(self._state.admissible_commands)

    @property
    def task(self) -> str:
        """The kind and number of the task, as the published server names it."""
        return "/".join(self._games[self._item].parts[-3:-1])

    def _close_game(self) -> None:
        if self._game is not None:
            self._game.close()
        self._game = None


@cache
def read_games(data: Path, mappings: Path) -> tuple[Path, ...]:
    """The files of all games, by item.

    Raises: EnvError where a file of mappings cannot be read, or the folder holds no games.
    """
    root = data.expanduser() / GAMES
    if not root.is_dir():
        raise EnvError(f"there is no folder {root}: give data=FOLDER, where alfworld-download puts {GAMES}")
    games = []
    for name, folder in FOLDERS:
        path = mappings.expanduser() / name
        try:
            entries = json.loads(path.read_bytes())
            games += [root / folder / entry["task_type"] / entry["task_id"] / "game.tw-pddl" for entry in entries]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise EnvError(f"cannot read {path}: {error!r}; give AgentGym's agentenv-alfworld/configs") from error
        if name == FOLDERS[0][0] and len(games) != NUM_TRAIN:
            raise EnvError(
                f"{path} names {len(games)} games, and the published file {NUM_TRAIN}: give the published one"
            )
    return tuple(games)


def _start(path: Path, *, with_walkthrough: bool = False) -> Any:
    """A game, not yet begun.

    Raises: EnvError where alfworld or the game is missing.
    """
    try:
        textworld, misc = import_module("textworld"), import_module("alfworld.agents.utils.misc")
    except ImportError as error:
        raise EnvError(f"alfworld needs the package alfworld ({error}): {how_to_install('alfworld')}") from error
    if not path.is_file():
        raise EnvError(f"there is no game {path}: download ALFWorld's data again, or leave this item out")
    extras = ["walkthrough"] if with_walkthrough else []
    asked = textworld.EnvInfos(won=True, admissible_commands=True, extras=extras)
    return textworld.start(str(path), asked, wrappers=[_named(textworld, misc.Demangler)])


def _named(textworld: Any, demangler: Any) -> Any:
    """A wrapper of a game that gives things their names: `mug 1` for `Mug_bar__plus_01`.

    alfworld's own wrapper does the same. It cannot be imported without a 3D simulator and OpenCV.
    """

    class Named(textworld.core.Wrapper):  # textworld is imported late
        def load(self, *arguments: Any, **options: Any) -> None:
            super().load(*arguments, **options)
            names = demangler(game_infos=self._entity_infos, shuffle=False)
            for info in self._entity_infos.values():
                info.name = names.demangle_alfred_name(info.id)

    return Named


@cache
def _walkthrough_of(path: Path) -> tuple[str, ...]:
    game = _start(path, with_walkthrough=True)
    try:
        return tuple(game.reset()["extra.walkthrough"])
    finally:
        game.close()


def expert(env: AlfWorld, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The game's own way to the goal, from the first of its actions that was not done yet. It ends with them."""
    while left := steps_left(env.walkthrough(), env.actions):
        yield f"Next on the way to the goal is {left[0]!r}.", left[0]


def group_of(game: Path) -> str:
    """The kind of task of a game, such as `pick_and_place_simple`."""
    return game.parts[-3].partition("-")[0]


def splits() -> Mapping[str, Sequence[int]]:
    """As published: `test` is AgentEval's list."""
    return {"train": range(NUM_TRAIN), "test": range(NUM_TRAIN, NUM_ITEMS)}


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With a user's games: their kinds of task as subgroups, and their names, which published training lists have."""
    games = AlfWorld(**settings)._games
    parts = {"train": range(NUM_TRAIN), "test": range(NUM_TRAIN, len(games))}
    named_items = {f"{game.parts[-3]}_{game.parts[-2]}": item for item, game in enumerate(games)}
    return replace(ALFWORLD, splits=lambda: parts, group=lambda item: group_of(games[item]), named_items=named_items)


ALFWORLD = EnvironmentInfo(
    name="alfworld",
    make=AlfWorld,
    splits=splits,
    rules="alfworld",
    max_turns=30,
    item_ids={"alfworld": ""},
    published=PublishedItems(split="test", is_list=True, settings=("data", "mappings")),
    needs="alfworld",
    expert=expert,
    of_settings=of_settings,
)
