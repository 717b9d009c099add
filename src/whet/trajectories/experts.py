"""Episodes of scripted experts, as trajectories to learn from. Set probabilities make them careless."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from random import Random
from typing import Any

from whet.envs.formats import write
from whet.envs.protocol import EnvError, Environment, EnvironmentInfo, begun, stepped
from whet.envs.retries import Attempts, Call
from whet.errors import text_of
from whet.seeds import seed_of
from whet.trajectories.careless import WITHOUT_MISTAKES, Care, slipped
from whet.trajectories.records import Trajectory, conversation


def expert_trajectories(
    info: EnvironmentInfo, items: Iterable[int], *, rules: str, seed: int, settings: dict[str, Any] | None = None,
    max_turns: int | None = None, only_successes: bool = True, format: str = "react",
    env_seeds: Mapping[int, int] | None = None, retries: int = 0, timeout_s: float | None = None,
    failed: Callable[[int, Exception], None] | None = None, care: Care = WITHOUT_MISTAKES,
) -> Iterator[Trajectory]:  # fmt: skip
    """An expert's episode of each item.

    Args:
        rules: the first message.
        seed: of the thoughts' wording.
        max_turns: of an episode. None: the environment's usual number.
        format: of the replies; a name of `formats.WRITERS`.
        only_successes: leave out other episodes.
        env_seeds: by item. None: drawn from `seed`.
        retries: how often a failed item is begun again, in a new environment.
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
            try:
                observations, replies, total = attempts.run(
                    partial(_episodes, info, item, seed, env_seed, limit, format, care)
                )
            except Exception as error:  # users' environments raise anything
                if failed is None:
                    cause = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {text_of(error)}"
                    raise EnvError(f"{info.name}, item {item}: its expert could not play it: {cause}") from error
                failed(item, error)
                continue
            success = info.is_success(total)
            if success or not only_successes:
                yield Trajectory(
                    item_id=f"{info.name}_{item}", messages=conversation(rules, observations, replies), reward=total,
                    success=success, source="expert",
                )  # fmt: skip


def _episodes(
    info: EnvironmentInfo, item: int, seed: int, env_seed: int, max_turns: int, format: str, care: Care,
    env: Environment, call: Call,
) -> tuple[list[str], list[str], float]:  # fmt: skip
    assert info.expert is not None
    observation, about = begun(call(env.reset, item, seed=env_seed))
    observations, replies, total = [observation], list[str](), 0.0
    moves = iter(info.expert(env, seed=seed))
    random, last = Random(seed_of("careless", info.name, item, seed)), None
    while len(replies) < max_turns:
        move = slipped(care, random, lambda: call(next, moves, None), about, last)
        if move is None:
            break
        last = move
        thought, action = move
        replies.append(write(thought, action, format))
        observation, reward, terminated, truncated, about = stepped(call(env.step, action))
        observations.append(observation)
        total += reward
        if terminated or truncated:
            break
    return observations, replies, total
