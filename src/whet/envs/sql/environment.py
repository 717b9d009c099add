"""Text to SQL: a database in words and a question, answered by one query (BIRD, arXiv:2305.03111; AgentGym's sqlgym).

The reward is 1 where the query's rows and those of the gold query are equal as sets: order and repetitions of rows do
not count, order of columns does. Upstream ends an episode with its first step, right or wrong, and so does this.

Our own items are generated: small databases, and questions in five grades of difficulty. Their numbers begin at
`FIRST_ITEM`, so that no published number means one of them by chance. Published numbers need `path`, a folder of BIRD.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Self

from whet.envs.formats import query_in
from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Observed, PublishedItems, Stepped
from whet.envs.sql.bird import PLACES, Bird, read_bird
from whet.envs.sql.connection import Limits, QueryError, Row, run_query
from whet.envs.sql.databases import TEST, TRAIN, database, schema_of
from whet.envs.sql.descriptions import Description, Keys, described, description_of, table_names
from whet.envs.sql.questions import GRADES, ITEMS_PER_DATABASE, ITEMS_PER_GRADE, questions
from whet.envs.sql.schemas import SCHEMAS
from whet.seeds import seed_of

MAX_SHOWN = 100
"""Characters of a result that an observation shows."""
FIRST_ITEM = 100_000
"""The first generated item."""
ITEMS = range(FIRST_ITEM, FIRST_ITEM + ITEMS_PER_DATABASE * len(TRAIN + TEST))

OWN_LIMITS = Limits(max_steps=3_000_000, timeout_s=5.0, max_rows=10_000, max_bytes=1_000_000, max_value=4096)
"""Gold queries of generated items take a fifth of these steps at most."""
BIRD_LIMITS = Limits(
    max_steps=1_000_000_000, timeout_s=30.0, max_rows=1_000_000, max_bytes=100_000_000, max_value=200_000
)
"""BIRD's databases have up to millions of rows."""


@dataclass(frozen=True, slots=True)
class _Item:
    words: str
    gold: str
    description: Description
    database: bytes | Path


class Sql:
    """One question.

    Args:
        path: a folder of BIRD (see `bird`). None: generated databases.
        max_steps: steps of SQLite's virtual machine that a query may take. None: 3 million; 1,000 million for `path`.
        timeout_s: seconds that it may take. None: 5; 30 for `path`.
        keys: how the description names foreign keys: `published`, with upstream's wrong columns, or `right`. None:
            `right`; `published` for `path`.
    Raises: EnvError where the folder is not as it should be, or a setting is out of its range.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        max_steps: int | None = None,
        timeout_s: float | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._bird: Bird | None = None if path is None else read_bird(path)
        limits = OWN_LIMITS if path is None else BIRD_LIMITS
        self._limits = replace(
            limits,
            max_steps=limits.max_steps if max_steps is None else max_steps,
            timeout_s=limits.timeout_s if timeout_s is None else timeout_s,
        )
        if self._limits.max_steps < 1 or self._limits.timeout_s <= 0:
            raise EnvError("sqlgym: max_steps and timeout_s have to be above 0")
        if keys not in (None, "published", "right"):
            raise EnvError(f"sqlgym has no keys={keys!r}: choose published or right")
        self._keys: Keys = keys or ("right" if path is None else "published")
        self._number = -1
        self._item: _Item | None = None
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """`seed` changes nothing. The info lists queries that show a table, or count its rows."""
        self._is_over = True
        self._item = self._found(item)
        self._number, self._is_over = item, False
        tables = table_names(self._item.description)
        looks = tuple(f"SELECT {what} FROM {name}" for name in tables for what in ("*", "COUNT(*)"))
        shown = described(self._item.description, self._keys)
        return f"{shown}\n\n{self._item.words}", {ACTIONS: looks}

    def check_item(self, item: int) -> None:
        """Raises: EnvError where there is no such item."""
        self._found(item)

    def _found(self, item: int) -> _Item:
        return _generated(item) if self._bird is None else _published(self._bird, item)

    def step(self, action: str) -> Stepped:
        """Runs the action: a query, or a text with one in a block that begins with three backticks and `sql`.

        Raises: EnvError also where the gold query cannot be run, as in a broken database.
        """
        if self._is_over or self._item is None:
            raise EnvError("this question has not been asked or has been answered: call reset(item) first")
        expected = self._run_gold(self._item)
        self._is_over = True
        try:
            rows = run_query(self._item.database, query_in(action), self._limits)
        except QueryError as error:
            return _shown(str(error)), 0.0, True, False, {INVALID: True}
        return _shown(str(rows)), float(same_rows(rows, expected)), True, False, {}

    def _run_gold(self, item: _Item) -> list[Row]:
        try:
            return run_query(item.database, item.gold, self._limits)
        except QueryError as error:
            name = item.description.name
            raise EnvError(
                f"the gold query of item {self._number} cannot be run on the database {name}: {error}; mend the "
                "database, or raise max_steps or timeout_s where those are the reason"
            ) from error

    @property
    def gold(self) -> str:
        """The gold query of the present item."""
        return "" if self._item is None else self._item.gold

    @property
    def tables(self) -> Sequence[str]:
        """The tables of its database."""
        return () if self._item is None else self._item.description.tables

    def state_key(self) -> Hashable:
        return self._number, self.gold, self._is_over

    def fork(self) -> Self:
        return copy(self)

    def close(self) -> None:
        self._is_over = True


def same_rows(rows: Sequence[Row], expected: Sequence[Row]) -> bool:
    """BIRD's comparison: both have the same different rows."""
    return set(rows) == set(expected)


