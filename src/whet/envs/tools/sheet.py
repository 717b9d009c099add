"""Sheet: changes to tables, by twenty tools. The spreadsheets lie in memory; upstream's are Google's."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from whet.envs.tools.calls import Argument, Tool, ToolError
from whet.envs.tools.grid import (
    MAX_COLUMNS,
    MAX_ROWS,
    MAX_TEXT,
    Grid,
    block_of,
    box_of,
    name_of,
    position_of,
    result_of,
    shown,
)
from whet.envs.tools.service import FINISH, Service

MAX_NOTES = MAX_MERGED = 50
NOT_OPEN = "Please open a sheet before operating it"
MAX_PATTERN = 100
MAX_SEARCHED = 60
"""Characters of a cell that a search reads."""
_UNSAFE = re.compile(r"\(|\\\d|\\g")
_REPEATS = re.compile(r"[*+]|\{\d*,\d*\}")

_CELL = Argument("position", "string", "the cell, such as B3")
_RANGE = (
    Argument("start_position", "string", "the upper left cell"),
    Argument("end_position", "string", "the lower right cell"),
)
_CELLS = (
    Argument("start_position", "string", "the first cell of a range; B1 where it is left out", is_required=False),
    Argument("end_position", "string", "its last cell; D2 where it is left out", is_required=False),
    Argument("position_list", "array", "single cells, in place of a range", is_required=False),
)
_OPERATOR = Argument("operator", "string", "SUM, AVERAGE, COUNT, MAX, MIN, MINUS or PRODUCT")
TOOLS = (
    Tool("open_sheet", "Opens a sheet, on which all other tools then work.", (Argument("name", "string", "its name"),)),
    Tool("del_sheet", "Deletes a sheet.", (Argument("name", "string", "its name"),)),
    Tool("freeze_data", "Keeps the first rows or columns in their place, also when the sheet is sorted.", (
        Argument("dimension", "string", "rows or columns"), Argument("num", "integer", "how many"))),
    Tool("get_A1_annotation", "The name of a cell, such as B3.", (
        Argument("row", "integer", "its row, from 1"), Argument("col", "integer", "its column, from 1"))),
    Tool("insert_cols", "Puts columns in.", (
        Argument("values_list", "array", "a list of columns, each a list of values"),
        Argument("col_idx", "integer", "the place of the first one, from 1"))),
    Tool("insert_rows", "Puts rows in.", (
        Argument("values_list", "array", "a list of rows, each a list of values"),
        Argument("row_idx", "integer", "the place of the first one, from 1"))),
    Tool("delete_batch_data", "Deletes rows or columns.", (
        Argument("dimension", "string", "row or col"), Argument("index_list", "array", "their places, from 1"))),
    Tool("update_cell", "Sets a cell.", (_CELL, Argument("value", "any", "a text or a number"))),
    Tool("update_cell_by_formula", "Sets a cell to what a formula on other cells gives.", (
        *_CELLS, Argument("result_position", "string", "the cell that is set"), _OPERATOR)),
    Tool("update_range", "Sets a range of cells.", (
        *_RANGE, Argument("values_list", "array", "a list of rows, each a list of values"))),
    Tool("sort_sheet_by_col", "Sorts the rows by a column. Frozen rows stay.", (
        Argument("col_num", "integer", "the column, from 1"), Argument("order", "string", "asc or des"))),
    Tool("merge_cells", "Merges a range into one cell.", _RANGE),
    Tool("update_note", "Writes a cell's note.", (_CELL, Argument("content", "string", "the note"))),
    Tool("get_all_values", "All values of the sheet, row by row."),
    Tool("get_range_values", "The values of a range, row by row.", _RANGE),
    Tool("get_cell_value", "The value of a cell.", (_CELL,)),
    Tool("get_value_by_formula", "What a formula on cells gives.", (*_CELLS, _OPERATOR)),
    Tool("filter_cells", "The cells in which a text or a regular expression is found.", (
        Argument("query", "string", "the text or the expression"),
        Argument("in_row", "integer", "a row to look in, from 1", is_required=False),
        Argument("in_column", "integer", "a column to look in, from 1", is_required=False))),
    Tool("get_note", "A cell's note; empty where it has none.", (_CELL,)),
    Tool(FINISH, "Ends the task."),
)  # fmt: skip


class Sheet(Service):
    """The service: sheets by name, one of which may be open."""

    tools: ClassVar = TOOLS

    def __init__(self, sheets: Mapping[str, Grid], opened: str | None = None) -> None:
        self.sheets, self.opened = dict(sheets), opened

    def state(self) -> Hashable:
        return self.opened, tuple(sorted(self.sheets.items()))

    def copy(self) -> Self:
        return type(self)(self.sheets, self.opened)

    def suggested(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        sorts = [("sort_sheet_by_col", {"col_num": n, "order": order}) for n in (1, 3, 4) for order in ("asc", "des")]
        opens = [("open_sheet", {"name": name}) for name in sorted(self.sheets)]
        return [*opens, ("get_all_values", {}), *sorts, (FINISH, {})]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if self.opened is None and name not in ("open_sheet", FINISH):
            raise ToolError(NOT_OPEN)
        return super().call(name, arguments)

    def finish(self, answer: Any = None) -> Any:
        return NOT_OPEN if self.opened is None else self.grid.values()

    @property
    def grid(self) -> Grid:
        """The open sheet."""
        if self.opened is None:
            raise ToolError(NOT_OPEN)
        return self.sheets[self.opened]

    def _set(self, grid: Grid) -> list[list[str]]:
        assert self.opened is not None
        self.sheets = {**self.sheets, self.opened: grid}
        return grid.values()

    def open_sheet(self, name: str) -> str:
        if name not in self.sheets:
            raise ToolError(f"There is no sheet {name[:60]!r}.")
        self.opened = name
        return f"{name} is open."

    def del_sheet(self, name: str) -> str:
        if name not in self.sheets or len(self.sheets) == 1:
            raise ToolError(f"There is no sheet {name[:60]!r}, or it is the only one.")
        self.sheets = {other: grid for other, grid in self.sheets.items() if other != name}
        self.opened = None if self.opened == name else self.opened
        return f"{name} is deleted."

    def freeze_data(self, dimension: str, num: int) -> str:
        if dimension not in ("rows", "columns") or not 0 <= num <= 20:
            raise ToolError("the dimension has to be rows or columns, and the number 0 to 20.")
        rows = dimension == "rows"
        self._set(replace(self.grid, frozen_rows=num) if rows else replace(self.grid, frozen_columns=num))
        return f"The first {num} {dimension} are frozen."

    def get_a1_annotation(self, row: int, col: int) -> str:
        if not (1 <= row <= MAX_ROWS and 1 <= col <= MAX_COLUMNS):
            raise ToolError(f"rows are 1 to {MAX_ROWS} and columns 1 to {MAX_COLUMNS}.")
        return name_of((row - 1, col - 1))

    def insert_cols(self, values_list: list[Any], col_idx: int) -> list[list[str]]:
        self._check_place(col_idx, len(self.grid.rows[0]) + 1, "col_idx")
        return self._set(self.grid.with_columns(col_idx - 1, block_of(values_list)))

    def insert_rows(self, values_list: list[Any], row_idx: int) -> list[list[str]]:
        self._check_place(row_idx, len(self.grid.rows) + 1, "row_idx")
        return self._set(self.grid.with_rows(row_idx - 1, block_of(values_list)))

    def delete_batch_data(self, dimension: str, index_list: list[Any]) -> list[list[str]]:
        if dimension not in ("row", "col"):
            raise ToolError("the dimension has to be row or col.")
        size = len(self.grid.rows) if dimension == "row" else len(self.grid.rows[0])
        indices = {_index(value, size) for value in index_list}
        if not indices or len(indices) >= size - (dimension == "row"):
            raise ToolError("the whole sheet cannot be deleted at once.")
        return self._set(self.grid.without_rows(indices) if dimension == "row" else self.grid.without_columns(indices))

    def update_cell(self, position: str, value: Any) -> list[list[str]]:
        return self._set(self.grid.with_values(position_of(position), [[shown(value)]]))

    def update_cell_by_formula(self, result_position: str, operator: str, **cells: Any) -> list[list[str]]:
        result = result_of(operator, self._texts(**cells))
        return self._set(self.grid.with_values(position_of(result_position), [[result]]))

    def update_range(self, start_position: str, end_position: str, values_list: list[Any]) -> list[list[str]]:
        first, last = box_of(start_position, end_position)
        values = block_of(values_list)
        if len(values) > last[0] - first[0] + 1 or max(map(len, values)) > last[1] - first[1] + 1:
            raise ToolError(f"values_list is larger than the range {start_position}:{end_position}.")
        if first == (0, 0) and last == (len(self.grid.rows) - 1, len(self.grid.rows[0]) - 1):
            raise ToolError("the whole sheet cannot be set at once.")
        return self._set(self.grid.with_values(first, values))

    def sort_sheet_by_col(self, col_num: int, order: str) -> list[list[str]]:
        self._check_place(col_num, len(self.grid.rows[0]), "col_num")
        if order not in ("asc", "des"):
            raise ToolError("the order has to be asc or des.")
        return self._set(self.grid.sorted(col_num - 1, order == "des"))

    def merge_cells(self, start_position: str, end_position: str) -> list[list[str]]:
        box = box_of(start_position, end_position)
        grid = self.grid.with_values(box[1], [[self.grid.value(box[1])]])
        if box in grid.merged or len(grid.merged) >= MAX_MERGED:
            raise ToolError(f"the range is merged already, or {MAX_MERGED} others are.")
        return self._set(replace(grid, merged=(*grid.merged, box)))

    def update_note(self, position: str, content: str) -> str:
        at = position_of(position)
        notes = {**dict(self.grid.notes), at: content}
        if len(notes) > MAX_NOTES or len(content) > MAX_TEXT:
            raise ToolError(f"a sheet has at most {MAX_NOTES} notes of {MAX_TEXT} characters.")
        self._set(replace(self.grid, notes=tuple(sorted(notes.items()))))
        return f"The note of {position} is: {content}"

    def get_all_values(self) -> list[list[str]]:
        return self.grid.values()

    def get_range_values(self, start_position: str, end_position: str) -> list[list[str]]:
        (top, left), (bottom, right) = box_of(start_position, end_position)
        return [row[left : right + 1] for row in self.grid.values()[top : bottom + 1]]

    def get_cell_value(self, position: str) -> str:
        return self.grid.value(position_of(position))

    def get_value_by_formula(self, operator: str, **cells: Any) -> str:
        return result_of(operator, self._texts(**cells))

    def filter_cells(self, query: str, in_row: int | None = None, in_column: int | None = None) -> list[str]:
        pattern = pattern_of(query)
        return [
            name_of((row, column))
            for row, texts in enumerate(self.grid.rows)
            for column, text in enumerate(texts)
            if in_row in (None, row + 1) and in_column in (None, column + 1) and pattern.search(text[:MAX_SEARCHED])
        ]

    def get_note(self, position: str) -> str:
        return self.grid.note(position_of(position))

    def _texts(
        self, start_position: str = "B1", end_position: str = "D2", position_list: list[Any] | None = None
    ) -> list[str]:
        if position_list is not None:
            return [self.grid.value(position_of(str(position))) for position in position_list[:MAX_ROWS]]
        (top, left), (bottom, right) = box_of(start_position, end_position)
        return [text for row in self.grid.rows[top : bottom + 1] for text in row[left : right + 1]]

    def _check_place(self, number: int, most: int, name: str) -> None:
        if not 1 <= number <= most:
            raise ToolError(f"{name} has to be 1 to {most}.")


def _index(value: Any, size: int) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= size:
        raise ToolError(f"index_list has to hold whole numbers from 1 to {size}.")
    return int(text) - 1


def pattern_of(query: str) -> re.Pattern[str]:
    """A regular expression that is quick on any text: without groups, and with two repetitions at most.

    `re.compile('...')` may stand around it, as agents write it.

    Raises: ToolError for another one.
    """
    query = re.sub(r"^re\.compile\(r?(['\"])(.*)\1\)$", r"\2", query)
    if len(query) > MAX_PATTERN or _UNSAFE.search(query) or len(_REPEATS.findall(query)) > 2:
        raise ToolError(
            f"the query has to be at most {MAX_PATTERN} characters, without groups and with two repetitions."
        )
    try:
        return re.compile(query)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"the query is no regular expression: {str(error)[:80]}.") from error
