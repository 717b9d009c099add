"""Episodes of worlds, made by hand: an observation, and turns whose last one is paid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.episodes import segment_of
from whet.types import Episode, Segment, Task


def explored_episode(
    environment: str, item: int, reward: float | None, *, turns: Sequence[tuple[int, ...]] = ((8, 3),)
) -> Episode:
    """An episode of an item.

    Args:
        reward: what it came to. None: the world broke down.
        turns: the tokens of each.
    """
    segments: list[Segment] = []
    last: Segment | None = None
    for number, tokens in enumerate(turns):
        segments.append(segment_of("observation", policy="rule", tokens=(), seed=0))
        said: dict[str, Any] = {"reward": (reward or 0.0) if number == len(turns) - 1 else 0.0}
        last = segment_of(
            "agent", policy="policy", tokens=tokens, seed=100 * item + number + 1, prefix=last, parsed=said
        )
        segments.append(last)
    task = Task(id=f"{environment}_{item}", prompt="", info={"environment": environment, "item": item})
    return Episode(task=task, segments=tuple(segments), outcome="env_error" if reward is None else "ok")
