"""Reads task files (JSON lines, JSON, CSV or Parquet) in any of the formats of `row_formats.py` into a `TaskSet`.

A sentence, to be shown, names the format. An error in a file stops the run with another sentence.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

from whet.digests import read_text as decoded_text
from whet.tasks.columns import info_of, renamed
from whet.tasks.csv_files import csv_rows, is_csv
from whet.tasks.ids import ids_of
from whet.tasks.row_formats import DataError, Fields, Row, RowFormat, recognise
from whet.tasks.tables import check_values, parquet_rows
from whet.types import Task, is_whole

__all__ = ["DataError", "TaskSet", "parse_json", "read_tasks", "read_text", "tasks_of"]


KINDS = ".jsonl, .json, .csv, .tsv or .parquet"
SHOWN_REPEATS = 3
"""Dropped rows that the sentence about a file names."""
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a file and one sentence about it: `7473 GSM8K rows (question, answer after ####)`."""

    tasks: tuple[Task, ...]
    recognised: str
    place: str
    """The file's path."""
    name: str
    """What it is called in sentences: the file's name."""


@dataclass(frozen=True, slots=True)
class _Record:
    location: str
    """`line 7`, `item 7` of a list, or `row 7` of a table."""
    row: Row
    """As it stands in the file."""
    row_format: RowFormat
    fields: Fields


def read_tasks(path: str | Path, *, columns: Mapping[str, str] | None = None, setting: str = "data.path") -> TaskSet:
    """Reads a file of one row format.

    Args:
        columns: see `tasks_of`.
        setting: the key that names the file.
    Returns, raises: as `tasks_of`.
    """
    return tasks_of(file_rows(Path(path), setting), str(path), columns=columns)


def tasks_of(rows: Iterable[tuple[str, Any]], place: str, *, columns: Mapping[str, str] | None = None) -> TaskSet:
    """The tasks of rows of one format. A question that comes again (but for white space) is dropped, counted and named.

    Args:
        rows: each with its place in the file: `line 7`.
        place: the file.
        columns: the user's names of `prompt`, `answer` and `solution`.
    Returns: tasks in the rows' order. A task's id is the row's where every row has a different one, else a hash of
        the question. `Task.info` has all that the row holds besides question and answer, as JSON has it. Columns that
        `columns` names are in it too, unrenamed. A worked solution is `solution`, whatever its column, and `kind` is
        the row format's, where the row has no column of that name. Bytes that are no text are left out.
    Raises: DataError.
    """
    names = columns or {}
    records = [_recognise(place, location, row, names) for location, row in rows]
    _check(place, records)
    unique: dict[str, _Record] = {}
    repeats: list[str] = []
    num_contradictions = 0
    for record in records:
        first = unique.setdefault(" ".join(record.fields.question.split()), record)
        num_contradictions += first.fields.answer != record.fields.answer
        if first is not record:
            repeats.append(f"{record.location} repeats {first.location}")
    sentence = f"{len(records)} {records[0].row_format.title}"
    if names:
        shown = {which: repr(name) if "{" in name else name for which, name in names.items()}
        sentence += f", read from {' and '.join(f'{name} ({which})' for which, name in shown.items())}"
    if repeats:
        shown_repeats = ", ".join(repeats[:SHOWN_REPEATS])
        if more := len(repeats) - len(repeats[:SHOWN_REPEATS]):
            shown_repeats += f", and {more} more"
        if num_contradictions:
            shown_repeats += f"; {num_contradictions} of them with another answer than the first"
        sentence += f", {len(repeats)} dropped as repeated questions ({shown_repeats})"
    ids, note = ids_of([(record.location, record.row, record.fields.question) for record in unique.values()])
    left_out = set[str]()
    tasks = tuple(_task(name, record, names, left_out) for name, record in zip(ids, unique.values(), strict=True))
    if left_out:
        note += f"; bytes that are no text reach no grader: {', '.join(sorted(left_out))}"
    return TaskSet(tasks, sentence + note, place, Path(place).name)


def file_rows(path: Path, setting: str) -> list[tuple[str, Any]]:
    """The rows of a file, each with its place: `line 7` of JSON lines and CSV, `item 7` of a list, `row 7` of Parquet.

    Args:
        setting: the key that names the file.
    Raises: DataError.
    """
    path = _expanded(path)
    if path.suffix.lower() == ".parquet":
        check_file(path, setting, KINDS)
        return [(f"row {number}", row) for number, row in enumerate(parquet_rows(path), 1)]
    text = read_text(path, setting, KINDS)
    if is_csv(path):
        if not (rows := list(csv_rows(text, path))):
            raise DataError(f"{path} has no row below the names of its columns; write a task a line")
        return rows
    if text.lstrip().startswith("["):
        items = parse_json(text, str(path), "mend the list there")
        if not items:
            raise DataError(f"{path} is an empty list; write one JSON object a task")
        return [(f"item {number}", item) for number, item in enumerate(items, 1)]
    lines = enumerate(text.split("\n"), 1)  # not splitlines: JSON text may hold U+2028
    return [(f"line {number}", parse_json(line, f"{path}, line {number}")) for number, line in lines if line.strip()]


