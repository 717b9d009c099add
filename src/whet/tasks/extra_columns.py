"""Makes `Task.info`, which graders and reward terms read, from a row's other columns than question and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.tasks.row_formats import NOTHING, QUESTION_NAMES, Fields, Row


def info_of(row: Row, fields: Fields, kind: str, columns: Mapping[str, str], left_out: set[str]) -> dict[str, Any]:
    """A task's `info`, as JSON has it: it goes into workers' requests and into checkpoints.

    Args:
        row: as it stands in the file.
        fields: what its row format read.
        kind: the row format's. A column of that name goes before it.
        columns: the user's names, by what they name. These columns stay in, for functions that ask for them.
        left_out: gets the names of columns that hold bytes which are no text. They are left out.
    """
    used = set(fields.used)
    if columns:
        usual = {"prompt": next((name for name in QUESTION_NAMES if name in row), ""), "answer": "answer"}
        used = {name for which, name in usual.items() if which not in columns}
    besides = {name: value for name, value in row.items() if name not in used}
    if besides.get("solution") in NOTHING:
        besides.pop("solution", None)
    return as_json({"kind": kind, **besides, **fields.info}, left_out)


def as_json(row: Mapping[str, Any], left_out: set[str], inside: str = "") -> dict[str, Any]:
    """A row's values without bytes that are no text, which have no place in JSON, nor in a worker's request.

    Args:
        left_out: names of what is left out are added here, dots leading inside.
        inside: what the row is a part of, with its dot.
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            values[name] = as_json(value, left_out, f"{inside}{name}.")
        elif holds_bytes(value):
            left_out.add(f"{inside}{name}")
        else:
            values[name] = value
    return values


def holds_bytes(value: Any) -> bool:
    """Whether there are bytes in it, at any depth."""
    if isinstance(value, dict | list):
        return any(map(holds_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)
