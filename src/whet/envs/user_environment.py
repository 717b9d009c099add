"""A wrapper around a user's environment: it adds the rest of the protocol, and checks the answers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from whet.envs.protocol import EnvError, EnvironmentInfo, Observed, Stepped
from whet.types import MAX_REWARD, as_reward, in_brief, is_whole

A = TypeVar("A")


class UserEnvironment:
    """An `Environment` around an object that needs no more than `reset` and `step`.

    Args:
        make: makes the object.
        name: of the environment, for messages.
        splits: the items.
    Raises: EnvError where the object lacks `reset` or `step`.
    """

    def __init__(
        self, make: Callable[[], Any], *, name: str, splits: Callable[[], Mapping[str, Sequence[int]]]
    ) -> None:
        self.env = make()
        """The user's object."""
        self._make, self._name, self._splits = make, name, splits
        self._begun: tuple[int, int] | None = None
        self._actions: list[str] = []
        self._said: list[str] = []
        self._is_over = True
        self._is_late = False
        """Its functions are coroutines."""
        for wanted, args, kwargs in (("reset", (0,), {"seed": 0}), ("step", ("",), {})):
            method = getattr(self.env, wanted, None)
            if not callable(method) or not takes(method, *args, **kwargs):
                says = "(item, *, seed)" if wanted == "reset" else "(action)"
                raise EnvError(
                    f"an instance of {name} is {type(self.env).__name__}, which has no {wanted}{says}: add it"
                )

    def reset(self, item: int, *, seed: int = 0) -> Observed | Awaitable[Observed]:
        splits = self._splits()
        if not any(item in items for items in splits.values()):
            there = ", ".join(f"{split}: {_span(items)}" for split, items in splits.items())
            raise EnvError(f"{self._name} has no item {item}; it has {there}")
        self._is_over = True  # until the episode has begun
        answer = self.env.reset(item, seed=seed)
        self._is_late = inspect.isawaitable(answer)
        return _then(answer, partial(self._has_begun, item, seed))

    def step(self, action: str) -> Stepped | Awaitable[Stepped]:
        if self._is_over:
            raise EnvError(f"this episode of {self._name} has not begun or has ended: call reset(item) first")
        answer = self.env.step(action)
        self._is_late = self._is_late or inspect.isawaitable(answer)
        return _then(answer, partial(self._has_stepped, action))

    def state_key(self) -> Hashable:
        """By the object's `state_key`, or else the history: item, seed and actions."""
        make_key = getattr(self.env, "state_key", None)
        return self._is_over, make_key() if make_key is not None else (self._begun, tuple(self._actions))

    def fork(self) -> Self:
        """By the object's `fork`, or else a new object in which the same actions are done again.

        Raises: EnvError where the new object answers otherwise: it depends on more than item, seed and actions.
        """
        user_fork = getattr(self.env, "fork", None)
        if user_fork is None and self._is_late:
            raise EnvError(f"{self._name} answers by coroutines, which cannot be repeated at once: give it a fork")
        make = user_fork if user_fork is not None else self._make
        other = type(self)(make, name=self._name, splits=self._splits)
        other._make = self._make
        if user_fork is not None:
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
        """Raises EnvError where a replay answers otherwise than the record at this turn; 0 is the reset."""
        if answer[0] != self._said[turn]:
            raise EnvError(
                f"{self._name} does not repeat: turn {turn} says something else when the same actions are "
                "done again for the same item and seed; draw whatever is left to chance from these two, or "
                "give it a fork"
            )

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
            raise EnvError(
                f"{self._name}: step has to return (observation, reward, terminated, truncated, info), and "
                f"returned {_brief(answer)}"
            )
        observation, reward, terminated, truncated, info = answer
        self._check(observation, info, "step")
        number = as_reward(reward)
        if number is None:
            raise EnvError(
                f"{self._name}: a reward has to be a finite number of at most {MAX_REWARD:g} in size, and "
                f"step gave {_brief(reward)}"
            )
        for flag_name, flag in (("terminated", terminated), ("truncated", truncated)):
            if isinstance(flag, str) or flag not in (True, False):
                raise EnvError(f"{self._name}: {flag_name} has to be true or false, and step gave {_brief(flag)}")
        self._actions.append(action)
        self._said.append(observation)
        self._is_over = bool(terminated or truncated)
        return observation, number, bool(terminated), bool(truncated), info

    def _check(self, observation: Any, info: Any, method: str) -> None:
        if not isinstance(observation, str):
            raise EnvError(f"{self._name}: an observation has to be a text, and {method} gave {_brief(observation)}")
        if not is_whole(observation):
            raise EnvError(
                f"{self._name}: an observation holds half a character (a lone surrogate), and {method} gave "
                f"{_brief(observation)}"
            )
        if not isinstance(info, dict):
            raise EnvError(
                f"{self._name}: info has to be a dict, {{}} where there is nothing to say; {method} gave {_brief(info)}"
            )


def takes(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a function's signature takes these arguments. Without a signature: True."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # some built-in ones have no signature
        return True
    return True


def refused_settings(info: EnvironmentInfo, error: TypeError) -> str:
    """A sentence about settings that an environment does not take, with those that it takes."""
    try:
        names = ", ".join(inspect.signature(info.make).parameters)
    except (TypeError, ValueError):  # some built-in ones have no signature
        names = ""
    taken = f"it takes {names}" if names else "leave them out"
    return f"{info.name} does not take these settings ({error}): {taken}"


def _then(answer: Any, check: Callable[[Any], A]) -> A | Awaitable[A]:
    """Checks an answer, also one that is awaited later."""
    return _Later(answer, check) if inspect.isawaitable(answer) else check(answer)


class _Later(Coroutine[Any, Any, A]):
    """A check of an answer that is awaited later.

    Closing it before it was awaited closes the user's coroutine too, which would otherwise warn that it was forgotten.
    """

    def __init__(self, answer: Awaitable[Any], check: Callable[[Any], A]) -> None:
        self._answer = answer
        self._checked = self._run(check)

    async def _run(self, check: Callable[[Any], A]) -> A:
        return check(await self._answer)

    def __await__(self) -> Generator[Any, Any, A]:
        return self._checked.__await__()

    def send(self, value: Any) -> Any:
        return self._checked.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._checked.throw(*raised)

    def close(self) -> None:
        self._checked.close()
        if isinstance(self._answer, Coroutine):
            self._answer.close()


def _span(items: Sequence[int]) -> str:
    least, greatest = (items[0], items[-1]) if isinstance(items, range) else (min(items), max(items))
    return f"{len(items)} from {min(least, greatest)} to {max(least, greatest)}"


def _brief(thing: Any) -> str:
    return f"{type(thing).__name__} {in_brief(thing)}"
