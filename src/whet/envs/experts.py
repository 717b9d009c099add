"""Episodes of scripted experts, as trajectories to learn from."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from whet.envs.formats import write
from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.trajectories import Trajectory, conversation
from whet.seeds import seed_of


def expert_trajectories(
    info: EnvironmentInfo, items: Iterable[int], *, rules: str, seed: int, settings: dict[str, Any] | None = None,
    max_turns: int | None = None, only_successes: bool = True, format: str = "react",
    world_seeds: Mapping[int, int] | None = None, retries: int = 0,
    failed: Callable[[int, Exception], None] | None = None,
) -> Iterator[Trajectory]:  # fmt: skip
    """An expert's episode of each item.

    Args:
        rules: the first message.
        seed: of the thoughts' wording.
        max_turns: None: as usually played.
        format: of its replies; a name of `formats.WRITERS`.
        only_successes: leave out episodes that did not come to one.
        world_seeds: of items, where the episode is to be of the same world as another. None: the expert's own.
        retries: how often an item is begun again, in a new world, where that fails.
        failed: is told of an item whose worlds have all failed. None: the failure is raised.
    Raises: EnvError where the environment has no expert, or one of its worlds fails.
    """
    if info.expert is None:
        raise EnvError(f"{info.name} has no scripted expert: give files of trajectories to learn from")
    limit = max_turns or info.max_turns
    world = info.make(**(settings or {}))
    try:
        for item in items:
            own = seed_of("expert", info.name, item, seed) % 2**31 if world_seeds is None else world_seeds[item]
            for left in range(retries, -1, -1):
                try:
                    observations, replies, total = _played(info, world, item, seed, own, limit, format)
                    break
                except Exception as error:
                    world.close()
                    world = info.make(**(settings or {}))
                    if left:
                        continue
                    if failed is None:
                        cause = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
                        raise EnvError(f"{info.name}, item {item}: its expert could not play it: {cause}") from error
                    failed(item, error)
            else:
                continue
            success = info.is_success(total)
            if success or not only_successes:
                yield Trajectory(
                    item_id=f"{info.name}_{item}", messages=conversation(rules, observations, replies), reward=total,
                    success=success, source="expert",
                )  # fmt: skip
    finally:
        world.close()


def _played(
    info: EnvironmentInfo, world: Environment, item: int, seed: int, world_seed: int, max_turns: int, format: str
) -> tuple[list[str], list[str], float]:
    assert info.expert is not None
    begun: Any = world.reset(item, seed=world_seed)
    if isinstance(begun, Coroutine):
        begun.close()
        raise EnvError("a world whose functions are coroutines is not played by rule")
    observations, replies, total = [begun[0]], list[str](), 0.0
    for thought, action in info.expert(world, seed=seed):
        replies.append(write(thought, action, format))
        stepped: Any = world.step(action)
        observation, reward, terminated, truncated, _ = stepped
        observations.append(observation)
        total += reward
        if terminated or truncated or len(replies) >= max_turns:
            break
    return observations, replies, total
