"""What is looked at of a world before a run begins."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.counter import Counter, info_of
from whet.runs.agents import NUM_LOOKED_AT, AgentMethod


class Full(Counter):
    """It finds no room for some of its items."""

    def __init__(self, full: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.full = full

    def reset(self, item: int, *, seed: int = 0) -> Any:
        if item in self.full:
            raise OSError(f"no room for {item}")
        return super().reset(item, seed=seed)


def begun(full: tuple[int, ...]) -> list[Any]:
    """With items 1, 2, ... to look at."""
    items = {"test": list(range(1, NUM_LOOKED_AT + 3))}
    settings = SimpleNamespace(config=SimpleNamespace(data=SimpleNamespace(settings={"counter": {"full": full}})))
    return AgentMethod._beginnings(settings, replace(info_of(Full), splits=lambda: items))


def test_a_world_that_fails_now_and_then_is_looked_at_all_the_same():
    assert begun(()) == [(f"{item} to go", {}) for item in range(1, NUM_LOOKED_AT + 1)]
    assert begun((1, 3)) == [("2 to go", {}), ("4 to go", {})]


def test_one_that_begins_nothing_says_why():
    with pytest.raises(OSError, match="no room for 1"):
        begun(tuple(range(1, NUM_LOOKED_AT + 1)))