def _shown(result: str) -> str:
    return result if len(result) <= MAX_SHOWN else f"{result[:MAX_SHOWN]}..."


def _generated(number: int) -> _Item:
    if number not in ITEMS:
        published = f"{number} is a number of BIRD's: give path=FOLDER with its databases. "
        raise EnvError(
            f"sqlgym has no item {number}. {published if 0 <= number < PLACES['dev'].stop else ''}Generated items are "
            f"{ITEMS.start} to {ITEMS.stop - 1}"
        )
    name, place = _place(number)
    question = questions(name)[place]
    return _Item(question.words, question.gold, description_of(name, SCHEMAS[schema_of(name)]), database(name))


def _published(bird: Bird, number: int) -> _Item:
    if number not in bird:
        raise EnvError(
            f"the folder of BIRD has no item {number}: training questions are numbered from 0, those of dev from "
            f"{PLACES['dev'].start} to {PLACES['dev'].stop - 1} at most"
        )
    question = bird[number]
    return _Item(question.words, question.gold, question.description, question.database)


def _place(number: int) -> tuple[str, int]:
    """The database of a generated item, and which of its questions it is."""
    which, place = divmod(number - FIRST_ITEM, ITEMS_PER_DATABASE)
    return (TRAIN + TEST)[which], place


@cache
def splits() -> Mapping[str, Sequence[int]]:
    """Generated items. Those of `test` are of other databases than those of `train`, and two have an unseen schema."""
    border = FIRST_ITEM + ITEMS_PER_DATABASE * len(TRAIN)
    return {"train": range(FIRST_ITEM, border), "test": range(border, ITEMS.stop)}


def group(item: int) -> str:
    """The grade of difficulty of a generated item."""
    return GRADES[(item - FIRST_ITEM) % ITEMS_PER_DATABASE // ITEMS_PER_GRADE]


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With a folder of BIRD: its items, by its difficulties."""
    if settings.get("path") is None:
        return SQLGYM
    bird = read_bird(settings["path"])
    parts = {
        split: tuple(number for number in PLACES[part] if number in bird)
        for split, part in (("train", "train"), ("test", "dev"))
    }
    return replace(
        SQLGYM, splits=lambda: parts, group=lambda item: bird[item].difficulty or "train", item_ids={"sqlgym": ""}
    )


_THOUGHTS = (
    "The question asks about {tables}, so one query there answers it.",
    "I look at the described columns. What is wanted can be read from {tables}.",
    "All that is needed is in {tables}.",
)


def expert(env: Sql, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Answers with the gold query."""
    used = [name for name in env.tables if f" {name}" in env.gold]
    tables = " and ".join(used) or "the database"
    yield Random(seed_of("sqlgym expert", seed, env.gold)).choice(_THOUGHTS).format(tables=tables), env.gold


SQLGYM = EnvironmentInfo(
    name="sqlgym",
    make=Sql,
    splits=splits,
    rules="sqlgym",
    max_turns=1,
    group=group,
    item_ids={"sqlgym": ""},
    published=PublishedItems(split="test", settings=("path",)),
    parser="sql",
    expert=expert,
    of_settings=of_settings,
)
