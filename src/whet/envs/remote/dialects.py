"""What AgentGym's servers are asked and what they answer, by environment. No two groups of them speak alike.

The facts are those of their servers and clients (AgentGym 3ef9235).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    has_other_items: bool = False
    """Whether the numbers of whet's own environment mean generated items, which say nothing of the server's."""


def _observation(answer: Fields) -> str:
    return answer["observation"]


CRAFT_DEPTHS = (range(140), range(140, 420), range(420, 533), range(533, 544))
"""TextCraft's items by depth, in the order in which the authors' disk lists the recipes."""
_CRAFT_TEST = (*range(31), *range(140, 181), *range(420, 445), *range(533, 536))


def _depth(item: int) -> str:
    return f"depth {next((depth for depth, items in enumerate(CRAFT_DEPTHS, start=1) if item in items), 0)}"


_CRAFT_SPLITS = {"train": sorted(set(range(544)).difference(_CRAFT_TEST)), "test": _CRAFT_TEST}


def _named(text: str) -> str:
    """The call after `Action:`, as the servers of tools want it, on one line."""
    return text if "Action:" in text else f"Action: {text}"


_TOOL = Dialect(id_key="env_idx", create={"id": 0}, item_key="id", is_running_total=True, action=_named, parser="plain")
_TOOL_GOALS = {"weather": 343, "movie": 238, "academia": 20, "sheet": 20, "todo": 155}
_TOOL_TEST = {
    "weather": (4, 12, 16, 17, 18, 20, 22, 39, 61, 105, 211, 217, 272, 296, 298, 311, 319, 322, 323, 327),
    "movie": (1, 3, 5, 9, 13, 20, 23, 44, 54, 55, 56, 63, 78, 89, 94, 97, 109, 113, 125, 223),
    "todo": (19, 20, 21, 24, 26, 28, 32, 33, 34, 37, 41, 53, 57, 65, 67, 69, 73, 76, 104, 115),
}
"""AgentEval's items of tools. All of academia's and sheet's are."""
_TOOL_UNUSED = {
    "weather": (142, 260, 285, 287, 289, 302, 305, 312, 317, 328, 330, 332),
    "movie": (171, 176, 212),
}
"""Goals that neither AgentEval nor AgentTraj-L has."""


def _tool(name: str) -> Dialect:
    """The dialect of an environment of tools."""
    items = range(_TOOL_GOALS[name])
    test = _TOOL_TEST.get(name, tuple(items))
    train = tuple(item for item in items if item not in test and item not in _TOOL_UNUSED.get(name, ()))
    return replace(_TOOL, splits={"train": train, "test": test} if train else {"test": test})


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
        "webshop": Dialect(id_key="env_idx", item_key="session_id", text_key="state", has_other_items=True),
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
        **{name: _tool(name) for name in _TOOL_GOALS},
        "webarena": Dialect(id_key="env_idx", item_key="idx", reset={"seed": 0}, has_flags=True, parser="plain"),
    }
)
"""Dialects by environment."""
