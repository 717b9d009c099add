"""Fills the invented schemas with rows from a seed: small SQLite databases, as bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from random import Random

from whet.envs.sql.schemas import SCHEMAS, TOWNS, Table
from whet.seeds import seed_of

TRAIN_VARIANTS, TEST_VARIANTS = 4, 1
"""Databases of each schema, each with rows of its own."""
UNSEEN = "farm"
"""The schema that only test items have."""
UNSEEN_VARIANTS = 2

_FIRST = (
    "Ada", "Bela", "Cato", "Dina", "Emil", "Fanny", "Gita", "Hugo", "Ines", "Jonas", "Kira", "Leo", "Mara", "Nils",
    "Olga", "Pavel", "Quinn", "Rosa", "Sami", "Tilda", "Ugo", "Vera", "Wim", "Yara", "Zeno",
)  # fmt: skip
_LAST = (
    "Abbot", "Brandt", "Costa", "Dahl", "Ekman", "Fabre", "Grant", "Hahn", "Ito", "Jansen", "Kovac", "Lund", "Moreau",
    "Novak", "Okoro", "Petit", "Quist", "Rossi", "Silva", "Turner", "Ueda", "Varga", "Weber", "Young", "Zeller",
)  # fmt: skip
_HOW = (
    "Amber", "Bright", "Copper", "Distant", "Early", "Frozen", "Golden", "Hidden", "Ivory", "Jade", "Keen", "Little",
    "Misty", "Northern", "Open", "Plain", "Quiet", "Red", "Silver", "Tall", "Upper", "Velvet", "Wide", "Young",
)  # fmt: skip
_WHAT = (
    "Anchor", "Bridge", "Candle", "Door", "Engine", "Forest", "Garden", "Harbour", "Island", "Journey", "Kettle",
    "Lantern", "Mirror", "Needle", "Orchard", "Pocket", "Quarry", "River", "Signal", "Tower", "Umbrella", "Valley",
    "Window", "Yard",
)  # fmt: skip
_FIRMS = ("Brothers", "Company", "Partners", "Supply", "Trading", "Works")
_PLACES = ("Bay", "Cross", "Field", "Gate", "Hill", "Mill", "Park", "Point", "Ridge", "Side")
_NAMES = {
    "people": (_FIRST, _LAST),
    "things": (_HOW, _WHAT),
    "places": (TOWNS, _PLACES),
    "firms": (_LAST, _FIRMS),
    "codes": (("A", "B", "C", "D", "E", "F", "G", "H"), tuple(map(str, range(100, 1000)))),
}


def database_names(schema: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The databases of a schema: those of training items, and those of test items."""
    if schema == UNSEEN:
        return (), tuple(f"{schema}_{number}" for number in range(UNSEEN_VARIANTS))
    names = [f"{schema}_{number}" for number in range(TRAIN_VARIANTS + TEST_VARIANTS)]
    return tuple(names[:TRAIN_VARIANTS]), tuple(names[TRAIN_VARIANTS:])


TRAIN = tuple(name for schema in SCHEMAS for name in database_names(schema)[0])
TEST = tuple(name for schema in SCHEMAS for name in database_names(schema)[1])


def schema_of(name: str) -> str:
    """The schema of a database: `school` of `school_3`."""
    return name.rpartition("_")[0]


@cache
def database(name: str) -> bytes:
    """The bytes of a database, which are the same in every process that has the same SQLite."""
    random = Random(seed_of("sqlgym database", name))
    num_rows: dict[str, int] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in SCHEMAS[schema_of(name)].values():
            connection.execute(created(table))
            marks = ", ".join("?" * (2 + len(table.columns) + len(table.parents)))
            connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", _rows(table, num_rows, random))
            num_rows[table.name] = table.num_rows
        connection.commit()
        return connection.serialize()


def created(table: Table) -> str:
    """The statement that creates a table."""
    columns = [f"{table.key} INTEGER PRIMARY KEY", f"{table.label} TEXT NOT NULL"]
    columns += [f"{column.name} {'INTEGER' if column.is_number else 'TEXT'} NOT NULL" for column in table.columns]
    columns += [f"{column} INTEGER NOT NULL REFERENCES {parent}" for column, parent in table.parents]
    return f"CREATE TABLE {table.name} ({', '.join(columns)})"


def column_names(table: Table) -> tuple[str, ...]:
    """All columns, in the table's order."""
    return (
        table.key,
        table.label,
        *(column.name for column in table.columns),
        *(column for column, _ in table.parents),
    )


def _rows(table: Table, num_rows: dict[str, int], random: Random) -> Iterator[tuple[object, ...]]:
    first, last = _NAMES[table.names]
    joint = "" if table.names == "codes" else " "
    pool = [f"{one}{joint}{other}" for one in first for other in last]
    if len(pool) < table.num_rows:
        pool += [f"{name} {number}" for number in (2, 3) for name in pool]
    names = random.sample(pool, table.num_rows)
    # Some values are commoner than others, and some parents have no row at all.
    weights = {column.name: [random.random() + 0.2 for _ in column.values] for column in table.kinds}
    parents = {
        column: random.sample(range(1, num_rows[parent] + 1), num_rows[parent] * 9 // 10)
        for column, parent in table.parents
    }
    for number, name in enumerate(names, start=1):
        values: list[object] = [
            random.choice(column.values) if column.is_number else random.choices(column.values, weights[column.name])[0]
            for column in table.columns
        ]
        references = [random.choice(parents[column]) for column, _ in table.parents]
        yield (number, name, *values, *references)
