"""BabyAI (arXiv:1810.08272): instructions in a grid world, with actions in words as AgentGym publishes it.

minigrid simulates the grid; the text and the actions are in `babyai.view` and `babyai.moves`. An item is a level and a
seed: its number is level - 1 + 40 * seed. The observation is that of the recorded episodes of AgentTraj-L, with the
line of available actions that the published server adds.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Hashable
from typing import Any, Self

from whet.distribution import how_to_install
from whet.envs.babyai.expert import demonstrate
from whet.envs.babyai.levels import LEVELS, group, level_and_seed, splits
from whet.envs.babyai.moves import FORWARD, UNCHANGED, UNKNOWN, Actions, actions_in
from whet.envs.babyai.state import fingerprint
from whet.envs.babyai.view import View, agent_of, look, picture
from whet.envs.protocol import (
    ACTIONS,
    INVALID,
    PICTURE,
    EnvError,
    EnvironmentInfo,
    Info,
    Observed,
    PublishedItems,
    Stepped,
)

_SPOKEN = ((", then ", ", and "), (" after you ", " and "))
"""The published goal says no order."""


class BabyAI:
    """One of minigrid's levels at a time, in words. Each level's grid is made once and reset for every further item."""

    def __init__(self) -> None:
        self._envs: dict[int, Any] = {}
        self._env: Any = None
        self._item = -1
        self._ended = True
        self._view: View
        self._actions: Actions

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """Begin an item anew. The item determines everything; `seed` changes nothing.

        Raises: EnvError for a number below 0, or where minigrid is not installed.
        """
        level, grid_seed = level_and_seed(item)
        if level not in self._envs:
            self._envs[level] = _make(level)
        self._env = self._envs[level]
        self._env.reset(seed=grid_seed)
        self._item, self._ended = item, False
        self._look()
        return self._said(f"Your goal: {self.goal}\n{self._view.describe()}"), self._info()

    def step(self, action: str) -> Stepped:
        """Do the agent's action.

        An action of several moves ends where the agent cannot go on. As published, only its last move counts: a goal
        that is met on the way and left again is not met.
        Returns: on success minigrid's reward, 1 - 0.9 * moves so far / the level's limit; 0 otherwise. It is cut at
            that limit, which counts moves and not actions.
        Raises: EnvError before `reset`, and after the end.
        """
        if self._ended:
            raise EnvError("The episode has not begun or has ended: call reset with an item.")
        action = action.lower().strip()
        if "check" in action:
            return self._answer(f"You can take the following actions: {', '.join(self._actions.can)}")
        moves = self._actions.can.get(action)
        if moves is None:
            answer = UNCHANGED if not action else self._actions.cannot.get(action, UNKNOWN)
            return self._answer(answer, invalid=True)
        if not moves:
            return self._answer(UNCHANGED)
        reward, terminated = self._move(moves)
        truncated = not terminated and self._env.step_count >= self._env.max_steps
        self._ended = terminated or truncated
        self._look()
        return self._said(self._view.describe()), reward, terminated, truncated, self._info()

    @property
    def goal(self) -> str:
        """The instruction."""
        goal = str(self._env.mission)
        for ours, theirs in _SPOKEN:
            goal = goal.replace(ours, theirs)
        return goal

    @property
    def grid(self) -> Any:
        """minigrid's environment, in its present state. The agent acts on it only through `step`.

        Raises: EnvError before `reset`.
        """
        if self._env is None:
            raise EnvError("There is no grid yet: call reset with an item.")
        return self._env

    @property
    def actions(self) -> Actions:
        """What can be done now."""
        return self._actions

    @property
    def view(self) -> View:
        """What is seen now."""
        return self._view

    @property
    def ended(self) -> bool:
        return self._ended

    def state_key(self) -> Hashable:
        """Item, grid, agent, what it carries, how far the instruction is done, and the moves made so far.

        The reward depends on the moves, so that the same place reached later is another state.
        """
        return (self._item, self._ended, *fingerprint(self.grid))

    def fork(self) -> Self:
        other = copy.copy(self)
        # The levels' grids stay here, and the fork makes new ones: both may reset to the same level.
        other._envs = {}
        if self._env is not None:
            other._env = copy.deepcopy(self._env)
            other._envs[level_and_seed(self._item)[0]] = other._env
            other._look()
        return other

    def close(self) -> None:
        self._envs.clear()
        self._env, self._ended = None, True

    def _move(self, moves: tuple[int, ...]) -> tuple[float, bool]:
        reward, terminated = 0.0, False
        for move in moves:
            before = agent_of(self._env)
            _, reward, terminated, _, _ = self._env.step(move)
            if move == FORWARD and agent_of(self._env) == before:
                break
        return float(reward), bool(terminated)

    def _look(self) -> None:
        self._view = look(self._env)
        self._actions = actions_in(self._view)

    def _answer(self, words: str, *, invalid: bool = False) -> Stepped:
        info = self._info()
        if invalid:
            info[INVALID] = True
        return self._said(words), 0.0, False, False, info

    def _said(self, words: str) -> str:
        return f"{words}\nAvailable actions: {json.dumps(list(self._actions.can))}"

    def _info(self) -> Info:
        return {ACTIONS: list(self._actions.can), PICTURE: picture(self._env)}


def _make(level: int) -> Any:
    try:
        from minigrid.envs import babyai
        from minigrid.envs.babyai.core import roomgrid_level
    except ImportError as error:
        raise EnvError(f"BabyAI needs minigrid: {how_to_install('envs')}") from error
    # minigrid prints every grid that it draws and drops.
    vars(roomgrid_level)["print"] = _silent
    name, arguments = LEVELS[level - 1]
    env = getattr(babyai, name)(**arguments)
    # The picture of numbers that minigrid draws at every move is never read.
    env.gen_obs = _no_picture
    return env


def _silent(*_: object) -> None:
    pass


def _no_picture() -> dict[str, Any]:
    return {}


BABYAI = EnvironmentInfo(
    name="babyai",
    make=BabyAI,
    splits=splits,
    rules="babyai",
    max_turns=20,
    success_above=0.5,
    kept_above=0.0,
    group=group,
    item_ids={"babyai": ""},
    published=PublishedItems(split="test"),
    parser="cleaned",
    needs="envs",
    expert=demonstrate,
)
