"""Renames a row's columns from the user's names (`data.columns`) to those that row formats know.

A name is a column's, or a path into one (`extra_info.question`), or a template of several (`{context}

{question}`).

Makes `Task.info`, which graders and reward terms read, from a row's other columns than question and answer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from whet.near import near_names
from whet.tasks.row_formats import NOTHING, QUESTION_NAMES, DataError, Fields, Row, as_text

SETTING = "data.columns"
_PIECE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
"""Of a template: an escaped brace, a placeholder, or a brace that stands alone."""


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """The row as question, answer and solution, each from the column that was named, else from that of its usual name.
    Answers with `####` and solutions with a box are left to the row formats that know them.

    Args:
        names: the user's, by `prompt`, `answer` and `solution`; see `column`. Empty: the row as it is.
    Raises: DataError where a column is not there.
    """
    if not names:
        return row
    values = {which: column(row, name, f"{SETTING}.{which}") for which, name in names.items()}
    usual = next((row[name] for name in QUESTION_NAMES if name in row), None)
    if "prompt" not in values and usual is None:
        raise DataError(f"no question field among {', '.join(sorted(row))}; name it: data.columns.prompt=NAME")
    answer, solution = (values.get(which, row.get(which)) for which in ("answer", "solution"))
    question = "problem" if answer is None and solution is not None else "question"  # its solution's box has the answer
    whole = {"answer": answer, "solution": solution}
    return {question: values.get("prompt", usual), **{which: v for which, v in whole.items() if v is not None}}


def column(row: Row, name: str, key: str) -> Any:
    """The value that a row holds under a name.

    Args:
        name: a column's, whatever its characters. Else, if it holds a brace, a template: its placeholders are names of
            columns, and `{{` and `}}` are braces. Else a path, whose dots lead inside.
        key: the setting that names it, for sentences.
    Raises: DataError where a column is missing, or a template has a brace too many. Also where a template's column
        holds nothing, or neither text nor a number.
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
        elif isinstance(node, list) and (place := _place(part)) < len(node):
            node = node[place]
        else:
            near = near_names(name, list(_known(row)))
            hint = f"did you mean {near[0]}? It has" if near else "it has"
            there = ", ".join(sorted(row)) or "none"
            raise DataError(f"there is no column {name[:100]!r} ({key}); {hint} {there}: name one of them, {key}=NAME")
    return node


def _place(part: str) -> int:
    """In a list; past its end where the text names none, or has more digits than a list has places."""
    return int(part) if part.isdecimal() and len(part) < 20 else sys.maxsize


def _known(row: Row) -> Iterator[str]:
    """Columns, and those inside them."""
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)


# --- columns beside the prompt ----------------------------------------------------------------------------------------


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
