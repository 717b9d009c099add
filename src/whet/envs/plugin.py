"""Users' environments, from a plug-in: a class with `reset` and `step`, and `@env` over it.

`UserEnvironment` adds the rest of the protocol: `fork` and `state_key` by the history of the episode. It also reports a
step that comes too early or too late, and checks the environment's answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any, TypeVar

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS
from whet.envs.user_environment import UserEnvironment, takes
from whet.types import MAX_REWARD, as_reward, in_brief, is_whole

F = TypeVar("F", bound=Callable[..., Any])
Splits = Mapping[str, Sequence[int]]
Expert = Callable[..., Iterator[tuple[str, str]]]

NEEDED = ("train", "test")
"""Splits that an environment must have."""
DISJOINT = ("train", "validation", "test")
"""Splits that share no item. Others, such as published lists, may hold any."""


def env(
    name: str,
    *,
    splits: Splits | Callable[[], Splits],
    says: str = "",
    max_turns: int = 20,
    rewards: tuple[float, float] = (0.0, 1.0),
    success_above: float = 0.99,
    kept_above: float | None = None,
    scale: float = 1.0,
    rules: str = "",
    parser: str = "react",
    group: Callable[[int], str] | None = None,
    expert: Expert | None = None,
    needs: str = "",
    item_ids: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Registers an environment of yours under a name, for evaluations and runs:

        @env("coin", splits={"train": range(80), "test": range(80, 100)})
        class Coin:
            def reset(self, item, *, seed=0):
                self.side = random.Random(f"{item} {seed}").choice(["heads", "tails"])
                return "A coin was thrown: heads or tails?", {}

            def step(self, action):
                return f"It was {self.side}.", float(action == self.side), True, False, {}

    The class, or a function that makes environments, takes settings by name, each with a default. `reset` gives the
    first observation and a dict; `step` gives observation, reward, terminated, truncated and a dict. Both may be
    coroutine functions. Draw all randomness from item and seed alone, so that an episode can be repeated. Where the
    class has `fork`, `state_key` or `close`, those are used. Without `fork`, the environment is forked by repeating its
    actions. Without `state_key`, its history is the key.

    Args:
        splits: item numbers from 0, by split, or a function that gives them. `train` and `test` have to be there.
        says: a description in one line. Empty: the docstring's first line.
        max_turns: the usual horizon. A run may set another.
        rewards: the least and the greatest sum of an episode's rewards.
        success_above: the sum above which an episode is a success.
        kept_above: the sum above which AgentEvol keeps an episode. None: `success_above`.
        scale: the divisor that turns the sum into a score in [0, 1].
        rules: the text of the agent's first message.
        parser: how a reply is read. `react` takes what follows the last `Action:`.
        group: a function from an item to its subgroup, such as its difficulty, for tables.
        needs: the extra that installs what it needs. Empty: nothing more.
        item_ids: prefixes of published item names: `textcraft_12` is `{"textcraft": ""}`.
        expert: a generator function of your environment, and of `seed` by name. It yields a thought and an action.
    Returns: a decorator that returns what it decorates.
    Raises: ValueError where this is no environment.
    """
    if not callable(splits):
        check_splits(name, splits)
    check_numbers(name, max_turns, rewards, success_above, scale)
    check_texts(name, says, rules)
    if parser not in PARSERS:
        raise ValueError(f"the environment {name!r} has parser={parser!r}; choose of: {', '.join(PARSERS.names())}")
    if expert is not None and not takes(expert, None, seed=0):
        raise ValueError(f"the expert of the environment {name!r} has to take (env, *, seed)")
    get_splits = _read_once(name, splits)

    def register(maker: F) -> F:
        _check_maker(name, maker)
        info = EnvironmentInfo(
            name=name,
            make=lambda **settings: UserEnvironment(lambda: maker(**settings), name=name, splits=get_splits),
            splits=get_splits,
            rules=rules,
            max_turns=max_turns,
            rewards=rewards,
            success_above=success_above,
            kept_above=success_above if kept_above is None else kept_above,
            scale=scale,
            group=group,
            item_ids=item_ids or {},
            parser=parser,
            needs=needs,
            expert=_without_wrapper(name, expert),
        )
        ENVIRONMENTS.add(name, info, says=says or (getattr(maker, "__doc__", None) or "").strip().partition("\n")[0])
        return maker

    return register


def check_splits(name: str, splits: Splits) -> None:
    """Checks item numbers by split.

    Raises: ValueError where `train` or `test` is missing, or a split is empty or holds an item twice. Also where an
        item is no number from 0, or two of `DISJOINT` share an item.
    """
    if missing := [split for split in NEEDED if not isinstance(splits, Mapping) or split not in splits]:
        raise ValueError(
            f"the environment {name!r} has no split {missing[0]!r}: give splits={{'train': range(80), "
            "'test': range(80, 100)}"
        )
    for split, items in splits.items():
        subject = f"the split {split!r} of the environment {name!r}"
        if isinstance(items, str) or not isinstance(items, Sequence) or not items:
            raise ValueError(f"{subject} is {str(items)[:60]!r}: give a range or a list of item numbers")
        if isinstance(items, range):
            wrong = [end for end in (items[0], items[-1]) if end < 0]
        else:
            wrong = [item for item in items if type(item) is not int or item < 0]
        if wrong:
            raise ValueError(f"{subject} holds {wrong[0]!r}: items are whole numbers from 0")
        if not isinstance(items, range) and len(set(items)) < len(items):
            raise ValueError(f"{subject} holds an item twice: give each once")
    for first, second in combinations([split for split in DISJOINT if split in splits], 2):
        if (shared := _shared_item(splits[first], splits[second])) is not None:
            raise ValueError(
                f"the splits {first!r} and {second!r} of the environment {name!r} share item {shared}: give each item "
                "to one of them"
            )


