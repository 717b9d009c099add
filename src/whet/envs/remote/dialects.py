"""What AgentGym's servers are asked and what they answer, by environment. No two groups of them speak alike.

The facts are those of their servers and clients (AgentGym 3ef9235).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from whet.envs.formats import query_in

Fields = Mapping[str, Any]
NOTHING: Fields = MappingProxyType({})


def _raw(text: str) -> str:
    return text


def _described(answer: Fields) -> str:
    return f"{answer['task_description']}\n{answer['observation']}"


def _with_actions(answer: Fields) -> str:
    return f"{answer['observation']}\nAVAILABLE ACTIONS: {','.join(answer['available_actions'])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one environment is spoken to."""

    id_key: str = "id"
    """The session's key in requests."""
    create: Fields | None = None
    """The body of `/create`. None: none."""
    item_key: str = "data_idx"
    """The item's key in the body of `/reset`."""
    reset: Fields = field(default_factory=dict)
    """What else that body holds."""
    text_key: str = "observation"
    """Of a step's observation."""
    reward_key: str = "reward"
    is_running_total: bool = False
    """Whether the reward is that of the episode so far, and not of the step alone."""
    first: Callable[[Fields], str] | None = None
    """The first observation from the answer of `/reset`. None: `GET /observation` has it."""
    has_flags: bool = False
    """Whether an answer has `terminated` and `truncated`, and a reward that counts with `terminated` alone."""
    action: Callable[[str], str] = _raw
    """What is sent of an action."""
    parser: str = "react"
    """The parser of replies, for environments that whet does not have itself."""
    splits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The published items, where they are others than those of whet's environment, or whet has none."""
    group: Callable[[int], str] | None = None
    """The published subgroup of those items."""


def _observation(answer: Fields) -> str:
    return answer["observation"]


CRAFT_DEPTHS = (range(140), range(140, 420), range(420, 533), range(533, 544))
"""TextCraft's items by depth, in the order in which the authors' disk lists the recipes."""
_CRAFT_TEST = (*range(31), *range(140, 181), *range(420, 445), *range(533, 536))


def _depth(item: int) -> str:
    return f"depth {next((depth for depth, items in enumerate(CRAFT_DEPTHS, start=1) if item in items), 0)}"


_CRAFT_SPLITS = {"train": sorted(set(range(544)).difference(_CRAFT_TEST)), "test": _CRAFT_TEST}

_TOOL = Dialect(id_key="env_idx", create={"id": 0}, item_key="id", is_running_total=True, parser="plain")
DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "textcraft": Dialect(create={}, first=_observation, splits=_CRAFT_SPLITS, group=_depth),
        "babyai": Dialect(first=_observation, reward_key="score", is_running_total=True),
        "sciworld": Dialect(first=_described, reward_key="score", is_running_total=True),
        "alfworld": Dialect(
            item_key="game",
            reset={"world_type": "Text"},
            first=_with_actions,
            splits={"train": range(2420), "test": range(2420, 2620)},
        ),
        "maze": Dialect(item_key="game", first=_observation),
        "wordle": Dialect(item_key="seed", first=_observation),
        "webshop": Dialect(id_key="env_idx", item_key="session_id", text_key="state"),
        "sqlgym": Dialect(
            id_key="env_idx",
            item_key="item_id",
            text_key="state",
            action=query_in,
            parser="sql",
            splits={"train": range(9428), "test": range(9428, 10962)},
        ),
        "searchqa": Dialect(
            id_key="env_idx",
            create={"id": 0},
            item_key="id",
            parser="tags",
            splits={"train": range(51713, 221328), "test": range(51713)},
        ),
        **dict.fromkeys(("weather", "movie", "academia", "todo", "sheet"), _TOOL),
        "webarena": Dialect(id_key="env_idx", item_key="idx", reset={"seed": 0}, has_flags=True, parser="plain"),
    }
)
"""Dialects by environment."""
