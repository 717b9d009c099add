"""The state of a BabyAI episode as a value that can be compared."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from whet.envs.babyai.view import agent_of


def fingerprint(env: Any) -> tuple[Hashable, ...]:
    """Grid, agent, what it carries, how far the instruction is done, and the moves made so far.

    A thing is identified by its kind and its first place, as two red balls are two things to an instruction.
    """
    cells = tuple(None if thing is None else _thing(thing) for thing in env.grid.grid)
    return (cells, *agent_of(env), _thing(env.carrying), _as_value(env.instrs), int(env.step_count))


def _thing(thing: Any) -> Hashable:
    if thing is None or thing.type == "wall":
        return None if thing is None else "wall"
    first = None if thing.init_pos is None else tuple(int(place) for place in thing.init_pos)
    return (*thing.encode(), first, _thing(thing.contains))


def _as_value(part: Any) -> Hashable:
    """An instruction, or a part of one: descriptions, things and their places, and what is done already."""
    if part is None or isinstance(part, str | int | bool):
        return part
    if isinstance(part, list | tuple):
        return tuple(_as_value(element) for element in part)
    if hasattr(part, "init_pos"):
        return _thing(part)
    if hasattr(part, "tolist"):  # a place may be numpy's
        return _as_value(part.tolist())
    return tuple((name, _as_value(value)) for name, value in sorted(vars(part).items()) if name != "env")
