"""Ids of a file's tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from whet.tasks.row_formats import Row

ID_NAMES = ("id", "unique_id", "ID", "idx")
"""Fields that may hold a row's id; the first one that is there and differs in every row is used."""


def ids_of(rows: Sequence[tuple[str, Row, str]]) -> tuple[list[str], str]:
    """The tasks' ids, and a note on them.

    Args:
        rows: each with its place in the file and its question.
    Returns: the rows' ids where they differ, else hashes of the questions. The note is the end of a sentence where
        rows have an id in common, else empty.
    """
    note = ""
    for name in ID_NAMES:
        ids = [str(row[name]) for _, row, _ in rows if row.get(name) not in (None, "")]
        if len(ids) == len(set(ids)) == len(rows):
            return ids, ""
        if len(ids) == len(rows) and not note:
            twice = next(value for value, count in Counter(ids).items() if count > 1)
            first, second, *_ = (location for (location, _, _), value in zip(rows, ids, strict=True) if value == twice)
            note = f"; {name} is {twice[:60]!r} in {first} and {second}, so ids are hashes of the questions"
    return [sha256(" ".join(question.split()).encode()).hexdigest()[:16] for _, _, question in rows], note
