"""Episodes of scripted experts, as trajectories to learn from.

Set probabilities (`Care`) make an expert careless or wasteful, in any environment. An agent cloned from careless
episodes knows the words and the game, and is often but not always wrong, as a pretrained model is. Reinforcement
learning can still improve it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from whet.envs.formats import write
from whet.envs.protocol import ACTIONS, INVALID, EnvError, Environment, EnvironmentInfo, Info, begun, stepped
from whet.envs.retries import Attempts, Call
from whet.errors import text_of
from whet.seeds import seed_of
from whet.trajectories.records import Trajectory, conversation

Move = tuple[str, str]
"""A thought and an action."""

_NUMBER = re.compile(r"\b[0-9]{1,6}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """Probabilities of mistakes in a turn, each in [0, 1]. All 0: no mistakes, and nothing is drawn."""

    wrong_count: float = 0.0
    """The action has a number that is one too many or one too few."""
    wrong_action: float = 0.0
    """The action is another one of those that the environment lists, if it lists any."""
    stuck: float = 0.0
    """After an action that the environment refused: the same action again."""
    wasteful: float = 0.0
    """The turn repeats the turn before, if that was not refused; the expert's action comes later."""


WITHOUT_MISTAKES = Care()


def expert_trajectories(
    info: EnvironmentInfo,
    items: Iterable[int],
    *,
    rules: str,
    seed: int,
    settings: dict[str, Any] | None = None,
    max_turns: int | None = None,
    only_successes: bool = True,
    format: str = "react",
    env_seeds: Mapping[int, int] | None = None,
    retries: int = 0,
    timeout_s: float | None = None,
    failed: Callable[[int, Exception], None] | None = None,
    care: Care = WITHOUT_MISTAKES,
) -> Iterator[Trajectory]:
    """An expert's episode of each item.

    Args:
        rules: the first message.
        seed: of the thoughts' wording.
        max_turns: of an episode. None: the environment's usual number.
        format: of the replies; a name of `formats.WRITERS`.
        only_successes: leave out other episodes.
        env_seeds: by item. None: drawn from `seed`.
        retries: how often a failed item is tried again, in a new environment.
        timeout_s: seconds of one step or reset. None: no limit.
        failed: gets an item whose attempts have all failed. None: the failure is raised.
        care: how often the expert errs.
    Raises: EnvError where the environment has no expert, or fails.
    """
    if info.expert is None:
        raise EnvError(f"{info.name} has no scripted expert: give files of trajectories to learn from")
    limit = max_turns or info.max_turns
    make = partial(info.make, **(settings or {}))
    with closing(Attempts(make, retries=retries, timeout_s=timeout_s)) as attempts:
        for item in items:
            env_seed = seed_of("expert", info.name, item, seed) % 2**31 if env_seeds is None else env_seeds[item]
            episode = partial(_episode, info, item, seed, env_seed, limit, format, care)
            try:
                observations, replies, total = attempts.run(episode)
            except Exception as error:  # users' environments raise anything
                if failed is None:
                    cause = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {text_of(error)}"
                    raise EnvError(f"{info.name}, item {item}: its expert failed at it: {cause}") from error
                failed(item, error)
                continue
            success = info.is_success(total)
            if success or not only_successes:
                yield Trajectory(
                    item_id=f"{info.name}_{item}",
                    messages=conversation(rules, observations, replies),
                    reward=total,
                    success=success,
                )


def _episode(
    info: EnvironmentInfo,
    item: int,
    seed: int,
    env_seed: int,
    max_turns: int,
    format: str,
    care: Care,
    env: Environment,
    call: Call,
) -> tuple[list[str], list[str], float]:
    """Observations, replies and the sum of rewards.

    Args:
        call: calls a function of the environment, with a time limit.
    """
    assert info.expert is not None
    observation, step_info = begun(call(env.reset, item, seed=env_seed))
    observations, replies, total = [observation], list[str](), 0.0
    moves = iter(info.expert(env, seed=seed))
    random, last = Random(seed_of("careless", info.name, item, seed)), None
    while len(replies) < max_turns:
        move = careless_move(care, random, lambda: call(next, moves, None), step_info, last)
        if move is None:
            break
        last = move
        thought, action = move
        replies.append(write(thought, action, format))
        observation, reward, terminated, truncated, step_info = stepped(call(env.step, action))
        observations.append(observation)
        total += reward
        if terminated or truncated:
            break
    return observations, replies, total


# --- careless moves ---------------------------------------------------------------------------------------------------


def careless_move(
    care: Care, random: Random, next_move: Callable[[], Move | None], info: Info, last: Move | None
) -> Move | None:
    """The next move of an expert that errs as often as `care` says.

    Args:
        random: of the episode.
        next_move: gives the expert's next move. It is not called in a turn that repeats another move.
        info: of the last step or reset.
        last: the previous move. None: it is the first turn.
    Returns: None where the expert has ended.
    """
    if care == WITHOUT_MISTAKES:
        return next_move()
    was_refused = bool(info.get(INVALID))
    if last is not None and random.random() < (care.stuck if was_refused else care.wasteful):
        return last
    move = next_move()
    if move is None:
        return None
    thought, action = move
    if random.random() < care.wrong_action:
        action = _another(action, info.get(ACTIONS, ()), random)
    if random.random() < care.wrong_count:
        action = _miscounted(action, random)
    return thought, action


def _another(action: str, listed: Sequence[str], random: Random) -> str:
    others = [other for other in listed if other != action]
    return random.choice(others) if others else action


def _miscounted(action: str, random: Random) -> str:
    """One number of the action is one off, and never 0. An action without numbers stays as it is."""
    numbers = list(_NUMBER.finditer(action))
    if not numbers:
        return action
    chosen = random.choice(numbers)
    count = int(chosen[0])
    wrong = count + 1 if count < 2 or random.random() < 0.5 else count - 1
    return f"{action[: chosen.start()]}{wrong}{action[chosen.end() :]}"
