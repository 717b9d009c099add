"""Questions in words with their gold queries, by templates in five grades of difficulty."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from whet.envs.sql.databases import database, schema_of
from whet.envs.sql.schemas import SCHEMAS, Column, Schema, Table
from whet.seeds import seed_of

ITEMS_PER_GRADE = 20
MAX_ROWS = 60
"""Of a gold query's result."""
MAX_TRIES = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a database."""

    database: str
    grade: str
    """Its difficulty: a key of `TEMPLATES`."""
    words: str
    gold: str
    """A query that answers it."""


class _Draw:
    """What a template draws from: tables, columns, and values that the database holds."""

    def __init__(self, schema: Schema, connection: sqlite3.Connection, random: Random) -> None:
        self.schema, self.random, self._connection = schema, random, connection

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def table(self) -> Table:
        return self.random.choice(list(self.schema.values()))

    def pair(self) -> tuple[Table, str, Table]:
        """A table, its column that refers to another, and that other one."""
        pairs = [(table, column, self.schema[of]) for table in self.schema.values() for column, of in table.parents]
        return self.random.choice(pairs)

    def link(self) -> tuple[Table, tuple[str, Table], tuple[str, Table]]:
        """A table that refers to two others, in either order."""
        tables = [table for table in self.schema.values() if len(table.parents) == 2]
        table = self.random.choice(tables)
        (first, one), (second, other) = self.random.sample(table.parents, 2)
        return table, (first, self.schema[one]), (second, self.schema[other])

    def kind(self, table: Table) -> tuple[Column, str]:
        """A column of texts, and one of its values."""
        column = self.random.choice(table.kinds)
        return column, self.value(table, column.name)

    def number(self, table: Table) -> tuple[Column, int]:
        """A column of numbers, and one of its values."""
        column = self.random.choice(table.numbers)
        return column, self.value(table, column.name)

    def value(self, table: Table, column: str) -> Any:
        return self.random.choice(self.rows(f"SELECT {column} FROM {table.name}"))[0]

    def name(self, table: Table) -> str:
        return str(self.value(table, table.label))


Template = Callable[[_Draw], tuple[str, str]]
"""Draws a question and its gold query."""


def _of_a_kind(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    kind, value = draw.kind(t)
    return (
        f"List the {t.label} of every {t.one} whose {kind.words} is {value}.",
        f"SELECT {t.label} FROM {t.name} WHERE {kind.name} = '{value}'",
    )


def _above(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    number, least = draw.number(t)
    return (
        f"Which {t.many} have a {number.words} above {least}? Give the {t.label} of each.",
        f"SELECT {t.label} FROM {t.name} WHERE {number.name} > {least}",
    )


def _of_a_kind_below(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, value), (number, most) = draw.kind(t), draw.number(t)
    return (
        f"List the {t.label} of every {t.one} whose {kind.words} is {value} and whose {number.words} is below {most}.",
        f"SELECT {t.label} FROM {t.name} WHERE {kind.name} = '{value}' AND {number.name} < {most}",
    )


def _of_one(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    column, name = draw.random.choice(t.columns), draw.name(t)
    return (
        f"What is the {column.words} of the {t.one} whose {t.label} is {name}?",
        f"SELECT {column.name} FROM {t.name} WHERE {t.label} = '{name}'",
    )


def _count_kind(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    kind, value = draw.kind(t)
    return (
        f"How many {t.many} have the {kind.words} {value}?",
        f"SELECT COUNT(*) FROM {t.name} WHERE {kind.name} = '{value}'",
    )


def _count_from(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    number, least = draw.number(t)
    return (
        f"How many {t.many} have a {number.words} of at least {least}?",
        f"SELECT COUNT(*) FROM {t.name} WHERE {number.name} >= {least}",
    )


_AGGREGATES = {"average": "AVG", "lowest": "MIN", "highest": "MAX", "total": "SUM"}


def _aggregate(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    words, function = draw.random.choice(list(_AGGREGATES.items()))
    (kind, value), (number, _) = draw.kind(t), draw.number(t)
    return (
        f"What is the {words} {number.words} of the {t.many} whose {kind.words} is {value}?",
        f"SELECT {function}({number.name}) FROM {t.name} WHERE {kind.name} = '{value}'",
    )


def _spread(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, value), (number, _) = draw.kind(t), draw.number(t)
    return (
        f"By how much does the highest {number.words} exceed the lowest, among the {t.many} whose {kind.words} is "
        f"{value}?",
        f"SELECT MAX({number.name}) - MIN({number.name}) FROM {t.name} WHERE {kind.name} = '{value}'",
    )


def _joined(child: Table, column: str, parent: Table) -> str:
    return f"{child.name} JOIN {parent.name} ON {child.name}.{column} = {parent.name}.{parent.key}"


def _by_parent_kind(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    kind, value = draw.kind(parent)
    return (
        f"List the {child.label} of every {child.one} whose {parent.one} has the {kind.words} {value}.",
        f"SELECT {child.name}.{child.label} FROM {_joined(child, column, parent)} "
        f"WHERE {parent.name}.{kind.name} = '{value}'",
    )


def _count_by_parent(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    number, least = draw.number(parent)
    return (
        f"How many {child.many} belong to {parent.many} with a {number.words} above {least}?",
        f"SELECT COUNT(*) FROM {_joined(child, column, parent)} WHERE {parent.name}.{number.name} > {least}",
    )


def _parent_of_one(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    asked, name = draw.random.choice(parent.columns), draw.name(child)
    return (
        f"Give the {parent.label} and the {asked.words} of the {parent.one} that the {child.one} with the "
        f"{child.label} {name} belongs to.",
        f"SELECT {parent.name}.{parent.label}, {parent.name}.{asked.name} FROM {_joined(child, column, parent)} "
        f"WHERE {child.name}.{child.label} = '{name}'",
    )


def _linked(draw: _Draw) -> tuple[str, str]:
    link, (first, one), (second, other) = draw.link()
    name = draw.name(other)
    return (
        f"Which {one.many} are linked by {link.many} to the {other.one} whose {other.label} is {name}? Give each "
        f"{one.label} once.",
        f"SELECT DISTINCT {one.name}.{one.label} FROM {_joined(link, first, one)} "
        f"JOIN {other.name} ON {link.name}.{second} = {other.name}.{other.key} "
        f"WHERE {other.name}.{other.label} = '{name}'",
    )


def _count_each(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, _), (number, least) = draw.kind(t), draw.number(t)
    return (
        f"How many {t.many} with a {number.words} above {least} are there for each {kind.words}? Give the "
        f"{kind.words} and the number.",
        f"SELECT {kind.name}, COUNT(*) FROM {t.name} WHERE {number.name} > {least} GROUP BY {kind.name}",
    )


def _highest_average(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, _), (number, _) = draw.kind(t), draw.number(t)
    return (
        f"Which {kind.words} has the highest average {number.words} among the {t.many}? Give the {kind.words} and "
        "that average.",
        f"SELECT {kind.name}, AVG({number.name}) FROM {t.name} GROUP BY {kind.name} "
        f"ORDER BY AVG({number.name}) DESC LIMIT 1",
    )


def _top(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    number, _ = draw.number(t)
    kind, value = draw.kind(t)
    most = draw.random.choice((3, 4, 5))
    values = draw.rows(
        f"SELECT {number.name} FROM {t.name} WHERE {kind.name} = '{value}' ORDER BY {number.name} DESC LIMIT {most + 1}"
    )
    if len(values) <= most or values[most - 1] == values[most]:
        raise _Unclear
    return (
        f"Of the {t.many} whose {kind.words} is {value}, which {most} have the highest {number.words}? Give their "
        f"{t.label} and {number.words}.",
        f"SELECT {t.label}, {number.name} FROM {t.name} WHERE {kind.name} = '{value}' "
        f"ORDER BY {number.name} DESC LIMIT {most}",
    )


def _with_many_children(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    least = draw.random.randint(2, 12)
    return (
        f"Which {parent.many} have more than {least} {child.many}? Give the {parent.label} and the number of "
        f"{child.many}.",
        f"SELECT {parent.name}.{parent.label}, COUNT(*) FROM {_joined(child, column, parent)} "
        f"GROUP BY {parent.name}.{parent.key} HAVING COUNT(*) > {least}",
    )


def _above_average(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, value), (number, _) = draw.kind(t), draw.number(t)
    return (
        f"List the {t.label} of every {t.one} whose {kind.words} is {value} and whose {number.words} is above the "
        f"average {number.words} of all {t.many}.",
        f"SELECT {t.label} FROM {t.name} WHERE {kind.name} = '{value}' "
        f"AND {number.name} > (SELECT AVG({number.name}) FROM {t.name})",
    )


def _best_of_its_kind(draw: _Draw) -> tuple[str, str]:
    t = draw.table()
    (kind, _), (number, _) = draw.kind(t), draw.number(t)
    return (
        f"For each {kind.words}, which {t.one} has the highest {number.words}? Give the {kind.words} and the "
        f"{t.label}, with all that share the highest.",
        f"SELECT {kind.name}, {t.label} FROM {t.name} AS one WHERE {number.name} = (SELECT MAX({number.name}) "
        f"FROM {t.name} AS other WHERE other.{kind.name} = one.{kind.name})",
    )


def _childless(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    kind, value = draw.kind(child)
    return (
        f"Which {parent.many} have no {child.one} whose {kind.words} is {value}? Give the {parent.label} of each.",
        f"SELECT {parent.label} FROM {parent.name} WHERE {parent.key} NOT IN "
        f"(SELECT {column} FROM {child.name} WHERE {kind.name} = '{value}')",
    )


def _more_than_one(draw: _Draw) -> tuple[str, str]:
    child, column, parent = draw.pair()
    name = draw.name(parent)
    (number, _), (kind, value) = draw.number(child), draw.kind(child)
    return (
        f"How many {child.many} whose {kind.words} is {value} have a higher {number.words} than every {child.one} of "
        f"the {parent.one} whose {parent.label} is {name}?",
        f"SELECT COUNT(*) FROM {child.name} WHERE {kind.name} = '{value}' AND {number.name} > (SELECT "
        f"MAX({child.name}.{number.name}) FROM {_joined(child, column, parent)} "
        f"WHERE {parent.name}.{parent.label} = '{name}')",
    )


TEMPLATES: Mapping[str, Sequence[Template]] = {
    "filter": (_of_a_kind, _above, _of_a_kind_below, _of_one),
    "aggregate": (_count_kind, _aggregate, _count_from, _spread),
    "join": (_by_parent_kind, _count_by_parent, _parent_of_one, _linked),
    "group": (_count_each, _highest_average, _top, _with_many_children),
    "nested": (_above_average, _best_of_its_kind, _childless, _more_than_one),
}
"""By grade of difficulty, the easiest first."""
GRADES = tuple(TEMPLATES)
ITEMS_PER_DATABASE = ITEMS_PER_GRADE * len(GRADES)


class _Unclear(Exception):
    """The drawn question has no single answer."""


@cache
def questions(name: str) -> tuple[Question, ...]:
    """The questions about a database, grade by grade: `ITEMS_PER_GRADE` each, all different."""
    schema = SCHEMAS[schema_of(name)]
    made: dict[str, Question] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(database(name))
        for grade, templates in TEMPLATES.items():
            for number in range(ITEMS_PER_GRADE):
                random = Random(seed_of("sqlgym question", name, grade, number))
                draw = _Draw(schema, connection, random)
                words, gold = _drawn(draw, templates[number % len(templates)], made)
                made[words] = Question(name, grade, words, gold)
    return tuple(made.values())


def _drawn(draw: _Draw, template: Template, made: Mapping[str, Question]) -> tuple[str, str]:
    """A question that is new, and whose answer says something."""
    for _ in range(MAX_TRIES):
        try:
            words, gold = template(draw)
        except _Unclear:
            continue
        if words not in made and _says_something(draw.rows(gold)):
            return words, gold
    raise AssertionError(f"{template.__name__} gives no new question: its schema has too few columns")


def _says_something(rows: Sequence[tuple[Any, ...]]) -> bool:
    return 0 < len(rows) <= MAX_ROWS and rows[0] not in ((None,), (0,), (1,))
