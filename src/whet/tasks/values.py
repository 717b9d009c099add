"""Values of a user's rows that can travel: into workers' requests, checkpoints and logs, which are JSON."""

from __future__ import annotations

import math
from typing import Any

from whet.tasks.row_formats import DataError

MAX_NESTED = 100
"""Lists and objects within each other, in a value of a row. Far below what Python reads and writes as JSON."""


def check_values(value: Any, where: str) -> None:
    """One pass without recursion, so that no nesting is too deep for it.

    Args:
        value: a row, or a part of one, as JSON has it.
        where: its file and place, for sentences.
    Raises: DataError for an infinity or a NaN, which JSON does not have, and for lists and objects nested more than
        `MAX_NESTED` deep.
    """
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), {"": value} if isinstance(value, float) else value)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict | list):
            continue
        if len(path) > MAX_NESTED:
            raise DataError(
                f"{where}: the column {path[0]!r} is nested too deeply, past {MAX_NESTED} lists and objects; write it "
                "flatter, or leave it out"
            )
        for name, inner in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(inner, dict | list):
                waiting.append(((*path, name), inner))
            elif isinstance(inner, float) and not math.isfinite(inner):
                column = ".".join(map(str, (*path, name)))
                raise DataError(
                    f"{where}: a number past the largest float stands{f' in the column {column!r}' if column else ''}; "
                    "write it as text, or leave it out"
                )
