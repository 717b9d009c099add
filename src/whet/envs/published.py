"""Published lists of items: `[{"item_id": "textcraft_12"}, ...]`, as AgentEval, AgentTraj-L and AgentGym-RL have them.

An item's number is what follows the last underscore of its id, and what stands before says which world it is of: an
environment's own name (`babyai_1804`), one with a prefix (`lmrlgym_maze_3`), or the source of a question
(`popqa_24044`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.envs.protocol import EnvError

_TRIAL = "_trial_"
"""In the ids of ALFWorld's training games, which end in the name of a recorded trial and not in a number."""


@dataclass(frozen=True, slots=True)
class PublishedItem:
    """One published id, taken apart."""

    begins: str
    """What stands before the number: `textcraft`, `lmrlgym_maze`, `popqa`."""
    number: int


def parse_item_id(item_id: str) -> PublishedItem:
    """An id in its two parts.

    Raises: EnvError where it does not end in the number of an item.
    """
    if _TRIAL in item_id:
        raise EnvError(
            f"{item_id!r} names a trial of ALFWorld and has no item number: look its game up in the published "
            "mappings_train.json and use the item that stands there"
        )
    begins, underscore, number = item_id.rpartition("_")
    if not (underscore and begins and number.isascii() and number.isdigit()):
        raise EnvError(f"{item_id!r} is no item id: write a name, an underscore and a number, such as 'textcraft_12'")
    return PublishedItem(begins, int(number))


def read_items(path: str | Path) -> tuple[PublishedItem, ...]:
    """The items of a JSON list of records with an `item_id`, in the file's order, repetitions included.

    Raises: EnvError where the file cannot be read, is no such list, or has an id without a number.
    """
    path = Path(path)
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvError(f"cannot read {path}: {error.strerror}; name a JSON list of records with an item_id") from error
    except ValueError as error:
        raise EnvError(f"{path} is not JSON ({error}): name a JSON list of records with an item_id") from error
    if not isinstance(records, list):
        raise EnvError(f"{path} holds a {type(records).__name__}: it should be a list of records with an item_id")
    return tuple(_item(record, index, path) for index, record in enumerate(records))


def read_numbers(path: str | Path) -> tuple[int, ...]:
    """The item numbers of a file whose items are all of one world.

    Raises: EnvError where they are of several, such as SearchQA's sources: `read_items` says which is of which.
    """
    items = read_items(path)
    names = sorted({item.begins for item in items})
    if len(names) > 1:
        raise EnvError(f"{path} mixes items of {', '.join(names)}: read it by read_items, which keeps the names")
    return tuple(item.number for item in items)


def overlaps(train: Sequence[int], test: Sequence[int]) -> int:
    """How many different test items are training items too."""
    return len(set(train) & set(test))


def _item(record: Any, index: int, path: Path) -> PublishedItem:
    item_id = record.get("item_id") if isinstance(record, dict) else None
    if not isinstance(item_id, str):
        raise EnvError(f"record {index} of {path} has no item_id: each record needs one, such as 'textcraft_12'")
    try:
        return parse_item_id(item_id)
    except EnvError as error:
        raise EnvError(f"{path}, record {index}: {error}") from error
