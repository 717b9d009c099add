"""A sheet of cells: texts in rows, notes, merged ranges and frozen rows. It is frozen; changes give a new one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.envs.tools.calls import ToolError

MAX_ROWS, MAX_COLUMNS, MAX_TEXT = 200, 26, 500
MAX_CHARACTERS = 20_000
"""Of all cells of a sheet together."""
Position = tuple[int, int]
"""Row and column, from 0."""
Box = tuple[Position, Position]
"""The first and the last cell of a range."""
Rows = tuple[tuple[str, ...], ...]
_POSITION = re.compile(r"([A-Z])([1-9][0-9]{0,2})")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,2})?")


@dataclass(frozen=True, slots=True)
class Grid:
    """A sheet. All rows are of one length."""

    rows: Rows
    notes: tuple[tuple[Position, str], ...] = ()
    merged: tuple[Box, ...] = ()
    frozen_rows: int = 1
    """Rows that a sort leaves where they are."""
    frozen_columns: int = 0

    def values(self) -> list[list[str]]:
        """All cells, without empty rows and columns at the end. A merged range shows its first cell's value."""
        rows = [list(row) for row in self.rows]
        for (top, left), (bottom, right) in self.merged:
            for row in range(top, min(bottom + 1, len(rows))):
                for column in range(left, min(right + 1, len(rows[row]))):
                    rows[row][column] = self.rows[top][left]
        while rows and not any(rows[-1]):
            rows.pop()
        width = max((column + 1 for row in rows for column, text in enumerate(row) if text), default=0)
        return [row[:width] for row in rows]

    def value(self, position: Position) -> str:
        row, column = position
        return self.rows[row][column] if row < len(self.rows) and column < len(self.rows[row]) else ""

    def note(self, position: Position) -> str:
        return dict(self.notes).get(position, "")

    def with_values(self, start: Position, values: Sequence[Sequence[str]]) -> Grid:
        """With a block of texts, whose first cell is `start`.

        Raises: ToolError where it would be too large.
        """
        height = max(len(self.rows), start[0] + len(values))
        width = max(len(self.rows[0]) if self.rows else 0, start[1] + max(map(len, values), default=0))
        if height > MAX_ROWS or width > MAX_COLUMNS:
            raise ToolError(f"A sheet has at most {MAX_ROWS} rows and {MAX_COLUMNS} columns.")
        rows = [[*row, *[""] * (width - len(row))] for row in self.rows]
        rows += [[""] * width for _ in range(height - len(rows))]
        for row, texts in enumerate(values, start=start[0]):
            rows[row][start[1] : start[1] + len(texts)] = texts
        if sum(len(text) for row in rows for text in row) > MAX_CHARACTERS:
            raise ToolError(f"A sheet holds at most {MAX_CHARACTERS:,} characters.")
        return replace(self, rows=tuple(map(tuple, rows)))

    def with_rows(self, index: int, values: Sequence[Sequence[str]]) -> Grid:
        """With rows put in before the row `index`."""
        above, below = self.rows[:index], self.rows[index:]
        grown = Grid((*above, *[("",) * len(self.rows[0])] * len(values), *below))
        moved = self._moved(lambda at: (at[0] + len(values) * (at[0] >= index), at[1]))
        return replace(moved, rows=grown.rows).with_values((index, 0), values)

    def with_columns(self, index: int, values: Sequence[Sequence[str]]) -> Grid:
        """With columns put in before the column `index`."""
        rows = tuple((*row[:index], *[""] * len(values), *row[index:]) for row in self.rows)
        height = max(map(len, values), default=0)
        block = [[column[row] if row < len(column) else "" for column in values] for row in range(height)]
        moved = self._moved(lambda at: (at[0], at[1] + len(values) * (at[1] >= index)))
        return replace(moved, rows=rows).with_values((0, index), block)

    def without_rows(self, indices: set[int]) -> Grid:
        left = tuple(row for index, row in enumerate(self.rows) if index not in indices)
        moved = self._moved(lambda at: None if at[0] in indices else (at[0] - sum(i < at[0] for i in indices), at[1]))
        return replace(moved, rows=left)

    def without_columns(self, indices: set[int]) -> Grid:
        left = tuple(tuple(text for index, text in enumerate(row) if index not in indices) for row in self.rows)
        moved = self._moved(lambda at: None if at[1] in indices else (at[0], at[1] - sum(i < at[1] for i in indices)))
        return replace(moved, rows=left)

    def sorted(self, column: int, is_descending: bool) -> Grid:
        """With its rows in order, frozen ones apart. Numbers are below texts, and empty cells come last either way."""
        head, body = self.rows[: self.frozen_rows], list(enumerate(self.rows))[self.frozen_rows :]
        filled = [entry for entry in body if entry[1][column]]
        empty = [entry for entry in body if not entry[1][column]]
        filled.sort(key=lambda entry: _order(entry[1][column]), reverse=is_descending)  # equal rows keep their order
        order = [*range(len(head)), *(number for number, _ in [*filled, *empty])]
        places = {old: new for new, old in enumerate(order)}
        notes = tuple(sorted(((places[at[0]], at[1]), note) for at, note in self.notes if at[0] in places))
        return replace(self, rows=tuple(self.rows[number] for number in order), notes=notes)

    def _moved(self, move: Callable[[Position], Position | None]) -> Grid:
        """With notes and merged ranges where their cells have gone."""
        notes = tuple((to, note) for at, note in self.notes if (to := move(at)) is not None)
        boxes = [(move(first), move(last)) for first, last in self.merged]
        merged = tuple((first, last) for first, last in boxes if first is not None and last is not None)
        return replace(self, notes=notes, merged=merged)


