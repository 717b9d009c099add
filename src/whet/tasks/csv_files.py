"""Reads rows of CSV and TSV files, whose first line names the columns. Every cell is text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from whet.tasks.row_formats import DataError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""By the end of a file's name."""
TRUTHS = {"true": True, "false": False, "": None}
"""What a cell of a column of true and false may hold, in any case."""


def is_csv(path: Path) -> bool:
    return path.suffix.lower() in SEPARATORS


def csv_rows(text: str, path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV or TSV file, each with the line on which it begins: `line 7`.

    Cells in quotes may hold separators, doubled quotes and line breaks, as spreadsheets and pandas write them. Empty
    lines are left out.

    Raises: DataError if the columns have no names or one name twice, or a row has another number of cells.
    """
    separator = SEPARATORS[path.suffix.lower()]
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # its default refuses cells above 131,072 characters
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    names: list[str] = []
    first = 1
    try:
        for cells in reader:
            if names and cells:
                yield f"line {first}", _row(names, cells, f"{path}, line {first}")
            elif cells:
                names = _names(cells, path, separator)
            first = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {first}: cannot be read as CSV ({error}); close its quotes, and double those "
                        "inside a cell") from error  # fmt: skip


def _names(cells: list[str], path: Path, separator: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if len(names) == 1 and (other := next((sign for sign in ";\t," if sign in names[0] and sign != separator), None)):
        raise DataError(
            f"{path} has the one column {names[0][:60]!r}: write {separator!r} between cells in place of {other!r}, "
            "or write JSON lines"
        )
    if not all(names):
        raise DataError(f"{path}: column {names.index('') + 1} has no name; name each column in the first line")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{path} has two columns of the name {twice!r}: rename one, or leave it out")
    return names


def _row(names: list[str], cells: list[str], where: str) -> dict[str, str]:
    if len(cells) != len(names):
        raise DataError(
            f"{where}: {len(cells)} cells for {len(names)} columns ({', '.join(names)[:80]}); put cells that hold a "
            "separator or a line break into quotes"
        )
    return dict(zip(names, cells, strict=True))