def _shared_item(first: Sequence[int], second: Sequence[int]) -> int | None:
    """An item that both hold. None: there is none. A long range is not made into a set."""
    short, long = sorted((first, second), key=len)
    members = long if isinstance(long, range) else frozenset(long)
    return next((item for item in short if item in members), None)


def check_texts(name: str, says: str, rules: str) -> None:
    """Raises: ValueError where a text has a lone surrogate."""
    for field, text in (("name", name), ("line of what it is", says), ("rules", rules)):
        if not is_whole(text):
            place = f"the {field} of the environment {name!r}"
            raise ValueError(f"half a character (a lone surrogate) is in {place}: mend it")


def check_numbers(name: str, max_turns: int, rewards: tuple[float, float], success_above: float, scale: float) -> None:
    """Raises: ValueError where one is out of its range, or does not fit the others."""
    subject = f"the environment {name!r} has"
    if max_turns < 1:
        raise ValueError(f"{subject} max_turns={max_turns}: an episode has one turn at least")
    if len(rewards) != 2 or not rewards[0] < rewards[1]:
        raise ValueError(f"{subject} rewards={rewards}: give the least and the greatest that an episode can reach")
    if as_reward(rewards[0]) is None or as_reward(rewards[1]) is None:
        raise ValueError(f"{subject} rewards={rewards}: a reward is at most {MAX_REWARD:g} in size")
    if not rewards[0] <= success_above < rewards[1]:
        raise ValueError(
            f"{subject} success_above={success_above:g}, and its rewards go from {rewards[0]:g} to {rewards[1]:g}: "
            "give a number from the least up to below the greatest"
        )
    if scale <= 0 or rewards[1] < scale:
        raise ValueError(
            f"{subject} scale={scale:g}: give what an episode's reward is divided by to get a score in [0, 1], above 0 "
            f"and not above the greatest reward, {rewards[1]:g}"
        )


def _check_maker(name: str, maker: Any) -> None:
    """Raises: ValueError where the decorated object does not make environments."""
    if not callable(maker):
        raise ValueError(
            f"the environment {name!r} is {type(maker).__name__}: decorate a class, or a function that "
            "makes environments"
        )
    if not takes(maker):
        raise ValueError(f"the environment {name!r} has to be made without arguments: give each setting a default")
    if isinstance(maker, type):
        for method_name, signature, arguments, keywords in (
            ("reset", "(self, item, *, seed)", (None, 0), {"seed": 0}),
            ("step", "(self, action)", (None, ""), {}),
        ):
            method = getattr(maker, method_name, None)
            if not callable(method) or not takes(method, *arguments, **keywords):
                raise ValueError(
                    f"the environment {name!r} needs {method_name}{signature}: write it in {maker.__qualname__}"
                )


def _read_once(name: str, splits: Splits | Callable[[], Splits]) -> Callable[[], Splits]:
    """A function that returns the splits. It reads and checks them at its first call.

    It raises EnvError where they are wrong.
    """
    if not callable(splits):
        fixed = dict(splits)
        return lambda: fixed

    @cache
    def read() -> Splits:
        loaded = splits()
        try:
            check_splits(name, loaded)
        except ValueError as error:
            raise EnvError(str(error)) from error
        return loaded

    return read


def _without_wrapper(name: str, expert: Expert | None) -> Expert | None:
    """An expert of wrapped environments. It calls the user's expert with the environment that the user wrote."""
    if expert is None:
        return None

    def unwrapping_expert(env: UserEnvironment, *, seed: int = 0) -> Iterator[tuple[str, str]]:
        for move in _moves(name, expert(env.env, seed=seed)):
            yield _checked_move(name, move)

    return unwrapping_expert


def _moves(name: str, made: Any) -> Iterator[Any]:
    """What an expert made, as an iterator. Raises: EnvError where it is none."""
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise EnvError(
            f"the expert of the environment {name!r} returned {in_brief(made)}: let it yield a thought and an action "
            "for each turn"
        )
    return iter(made)


def _checked_move(name: str, move: Any) -> tuple[str, str]:
    """A thought and an action. Raises: EnvError for anything else."""
    if isinstance(move, tuple | list) and len(move) == 2 and all(isinstance(part, str) for part in move):
        return move[0], move[1]
    raise EnvError(
        f"the expert of the environment {name!r} yielded {in_brief(move)}: it has to yield a thought and an action, "
        'both text, as in: yield "I go on.", "left"'
    )