def _order(text: str) -> tuple[int, float, str]:
    number = number_of(text)
    return (1, 0.0, text.casefold()) if number is None else (0, number, "")


def position_of(text: str) -> Position:
    """Row and column of a cell such as `B3`.

    Raises: ToolError where it is none.
    """
    match = _POSITION.fullmatch(text.strip())
    if match is None or int(match[2]) > MAX_ROWS:
        raise ToolError(f"{text[:60]!r} is no cell: write A1 notation, such as B3.")
    return int(match[2]) - 1, ord(match[1]) - ord("A")


def box_of(start: str, end: str) -> Box:
    """The range between two cells.

    Raises: ToolError where they are no corners of one.
    """
    first, last = position_of(start), position_of(end)
    if last[0] < first[0] or last[1] < first[1]:
        raise ToolError(f"{start}:{end} is no range: name its upper left and its lower right cell.")
    return first, last


def name_of(position: Position) -> str:
    """A cell in A1 notation."""
    return f"{chr(ord('A') + position[1])}{position[0] + 1}"


def number_of(text: str) -> float | None:
    """The number that a cell shows. None: it shows none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def shown(value: Any) -> str:
    """A value as its cell shows it: numbers, also those in texts, in their shortest form.

    Raises: ToolError where it is no text and no number, or too long.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ToolError(f"A cell holds at most {MAX_TEXT} characters.")
        number = number_of(value.strip())
        return value if number is None or not math.isfinite(number) else _short(number)
    if isinstance(value, int | float):
        return _short(value)
    raise ToolError("A cell takes a text or a number.")


def _short(number: float) -> str:
    return f"{number:.12g}" if number else "0"


def block_of(values: Sequence[Any]) -> list[list[str]]:
    """A list of lists as texts.

    Raises: ToolError where it is none.
    """
    if not values or not all(isinstance(row, list) and row for row in values):
        raise ToolError("values_list has to be a list of lists.")
    return [[shown(value) for value in row] for row in values]


def _minus(numbers: Sequence[float]) -> float:
    if len(numbers) != 2:
        raise ToolError("MINUS takes two cells with numbers.")
    return numbers[0] - numbers[1]


def _average(numbers: Sequence[float]) -> float:
    if not numbers:
        raise ToolError("AVERAGE needs a cell with a number.")
    return math.fsum(numbers) / len(numbers)


OPERATORS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "SUM": math.fsum,
    "AVERAGE": _average,
    "COUNT": len,
    "MAX": lambda numbers: max(numbers, default=0),
    "MIN": lambda numbers: min(numbers, default=0),
    "MINUS": _minus,
    "PRODUCT": lambda numbers: math.prod(numbers) if numbers else 0,
}


def result_of(operator: str, texts: Sequence[str]) -> str:
    """The value of a formula on cells, whose texts do not count.

    Raises: ToolError for another operator, or numbers that it does not take.
    """
    if operator not in OPERATORS:
        raise ToolError(f"the operator is {operator[:60]!r}; choose one of: {', '.join(OPERATORS)}.")
    numbers = [number for text in texts if (number := number_of(text)) is not None]
    result = OPERATORS[operator](numbers)
    if not math.isfinite(result):
        raise ToolError("the result is no finite number.")
    return _short(result)


def share_of_cells(
    table: Sequence[Sequence[str]], target: Sequence[Sequence[str]], *, is_overlap: bool = False
) -> float:
    """The share of cells that are equal: of those of either table, or of those that both have."""
    measure: Callable[..., int] = min if is_overlap else max
    height = measure(len(table), len(target))
    width = measure(len(table[0]) if table else 0, len(target[0]) if target else 0)
    missing = object()

    def at(rows: Sequence[Sequence[str]], row: int, column: int) -> object:
        return rows[row][column] if row < len(rows) and column < len(rows[row]) else missing

    equal = sum(at(table, r, c) == at(target, r, c) for r in range(height) for c in range(width))
    return equal / (height * width) if height * width else 0.0
