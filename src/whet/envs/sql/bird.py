"""A user's folder of BIRD (arXiv:2305.03111): its questions, databases and item numbers.

The folder has `train` or `dev` or both, each as in BIRD's archives: `train.json`, `train_tables.json` and
`train_databases/DATABASE/DATABASE.sqlite`. Numbers are AgentGym's: 0 to 9427 are the training questions, 9428 to 10961
those of `dev`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whet.envs.protocol import EnvError
from whet.envs.sql.descriptions import Description

PLACES: Mapping[str, range] = {"train": range(9428), "dev": range(9428, 10962)}
"""Item numbers by part of BIRD."""


@dataclass(frozen=True, slots=True)
class BirdQuestion:
    """A question of BIRD's."""

    words: str
    gold: str
    database: Path
    description: Description
    difficulty: str
    """As BIRD's `dev` says: simple, moderate or challenging; empty in `train`."""


Bird = Mapping[int, BirdQuestion]


def read_bird(path: str | Path) -> Bird:
    """The questions of a folder, by item number.

    Raises: EnvError where the folder is not as it should be.
    """
    folder = Path(path).expanduser().resolve()
    parts = [part for part in PLACES if (folder / part / f"{part}.json").is_file()]
    if not parts:
        raise EnvError(
            f"{folder} has neither train/train.json nor dev/dev.json: give the folder that holds BIRD's `train`, `dev` "
            "or both"
        )
    stamps = tuple((folder / part / f"{part}.json").stat().st_mtime_ns for part in parts)
    return _read(folder, tuple(parts), stamps)


@cache
def _read(folder: Path, parts: tuple[str, ...], _changed: tuple[int, ...]) -> Bird:
    questions: dict[int, BirdQuestion] = {}
    for part in parts:
        rows = _rows(folder / part / f"{part}.json")
        if len(rows) > len(PLACES[part]):
            raise EnvError(
                f"{folder / part / part}.json has {len(rows):,} questions, and BIRD's {part} has "
                f"{len(PLACES[part]):,}: give BIRD's own file, or a part of it"
            )
        descriptions = _descriptions(folder / part / f"{part}_tables.json")
        for number, row in zip(PLACES[part], rows, strict=False):
            questions[number] = _question(folder / part, part, number - PLACES[part].start, row, descriptions)
    return questions


def _question(
    folder: Path, part: str, place: int, row: Mapping[str, Any], descriptions: Mapping[str, Description]
) -> BirdQuestion:
    where = f"{folder / part}.json, question {place}"
    try:
        texts = [row[name] for name in ("question", "SQL", "db_id")]
    except KeyError as error:
        raise EnvError(f"{where}: there is no {error}; a question has question, SQL and db_id") from error
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise EnvError(f"{where}: question, SQL and db_id have to be texts that are not empty")
    words, gold, name = texts
    if name not in descriptions:
        raise EnvError(f"{where}: {part}_tables.json has no database {name!r}; give the file that belongs to it")
    database = folder / f"{part}_databases" / name / f"{name}.sqlite"
    if not database.is_file():
        raise EnvError(f"{where}: its database {database} is missing; unpack BIRD's {part}_databases.zip there")
    return BirdQuestion(words, gold, database, descriptions[name], str(row.get("difficulty", "")))


def _descriptions(file: Path) -> Mapping[str, Description]:
    descriptions = {}
    for place, row in enumerate(_rows(file)):
        try:
            descriptions[row["db_id"]] = Description(
                name=row["db_id"],
                tables=tuple(row["table_names"]),
                columns=tuple((int(table), str(name)) for table, name in row["column_names"]),
                primary=tuple(tuple(key) if isinstance(key, list) else key for key in row["primary_keys"]),
                foreign=tuple((int(column), int(other)) for column, other in row["foreign_keys"]),
            )
            _check(descriptions[row["db_id"]])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EnvError(f"{file}, database {place}: it is not as BIRD describes one ({error!r})") from error
    return descriptions


def _check(description: Description) -> None:
    """Raises: IndexError where a number names no column or table."""
    for table, _ in description.columns[1:]:
        description.tables[table]
    for pair in description.foreign:
        for place in pair:
            description.columns[place]


def _rows(file: Path) -> Sequence[Mapping[str, Any]]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EnvError(f"{file} cannot be read as JSON ({error}): give BIRD's own file") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise EnvError(f"{file} holds no list of objects: give BIRD's own file")
    return rows
