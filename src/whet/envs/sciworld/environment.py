"""SciWorld: experiments of elementary science in words (ScienceWorld, arXiv:2203.07540), by the package scienceworld.

An environment is a Java process (some seconds to start, 0.4 GB). The first `reset` starts it and `close` ends it. The
score goes from 0 to 100, or to -100 by a fatal mistake, which ends the episode. A step's reward is the change of the
score, so that an episode's reward is its score. The same item and actions give the same episode in any order and
process; `seed` changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Observed, PublishedItems, Stepped
from whet.envs.sciworld.items import group, splits, task_of
from whet.envs.sciworld.simulator import Simulator
from whet.envs.scripted import steps_left

LOOK = "look around"
NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action.")
"""How the simulator's answers to unknown actions begin."""
MAX_MOVES = 100


class SciWorldEnvironment:
    """One experiment.

    Args:
        max_moves: simulated time units after which an episode is cut; waiting takes many, looking around none.
    """

    def __init__(self, max_moves: int = MAX_MOVES) -> None:
        if max_moves < 1:
            raise EnvError(f"max_moves is {max_moves}: give sciworld 1 or more")
        self._max_moves = max_moves
        self._simulator: Simulator | None = None
        self._item = -1
        self.task_description = ""
        """What is to be done, as the first observation begins."""
        self._actions: list[str] = []
        self._score = 0
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """The info lists the forms that an action can take, with `OBJ` for any object."""
        says = self._begin(item)
        return says, {ACTIONS: self._running.actions, "score": 0}

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this experiment has not begun or has ended: call reset(item) before the next step")
        simulator = self._running
        says = simulator.say(action)
        self._actions.append(action)
        before, self._score = self._score, simulator.score
        terminated = simulator.is_complete or self._score < 0
        truncated = not terminated and simulator.num_moves > self._max_moves
        self._is_over = terminated or truncated
        info = {"score": self._score, **({INVALID: True} if says.startswith(NOT_UNDERSTOOD) else {})}
        return says, float(self._score - before), terminated, truncated, info

    def state_key(self) -> Hashable:
        """The item and all actions so far. Two ways to one state have two keys.

        Temperatures, growth and the random state cannot be read from the simulator. Even an action that it does not
        understand may change the random state.
        """
        return self._item, tuple(self._actions), self._is_over

    def fork(self) -> Self:
        """By doing the same actions in a Java process of its own."""
        other = type(self)(self._max_moves)
        if self._item >= 0:
            other._begin(self._item)
            other._redo(self._actions)
            other._score, other._is_over = self._score, self._is_over
        return other

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()
        self._simulator, self._is_over = None, True

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of this episode so far."""
        return tuple(self._actions)

    def hints(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The forms of actions, with `OBJ` for any object, and the objects that can be seen now."""
        return self._running.actions, self._running.objects()

    def goal_progress(self) -> str:
        """The simulator's goals, and which are reached. An agent does not see them."""
        return self._running.goal_progress()

    def gold_actions(self) -> tuple[str, ...]:
        """The simulator's way from the item's start to its goal.

        It depends on all random draws of its Java process before, so each is computed in a new process, and cached.
        """
        if self._item < 0:
            raise EnvError("no experiment has begun: call reset(item) before gold_actions")
        return _gold_of(self._item)

    @property
    def _running(self) -> Simulator:
        if self._simulator is None:
            self._simulator = Simulator()
        return self._simulator

    def _begin(self, item: int) -> str:
        task, variation = task_of(item)
        self.task_description = self._running.load(task.name, variation)
        sees = self._running.say(LOOK)
        self._item, self._actions, self._score, self._is_over = item, [], 0, False
        return f"{self.task_description}\n{sees}"

    def _redo(self, actions: list[str]) -> None:
        for action in actions:
            self._running.say(action)
        self._actions = list(actions)


@cache
def _gold_of(item: int) -> tuple[str, ...]:
    task, variation = task_of(item)
    simulator = Simulator()
    try:
        simulator.load(task.name, variation, with_gold=True)
        return simulator.gold_actions()
    finally:
        simulator.close()


def expert(env: SciWorldEnvironment, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The simulator's way to the goal, from the first of its actions that was not done yet. It ends with them."""
    while left := steps_left(env.gold_actions(), env.actions):
        yield _thought(left), left[0]


def _thought(left: Sequence[str]) -> str:
    """Why the first of the actions that are left is next."""
    action = left[0]
    why = {
        "focus": "I say which thing the task is about",
        "go": "what I need next is there, so I go",
        "open": "it is closed, and I need what is behind it",
        "look": "I look at what there is here",
        "wait": "this takes time, so I wait",
        "wait1": "this takes time, so I wait a moment",
        "pick": "I will need it, so I take it along",
        "move": "it has to be in that place for the next step",
        "pour": "it has to be in there for the next step",
        "activate": "it does its work only when it is on",
        "deactivate": "it has done its work",
        "connect": "the circuit needs this connection",
        "examine": "I look how far it has come",
        "mix": "these things should react with one another",
        "use": "it tells me or does what the task asks for",
    }.get(action.split(" ", 1)[0], "it is the next step of the experiment")
    count = len(left) - 1
    after = f"{count} more {'step' if count == 1 else 'steps'} after this one" if count else "with this one it is done"
    return f"Next is {action!r}: {why}; {after}."


SCIWORLD = EnvironmentInfo(
    name="sciworld",
    make=SciWorldEnvironment,
    splits=splits,
    rules="sciworld",
    max_turns=30,
    rewards=(-100.0, 100.0),
    success_above=99.0,
    kept_above=99.0,
    scale=100.0,
    group=group,
    item_ids={"sciworld": ""},
    published=PublishedItems(split="test"),
    needs="sciworld",
    expert=expert,
)
