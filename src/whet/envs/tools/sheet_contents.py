"""Contents of sheet: tables of goods, tasks and grades."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from whet.envs.tools.grid import Grid, shown
from whet.envs.tools.sheet import Sheet
from whet.envs.tools.words import people

_PRODUCTS = ("beans", "bread", "butter", "cheese", "flour", "honey", "lentils", "oil", "pepper", "rice", "salt", "tea")
_KINDS = ("Baking", "Dairy", "Dry goods", "Spices")
_TASKS = ("Archive mails", "Book rooms", "Call suppliers", "Draw plans", "File taxes", "Print labels", "Test alarms",
          "Train staff", "Update lists", "Wash windows")  # fmt: skip
STATES = ("Done", "In progress", "Open")


def make_sheet(random: Random) -> Sheet:
    """Three sheets: goods, tasks and grades."""
    makers = [_goods, _jobs, _grades]
    random.shuffle(makers)
    first = random.randrange(1, 30)
    return Sheet({f"Sheet{first + number}": make(random) for number, make in enumerate(makers)})


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    return Grid((tuple(header), *(tuple(shown(value) for value in row) for row in rows)))


def _different(random: Random, first: int, last: int, count: int) -> list[int]:
    return random.sample(range(first, last), count)


def _goods(random: Random) -> Grid:
    count = random.randrange(5, 9)
    columns = [
        random.sample(_PRODUCTS, count),
        random.choices(_KINDS, k=count),
        [price / 10 for price in _different(random, 5, 120, count)],
        _different(random, 5, 200, count),
        _different(random, 1, 60, count),
    ]
    return _table(("Product", "Category", "Price", "Quantity", "Sold"), list(zip(*columns, strict=True)))


def _jobs(random: Random) -> Grid:
    count = random.randrange(5, 9)
    columns = [
        random.sample(_TASKS, count),
        people(random, count),
        random.choices(STATES, k=count),
        _different(random, 1, 40, count),
    ]
    return _table(("Task", "Person", "Status", "Hours"), list(zip(*columns, strict=True)))


def _grades(random: Random) -> Grid:
    count = random.randrange(4, 7)
    columns = [people(random, count), *(_different(random, 40, 100, count) for _ in range(3)), [""] * count]
    return _table(("Student", "Maths", "Physics", "Biology", "Total"), list(zip(*columns, strict=True)))
