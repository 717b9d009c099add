"""Environments of tools, as AgentGym has them (AgentBoard's tools): one call a turn, until `finish`.

The reward of an episode is the best share of its subgoals so far. As in all but two of the published goals, the answer
is the only subgoal. A subgoal is reached by any call whose result equals it, and not by `finish` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Info, Observed, Stepped
from whet.envs.tools.calls import FORMAT_ERROR, NoCall, Tool, ToolError, read_call, written
from whet.envs.tools.goals import Family, Goal, expert_of, make_goal
from whet.envs.tools.service import FINISH, Service

NUM_TRAIN, NUM_TEST = 800, 200
Subgoals = Literal["answer", "calls"]
SUBGOALS = ("answer", "calls")


@lru_cache(maxsize=512)
def _goal(family: Family, item: int) -> Goal:
    return make_goal(family, item)


class ToolEnvironment:
    """An environment of tools. Its `goal`, `calls`, `last_action` and `last_observation` may be read."""

    family: ClassVar[Family]

    def __init__(self, *, subgoals: Subgoals = "answer") -> None:
        """
        Args:
            subgoals: what the reward is the share of. `answer`: the answer alone, as in the published goals. `calls`:
                the result of each gold call too.
        Raises: EnvError for another value.
        """
        if subgoals not in SUBGOALS:
            raise EnvError(f"subgoals is {str(subgoals)[:60]!r}; choose one of: {', '.join(SUBGOALS)}")
        self._subgoals: Sequence[Any] = ()
        self._by_calls = subgoals == "calls"
        self._item = -1
        self._left: tuple[int, ...] = ()
        """Numbers of the subgoals that are not reached."""
        self._reward = 0.0
        self.last_action = self.last_observation = ""
        self.calls: tuple[tuple[str, str], ...] = ()
        """Of this episode so far: each call that was understood, and its observation."""
        self.has_ended = True

    goal: Goal
    service: Service
    tools: Mapping[str, Tool]

    def find(self, item: int) -> Goal:
        """The goal of an item.

        Raises: EnvError where there is none.
        """
        if not 0 <= item < NUM_TRAIN + NUM_TEST:
            raise EnvError(f"{self.family.name} has the items 0 to {NUM_TRAIN + NUM_TEST - 1}, not {item}.")
        return _goal(self.family, item)

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """Begin an item. Its goal and contents depend on the item alone; `seed` changes nothing."""
        self.begin(self.find(item))
        self._item = item
        return self.last_observation, {ACTIONS: self._actions}

    def begin(self, goal: Goal) -> None:
        """An episode with this goal."""
        self.goal, self.service, self._item = goal, goal.begins.copy(), -1
        self.tools = self.service.by_name()
        self._subgoals = self.subgoals_of(goal)
        self._left = tuple(range(len(self._subgoals)))
        self._reward, self.has_ended, self.last_action, self.calls = 0.0, False, "", ()
        self._actions = tuple(written(*call) for call in self.service.suggested())
        self.last_observation = (
            "Now new trial starts.\nYou should perform actions to accomplish the goal: "
            f"{goal.text}\nGive me one action."
        )

    def subgoals_of(self, goal: Goal) -> Sequence[Any]:
        """The results that the reward is the share of."""
        return (*goal.results, goal.answer) if self._by_calls else (goal.answer,)

    def step(self, action: str) -> Stepped:
        if self.has_ended:
            raise EnvError(f"No episode is under way in this {self.family.name}: call `reset` first.")
        before, self.last_action = self._reward, ""
        info: Info = {ACTIONS: self._actions}
        try:
            self.last_observation = self._framed(self._call(action))
            self.calls = (*self.calls, (self.last_action, self.last_observation))
        except NoCall:
            self.last_observation, info = FORMAT_ERROR, {ACTIONS: self._actions, INVALID: True}
        except ToolError as error:
            self.last_observation = self._framed(f"ERROR | {error}")
            info = {ACTIONS: self._actions, INVALID: True}
        return self.last_observation, self._reward - before, self.has_ended, False, info

    def _framed(self, result: Any) -> str:
        return f"Observation: {result}\nGive me one action."

    def _call(self, action: str) -> Any:
        call = read_call(action, self.tools)
        result = self.service.call(call.name, call.arguments)
        self.last_action = call.text
        self._reward = self.reward_after(result)
        if call.name == FINISH:
            self.has_ended = True
            self._reward = self.final_reward()
        return result

    def reward_after(self, result: Any) -> float:
        """The episode's reward so far, after a call with this result."""
        reached = next((number for number in self._left if self.same(self._subgoals[number], result)), None)
        if reached is not None:
            self._left = tuple(number for number in self._left if number != reached)
        return max(self._reward, self.share())

    def share(self) -> float:
        """The share of the subgoals that are reached."""
        return 1 - len(self._left) / len(self._subgoals)

    def same(self, subgoal: Any, result: Any) -> bool:
        """Whether a result reaches a subgoal."""
        return bool(subgoal == result)

    def final_reward(self) -> float:
        """The episode's reward, after `finish`."""
        return self._reward

    def state_key(self) -> Hashable:
        return (
            self.goal.text,
            self._item,
            self._by_calls,
            self.service.state(),
            self._left,
            self._reward,
            self.has_ended,
        )

    def fork(self) -> Self:
        twin = copy(self)
        twin.service = self.service.copy()
        return twin

    def close(self) -> None:
        self.has_ended = True


SPLITS: Mapping[str, Sequence[int]] = {
    "train": range(NUM_TRAIN),
    "test": range(NUM_TRAIN, NUM_TRAIN + NUM_TEST),
}


def environment_info(
    family: Family, make: Callable[..., ToolEnvironment], max_turns: int, item_id: str, **more: Any
) -> EnvironmentInfo:
    """The environment as settings name it. Subgroups are the kinds of goals."""
    expert: Callable[..., Iterator[tuple[str, str]]] = expert_of(family.kinds)
    return EnvironmentInfo(
        name=family.name,
        make=make,
        splits=lambda: SPLITS,
        rules=family.name,
        max_turns=max_turns,
        group=lambda item: family.kind(item).name,
        item_ids={item_id: ""},
        parser="react",
        expert=expert,
        **more,
    )
