"""Rows whose columns have names of the user's own (`data.columns`), under the names that layouts know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from whet.near import near_names
from whet.tasks.layouts import QUESTION_NAMES, DataError, Row


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """The row as question, answer and solution, each from the column that was named, else from that of its usual name.
    Answers with `####` and solutions with a box are left to the layouts that know them.

    Args:
        names: of `prompt`, `answer` and `solution`, those that are named; dots lead inside. None: the row as it is.
    Raises: DataError where a column is not there.
    """
    if not names:
        return row
    found = {which: _value(row, name, which) for which, name in names.items()}
    usual = next((row[name] for name in QUESTION_NAMES if name in row), None)
    if "prompt" not in found and usual is None:
        raise DataError(f"no question field among {', '.join(sorted(row))}; name it: data.columns.prompt=NAME")
    answer, solution = (found.get(which, row.get(which)) for which in ("answer", "solution"))
    question = "problem" if answer is None and solution is not None else "question"  # its solution's box has the answer
    whole = {"answer": answer, "solution": solution}
    return {question: found.get("prompt", usual), **{which: v for which, v in whole.items() if v is not None}}


def _value(row: Row, name: str, which: str) -> Any:
    node: Any = row
    if name in row:
        return row[name]
    for part in name.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            near = near_names(name, list(_known(row)))
            hint = f"did you mean {near[0]}? It has" if near else "it has"
            raise DataError(
                f"there is no column {name!r} (data.columns.{which}); {hint} {', '.join(sorted(row)) or 'none'}"
            )
    return node


def _known(row: Row) -> Iterator[str]:
    """Columns, and those inside them."""
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