def read_text(path: Path, setting: str, kinds: str = ".jsonl or .json") -> str:
    """A user's file as text.

    Args:
        setting: the key that names it.
        kinds: of file that it may name.
    Raises: DataError where it is missing, no plain file (a pipe never ends), no UTF-8, or holds nothing.
    """
    path = _expanded(path)
    check_file(path, setting, kinds)
    try:
        text = decoded_text(path, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}); give {setting} another file") from error
    if not text.strip():
        raise DataError(f"{path} is empty; write one JSON object a line")
    return text


def _expanded(path: Path) -> Path:
    return Path(os.path.expanduser(path))  # unlike Path.expanduser it leaves an unknown `~name` as it is


def check_file(path: Path, setting: str, kinds: str) -> None:
    """Raises: DataError where there is no plain file of that name."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file; give {setting} the path of a {kinds} file") from error
    except OSError as error:
        shown = str(path) if len(str(path)) < 200 else f"{str(path)[:200]}..."
        raise DataError(f"cannot read {shown} ({error.strerror}); give {setting} another file") from error
    except ValueError as error:  # NUL
        raise DataError(f"{str(path)!r} can be no path ({error}); give {setting} another") from error
    if not S_ISREG(mode):
        raise DataError(f"{path} is {'a folder' if S_ISDIR(mode) else 'no plain file'}; give {setting} a {kinds} file")


def parse_json(text: str, where: str, advice: str = "write one whole JSON object a line, or one list") -> Any:
    """JSON of a user's file: no NaN or infinity, no half characters, nothing that Python cannot hold or write again.

    Args:
        where: the file and line, or the file alone of a text of many lines.
    Raises: DataError.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}" if "\n" in text else where
        raise DataError(f"{place}: not JSON ({error.msg}); {advice}") from error
    except RecursionError as error:
        raise DataError(f"{where}: nested too deeply to be read; write the fields of a task side by side") from error
    except _Twice as error:
        raise DataError(f"{where}: the field {str(error)!r} stands twice in one object; leave one of them") from error
    except ValueError as error:
        reason = "an integer of thousands of digits" if "digits" in str(error) else str(error)
        raise DataError(f"{where}: {reason}; write it as text") from error
    for number, item in enumerate(value, 1) if isinstance(value, list) else ():
        check_values(item, f"{where}, item {number}")
    if not isinstance(value, list):
        check_values(value, where)
    if _ESCAPED_HALF.search(text) and not is_whole(json.dumps(value, ensure_ascii=False)):
        raise DataError(f"{where}: half a character (a lone \\u{{d8..df}}.. escape); mend it")
    return value


class _Twice(ValueError):
    """A field's name that is given twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON has")


def _recognise(place: str, location: str, row: Any, names: Mapping[str, str]) -> _Record:
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise DataError(
            f"{place}, {location}: expected an object with a task's fields, {{...}}, and found {kind}; write one such "
            "object a task, with question and answer"
        )
    try:
        named_row = renamed(row, names)
        row_format = recognise(named_row)
        record = _Record(location, row, row_format, row_format.read(named_row))
    except DataError as error:
        raise DataError(f"{place}, {location}: {error}") from error
    return record


def _check(place: str, records: Sequence[_Record]) -> None:
    """Every row has an answer, and all are of one format."""
    if not records:
        raise DataError(f"{place} has no rows; write one a task")
    unanswered = [record for record in records if record.fields.answer is None]
    if len(unanswered) == len(records):
        raise DataError(
            f"{place}: none of the {len(records)} rows has a reference answer ({_columns(records[0])}); "
            "add an answer to each, or say which column holds it: data.columns.answer=NAME"
        )
    if unanswered:
        raise DataError(
            f"{place}, {unanswered[0].location}: no reference answer, as in {len(unanswered)} of {len(records)} rows "
            f"({_columns(unanswered[0])}); add the answers, drop these rows, or say which column holds them in all "
            "rows: data.columns.answer=NAME"
        )
    counts = Counter(record.row_format.kind for record in records)
    first = records[0]
    if len(counts) > 1:
        odd = next(record for record in records if record.row_format is not first.row_format)
        raise DataError(
            f"{place}, {odd.location}: read as {odd.row_format.title}, "
            f"but {first.location} as {first.row_format.title}; keep to one layout a file"
        )


def _columns(record: _Record) -> str:
    """A row's columns, for a sentence on what it lacks."""
    return f"{record.location} has {', '.join(sorted(record.row))}"


def _task(name: str, record: _Record, columns: Mapping[str, str], left_out: set[str]) -> Task:
    info = info_of(record.row, record.fields, record.row_format.kind, columns, left_out)
    return Task(id=name, prompt=record.fields.question, answer=record.fields.answer, info=info)
