"""The words in which a database is described to an agent, as AgentGym's sqlgym writes them.

The published description names wrong columns of foreign keys: those that follow the right ones in the list of all
columns. Records hold it so. `keys="right"` names the right columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.envs.sql.databases import column_names
from whet.envs.sql.schemas import Schema

Keys = Literal["published", "right"]


@dataclass(frozen=True, slots=True)
class Description:
    """A database's tables and columns. The fields are those of BIRD's file of tables."""

    name: str
    tables: tuple[str, ...]
    columns: tuple[tuple[int, str], ...]
    """The number of its table and the name, column by column. The first is `*`, of table -1."""
    primary: tuple[object, ...] = ()
    """Numbers of columns. BIRD has a list in the place of a number where a key has several columns."""
    foreign: tuple[tuple[int, int], ...] = ()
    """Numbers of a column and of the one that it refers to."""


def described(database: Description, keys: Keys) -> str:
    """The first part of an observation."""
    names = [name.lower() for name in database.tables]
    sentences = [f"{database.name} contains tables such as {', '.join(names)}."]
    for number, name in enumerate(names):
        columns = [
            (place, column.lower()) for place, (of, column) in enumerate(database.columns) if place and of == number
        ]
        sentences.append(f"Table {name} has columns such as {', '.join(column for _, column in columns)}.")
        primary = [column for place, column in columns if place in database.primary]
        sentences.append(f"{', '.join(primary)} is the primary key.")
    for column, other in database.foreign:
        sentences.append(
            f"The {_column(database, column, keys)} of {names[database.columns[column][0]]} is the foreign key of "
            f"{_column(database, other, keys)} of {names[database.columns[other][0]]}."
        )
    return " ".join(sentences)


def _column(database: Description, place: int, keys: Keys) -> str:
    """A column's name. As published: that of the next one, and after the last the first."""
    if keys == "published":
        place = place + 1 if place + 1 < len(database.columns) else 1
    return database.columns[place][1].lower()


def description_of(name: str, schema: Schema) -> Description:
    """The description of a generated database."""
    tables = list(schema.values())
    columns = [(-1, "*")]
    columns += [(number, column) for number, table in enumerate(tables) for column in column_names(table)]
    places = {(tables[number].name, column): place for place, (number, column) in enumerate(columns) if place}
    return Description(
        name=name,
        tables=tuple(schema),
        columns=tuple(columns),
        primary=tuple(places[table.name, table.key] for table in tables),
        foreign=tuple(
            (places[table.name, column], places[parent, schema[parent].key])
            for table in tables
            for column, parent in table.parents
        ),
    )


def table_names(database: Description) -> Sequence[str]:
    """The tables, as a query writes them."""
    return [f'"{name}"' if not name.isidentifier() else name for name in database.tables]
