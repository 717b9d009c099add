"""What stands around a world that a user wrote: the rest of the protocol, and checks of what the world answers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from whet.envs.protocol import EnvError, Observed, Stepped
from whet.types import MAX_REWARD, as_reward, in_brief, is_whole

A = TypeVar("A")


class UserEnvironment:
    """An `Environment` around a world that need have no more than `reset` and `step`.

    Args:
        make: makes a world.
        name: of the environment, for sentences.
        splits: the items that there are.
    Raises: EnvError where what was made is no world.
    """

    def __init__(
        self, make: Callable[[], Any], *, name: str, splits: Callable[[], Mapping[str, Sequence[int]]]
    ) -> None:
        self.env = make()
        """The user's own."""
        self._make, self._name, self._splits = make, name, splits
        self._begun: tuple[int, int] | None = None
        self._actions: list[str] = []
        self._said: list[str] = []
        self._is_over = True
        self._is_late = False
        """Its functions are coroutines."""
        for wanted, given, named in (("reset", (0,), {"seed": 0}), ("step", ("",), {})):
            method = getattr(self.env, wanted, None)
            if not callable(method) or not takes(method, *given, **named):
                says = "(item, *, seed)" if wanted == "reset" else "(action)"
                raise EnvError(f"a world of {name} is {type(self.env).__name__}, which has no {wanted}{says}: add it")

    def reset(self, item: int, *, seed: int = 0) -> Observed | Awaitable[Observed]:
        splits = self._splits()
        if not any(item in items for items in splits.values()):
            there = ", ".join(f"{split}: {_span(items)}" for split, items in splits.items())
            raise EnvError(f"{self._name} has no item {item}; it has {there}")
        self._is_over = True  # until the world has begun
        found = self.env.reset(item, seed=seed)
        self._is_late = inspect.isawaitable(found)
        return _then(found, partial(self._has_begun, item, seed))

    def step(self, action: str) -> Stepped | Awaitable[Stepped]:
        if self._is_over:
            raise EnvError(f"this episode of {self._name} has not begun or has ended: call reset(item) first")
        found = self.env.step(action)
        self._is_late = self._is_late or inspect.isawaitable(found)
        return _then(found, partial(self._has_stepped, action))

    def state_key(self) -> Hashable:
        """The world's own, or else the history: item, seed and actions."""
        own = getattr(self.env, "state_key", None)
        return self._is_over, own() if own is not None else (self._begun, tuple(self._actions))

    def fork(self) -> Self:
        """By the world's own `fork`, or else a new world in which the same actions are done again.

        Raises: EnvError where the new world answers otherwise: it depends on more than item, seed and actions.
        """
        own = getattr(self.env, "fork", None)
        if own is None and self._is_late:
            raise EnvError(f"{self._name} answers by coroutines, which cannot be played again at once: give it a fork")
        make = own if own is not None else self._make
        other = type(self)(make, name=self._name, splits=self._splits)
        other._make = self._make
        if own is not None:
            other._begun, other._is_over = self._begun, self._is_over
            other._actions, other._said = [*self._actions], [*self._said]
        elif self._begun is not None:
            item, seed = self._begun
            self._same(other.reset(item, seed=seed), 0)
            for turn, action in enumerate(self._actions, start=1):
                self._same(other.step(action), turn)
        return other

    def close(self) -> None:
        self._is_over = True
        close = getattr(self.env, "close", None)
        if close is not None:
            close()

    def _same(self, answer: Any, turn: int) -> None:
        """Whether a replay says what was said at this turn; 0 is the reset."""
        if answer[0] != self._said[turn]:
            raise EnvError(f"{self._name} does not repeat: turn {turn} says something else when the same actions are "
                           "done again for the same item and seed; draw whatever is left to chance from these two, or "
                           "give it a fork")  # fmt: skip

    def _has_begun(self, item: int, seed: int, answer: Any) -> Observed:
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise EnvError(f"{self._name}: reset has to return (observation, info), and returned {_brief(answer)}")
        observation, info = answer
        self._check(observation, info, "reset")
        self._begun, self._is_over = (item, seed), False
        self._actions, self._said = [], [observation]
        return observation, info

    def _has_stepped(self, action: str, answer: Any) -> Stepped:
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise EnvError(f"{self._name}: step has to return (observation, reward, terminated, truncated, info), and "
                           f"returned {_brief(answer)}")  # fmt: skip
        observation, reward, terminated, truncated, info = answer
        self._check(observation, info, "step")
        number = as_reward(reward)
        if number is None:
            raise EnvError(f"{self._name}: a reward has to be a finite number of at most {MAX_REWARD:g} in size, and "
                           f"step gave {_brief(reward)}")  # fmt: skip
        for what, flag in (("terminated", terminated), ("truncated", truncated)):
            if isinstance(flag, str) or flag not in (True, False):
                raise EnvError(f"{self._name}: {what} has to be true or false, and step gave {_brief(flag)}")
        self._actions.append(action)
        self._said.append(observation)
        self._is_over = bool(terminated or truncated)
        return observation, number, bool(terminated), bool(truncated), info

    def _check(self, observation: Any, info: Any, method: str) -> None:
        if not isinstance(observation, str):
            raise EnvError(f"{self._name}: an observation has to be a text, and {method} gave {_brief(observation)}")
        if not is_whole(observation):
            raise EnvError(f"{self._name}: an observation holds half a character (a lone surrogate), and {method} gave "
                           f"{_brief(observation)}")  # fmt: skip
        if not isinstance(info, dict):
            raise EnvError(f"{self._name}: info has to be a dict, {{}} where there is nothing to say; {method} gave "
                           f"{_brief(info)}")  # fmt: skip


def takes(function: Any, *given: Any, **named: Any) -> bool:
    """Whether it can be called like that, as far as its signature says."""
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError:
        return False
    except ValueError:  # some built-in ones have no signature
        return True
    return True


def _then(found: Any, check: Callable[[Any], A]) -> A | Awaitable[A]:
    """What a check makes of an answer, also of one that is still to come."""
    return _Later(found, check) if inspect.isawaitable(found) else check(found)


class _Later(Coroutine[Any, Any, A]):
    """A check of an answer that is still to come. What is closed before anybody awaited it closes the world's own
    coroutine too, which would warn otherwise that it was forgotten."""

    def __init__(self, found: Awaitable[Any], check: Callable[[Any], A]) -> None:
        self._found = found
        self._checked = self._run(check)

    async def _run(self, check: Callable[[Any], A]) -> A:
        return check(await self._found)

    def __await__(self) -> Generator[Any, Any, A]:
        return self._checked.__await__()

    def send(self, value: Any) -> Any:
        return self._checked.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._checked.throw(*raised)

    def close(self) -> None:
        self._checked.close()
        if isinstance(self._found, Coroutine):
            self._found.close()


def _span(items: Sequence[int]) -> str:
    least, greatest = (items[0], items[-1]) if isinstance(items, range) else (min(items), max(items))
    return f"{len(items)} from {min(least, greatest)} to {max(least, greatest)}"


def _brief(thing: Any) -> str:
    return f"{type(thing).__name__} {in_brief(thing)}"
