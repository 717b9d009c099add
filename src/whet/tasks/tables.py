"""Reads rows of Parquet files and Arrow batches as the plain values that JSON has, and checks values of any file.

Rows travel into workers' requests, checkpoints and logs, which are JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from whet.digests import read_bytes
from whet.distribution import how_to_install
from whet.tasks.row_formats import DataError

BATCH_ROWS = 1000
"""Rows read at one time."""


def parquet_rows(path: Path) -> Iterator[Any]:
    """The rows of a Parquet file, in its order.

    Raises: DataError if it cannot be read, a value cannot be JSON, or pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise DataError(f"{path}: reading Parquet needs a package that is not installed: {how_to_install('data')}")
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(read_bytes(path))) as file:
            names = file.schema_arrow.names
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise DataError(f"{path} has two columns of the name {twice!r}: rename one, or leave it out")
            yield from _checked_rows(path, file)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as Parquet ({first_line(error)}); write it anew") from error


def _checked_rows(path: Path, file: Any) -> Iterator[Any]:
    batches = file.iter_batches(batch_size=BATCH_ROWS)
    try:
        for number, row in enumerate((row for batch in batches for row in batch_rows(batch)), 1):
            check_values(row, f"{path}, row {number}")
            yield row
    except LookupError as error:  # of pytz or zoneinfo, whichever pyarrow finds
        zoned = ", ".join(field.name for field in file.schema_arrow if "tz=" in str(field.type))
        raise DataError(
            f"{path}: no time zone of the name {first_line(error)} is known ({zoned}); write these times in UTC"
        ) from error


def batch_rows(batch: Any) -> Iterator[Any]:
    """The rows of a `pyarrow.RecordBatch` or `Table`."""
    narrow = [field.name for field in batch.schema if str(field.type) == "float"]
    for row in batch.to_pylist(maps_as_pydicts="lossy"):
        rounded = {name: float(str(np.float32(row[name]))) for name in narrow if row[name] is not None}  # 0.1 stays 0.1
        yield plain(row | rounded)


def plain(value: Any) -> Any:
    """A value as JSON has it.

    Dates become text (ISO 8601), decimals numbers, and bytes the text that they encode. NaN becomes None, as some
    writers mean that by it. Bytes that are no UTF-8 stay; they are an error only if a task needs them.
    """
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else format(value.normalize(), "f")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and math.isnan(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".:; ")


# --- values -----------------------------------------------------------------------------------------------------------


MAX_NESTED = 100
"""Depth of lists and objects in a value of a row. Far below what Python reads and writes as JSON."""


def check_values(value: Any, where: str) -> None:
    """Checks that a value can be written as JSON. It uses no recursion, so that no nesting is too deep for it.

    Args:
        value: a row, or a part of one, as JSON has it.
        where: its file and line, for messages.
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
