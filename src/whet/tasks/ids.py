"""What tasks of a file are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from whet.tasks.row_formats import Row

ID_NAMES = ("id", "unique_id", "ID", "idx")
"""Fields that may hold a row's own id; the first one that is there and differs in every row is used."""


def ids_of(rows: Sequence[tuple[str, Row, str]]) -> tuple[list[str], str]:
    """The tasks' ids, and what there is to say of them.

    Args:
        rows: each with its place in the file and its question.
    Returns: the rows' own ids where they differ, else hashes of the questions; and the end of a sentence where rows
        have an id in common, else nothing.
    """
    said = ""
    for name in ID_NAMES:
        own = [str(row[name]) for _, row, _ in rows if row.get(name) not in (None, "")]
        if len(own) == len(set(own)) == len(rows):
            return own, ""
        if len(own) == len(rows) and not said:
            twice = next(value for value, count in Counter(own).items() if count > 1)
            first, second, *_ = (where for (where, _, _), value in zip(rows, own, strict=True) if value == twice)
            said = f"; {name} is {twice[:60]!r} in {first} and {second}, so ids are hashes of the questions"
    return [sha256(" ".join(question.split()).encode()).hexdigest()[:16] for _, _, question in rows], said
