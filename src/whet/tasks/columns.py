"""Reads a row's columns by the user's names (`data.columns`), and makes `Task.info` of the columns beside the prompt.

A name is a column's, a path into one (`extra_info.question`), or a template of several (`{context} {question}`).
Graders and reward terms read `Task.info`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from whet.near import near_names
from whet.tasks.row_formats import NOTHING, QUESTION_NAMES, DataError, Fields, Row, as_text

_PIECE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
"""Of a template: an escaped brace, a placeholder, or a brace that stands alone."""


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """The row with the columns that row formats know: question, answer and solution.

    Each comes from the column that the user names, else from that of its usual name. Row formats read answers with
    `####` and solutions with a box.

    Args:
        names: the user's, by `prompt`, `answer` and `solution`; see `column`. Empty: the row as it is.
    Raises: DataError if a column is missing.
    """
    if not names:
        return row
    values = {which: column(row, name, f"data.columns.{which}") for which, name in names.items()}
    usual = next((row[name] for name in QUESTION_NAMES if name in row), None)
    if "prompt" not in values and usual is None:
        raise DataError(f"no question field among {', '.join(sorted(row))}; name it: data.columns.prompt=NAME")
    references = {which: values.get(which, row.get(which)) for which in ("answer", "solution")}
    references = {which: value for which, value in references.items() if value is not None}
    question = "problem" if list(references) == ["solution"] else "question"  # the answer is in the solution's box
    return {question: values.get("prompt", usual), **references}


def column(row: Row, name: str, key: str) -> Any:
    """The value that a row holds under a name.

    Args:
        name: a column's, whatever its characters. Else, if it holds a brace, a template: its placeholders are names of
            columns, and `{{` and `}}` are braces. Else a path, whose dots lead inside.
        key: the setting that names it, for messages.
    Raises: DataError if a column is missing, or a template has a lone brace. Also if a template's column holds nothing,
        or neither text nor a number.
    """
    if name in row:
        return row[name]
    if "{" not in name and "}" not in name:
        return _inside(row, name, key)

    def piece(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match["name"] is None:
            raise DataError(f"{key} = {name!r} has a lone {match[0]!r}; write it twice where it is text, or close it")
        return _text_of(_inside(row, match["name"], key), match["name"], key)

    return _PIECE.sub(piece, name)


def _text_of(value: Any, name: str, key: str) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise DataError(f'the column {name!r} ({key}) holds nothing; write "" where it is meant to be empty')
    if isinstance(value, list | dict):
        raise DataError(
            f"the column {name!r} ({key}) holds a {type(value).__name__}, and a template takes text and numbers; name "
            f"what is inside, such as {{{name}.{next(iter(value), 0) if isinstance(value, dict) else 0}}}"
        )
    return as_text(value) or ""


def _inside(row: Row, name: str, key: str) -> Any:
    node: Any = row
    if name in row:
        return row[name]
    for part in name.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and (index := _index(part)) < len(node):
            node = node[index]
        else:
            near = near_names(name, list(_names(row)))
            hint = f"did you mean {near[0]}? It has" if near else "it has"
            columns = ", ".join(sorted(row)) or "none"
            raise DataError(
                f"there is no column {name[:100]!r} ({key}); {hint} {columns}: name one of them, {key}=NAME"
            )
    return node


def _index(part: str) -> int:
    """An index in a list. Past every end if the text is none, or has more digits than a list has places."""
    return int(part) if part.isdecimal() and len(part) < 20 else sys.maxsize


def _names(row: Row) -> Iterator[str]:
    """The names of columns, and of those one level inside them."""
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)


# --- columns beside the prompt ----------------------------------------------------------------------------------------


def info_of(row: Row, fields: Fields, kind: str, columns: Mapping[str, str], left_out: set[str]) -> dict[str, Any]:
    """A task's `info`, as JSON has it: it goes into workers' requests and into checkpoints.

    Args:
        row: as it stands in the file.
        fields: as its row format reads it.
        kind: the row format's. A column named `kind` takes precedence.
        columns: the user's names, by `prompt`, `answer` and `solution`. These columns stay in `info`.
        left_out: gets the names of columns that are left out, as they hold bytes that are no text.
    """
    used = set(fields.used)
    if columns:
        usual = {"prompt": next((name for name in QUESTION_NAMES if name in row), ""), "answer": "answer"}
        used = {name for which, name in usual.items() if which not in columns}
    others = {name: value for name, value in row.items() if name not in used}
    if others.get("solution") in NOTHING:
        others.pop("solution", None)
    return as_json({"kind": kind, **others, **fields.info}, left_out)


def as_json(row: Mapping[str, Any], left_out: set[str], inside: str = "") -> dict[str, Any]:
    """A row's values without bytes that are no text, which JSON cannot hold.

    Args:
        left_out: gets the names of values that are left out, dots leading inside.
        inside: the path of the row in a larger one, with its dot.
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
    """Whether a value holds bytes, at any depth."""
    if isinstance(value, dict | list):
        return any(map(holds_bytes, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)
