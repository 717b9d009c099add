"""Goals of sheet: which changes are asked for, and which calls make them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from whet.envs.protocol import EnvironmentInfo
from whet.envs.tools.environment import ToolEnvironment, environment_info
from whet.envs.tools.goals import Family, Fields, Goal, Kind, Solver, Step, Unfit
from whet.envs.tools.grid import Grid, name_of, share_of_cells
from whet.envs.tools.sheet import Sheet
from whet.envs.tools.sheet_contents import make_sheet

Table = list[list[str]]
Read = Generator[Step, Any, Table]
ORDERS = {"ascending": "asc", "descending": "des"}


def _open(fields: Fields) -> Generator[Step, Any, None]:
    yield f"I open {fields['sheet']} first.", "open_sheet", {"name": fields["sheet"]}


def _read(fields: Fields) -> Read:
    yield from _open(fields)
    return (yield "I look at the whole table.", "get_all_values", {})


def _row(table: Table, key: str) -> int:
    """The place of a row by its first cell, from 0."""
    return next(number for number, row in enumerate(table) if row[0] == key)


def _set(table: Table, row: int, column: str, value: Any) -> Solver:
    at = name_of((row, table[0].index(column)))
    thought = f"I set {column} of {table[row][0]} to {value}."
    yield thought, "update_cell", {"position": at, "value": value}


def _sort_by(table: Table, fields: Fields) -> Solver:
    number = table[0].index(fields["column"]) + 1
    thought = f"I sort by {fields['column']}, which is column {number}."
    yield thought, "sort_sheet_by_col", {"col_num": number, "order": ORDERS[fields["order"]]}


def _sort(fields: Fields) -> Solver:
    table = yield from _read(fields)
    yield from _sort_by(table, fields)


def _delete(fields: Fields) -> Solver:
    table = yield from _read(fields)
    column = table[0].index(fields["column"])
    places = [number for number, row in enumerate(table, start=1) if number > 1 and row[column] == fields["value"]]
    if not 1 <= len(places) < len(table) - 1:
        raise Unfit
    thought = f"I delete the rows {places}."
    yield thought, "delete_batch_data", {"dimension": "row", "index_list": places}


def _delete_column(fields: Fields) -> Solver:
    table = yield from _read(fields)
    place = table[0].index(fields["column"]) + 1
    yield f"I delete column {place}.", "delete_batch_data", {"dimension": "col", "index_list": [place]}


def _two_cells(fields: Fields) -> Solver:
    table = yield from _read(fields)
    yield from _set(table, _row(table, fields["key"]), fields["column"], int(fields["value"]))
    yield from _set(table, _row(table, fields["other"]), fields["column"], int(fields["number"]))
    yield from _sort_by(table, fields)


def _totals(fields: Fields) -> Solver:
    table = yield from _read(fields)
    first, last, total = (table[0].index(name) for name in (fields["first"], fields["last"], "Total"))
    for row in range(1, len(table)):
        cells = {"start_position": name_of((row, first)), "end_position": name_of((row, last))}
        thought = f"I fill in the total of {table[row][0]}."
        yield thought, "update_cell_by_formula", {**cells, "result_position": name_of((row, total)), "operator": "SUM"}


def _append(fields: Fields) -> Solver:
    table = yield from _read(fields)
    values = fields["values"].split("; ")
    thought = f"I put the new row in at place {len(table) + 1}."
    yield thought, "insert_rows", {"values_list": [values], "row_idx": len(table) + 1}


def _best(fields: Fields) -> Solver:
    table = yield from _read(fields)
    column = table[0].index(fields["column"])
    operator = {"highest": "MAX", "lowest": "MIN"}[fields["which"]]
    cells = {"start_position": name_of((1, column)), "end_position": name_of((len(table) - 1, column))}
    thought = f"I let a formula find the {fields['which']} value."
    yield thought, "update_cell_by_formula", {**cells, "result_position": fields["cell"], "operator": operator}


def _note(fields: Fields) -> Solver:
    table = yield from _read(fields)
    row = _row(table, fields["key"])
    note = yield f"I read the note of {fields['key']}.", "get_note", {"position": name_of((row, 0))}
    yield from _set(table, row, fields["column"], int(str(note).rpartition(" ")[2]))


def _raise_all(fields: Fields) -> Solver:
    table = yield from _read(fields)
    column, other = table[0].index(fields["column"]), table[0].index(fields["other"])
    rows = [number for number, row in enumerate(table) if number and row[other] == fields["value"]]
    if not 1 <= len(rows) <= 4:
        raise Unfit
    for row in rows:
        yield from _set(table, row, fields["column"], int(table[row][column]) + int(fields["amount"]))


def _merge(fields: Fields) -> Solver:
    yield from _open(fields)
    ends = {"start_position": fields["start"], "end_position": fields["end"]}
    yield f"I merge {fields['start']} to {fields['end']}.", "merge_cells", ends


NUMERIC = ("Price", "Quantity", "Sold", "Hours", "Maths", "Physics", "Biology")
WHOLE = tuple(name for name in NUMERIC if name != "Price")
LABELS = ("Category", "Status")


def _sheet(service: Sheet, random: Random, needed: Sequence[str]) -> tuple[str, Grid]:
    """A sheet that has one of these columns."""
    names = [name for name, grid in service.sheets.items() if set(needed) & set(grid.rows[0])]
    name = random.choice(names)
    return name, service.sheets[name]


def _column(grid: Grid, random: Random, among: Sequence[str]) -> str:
    return random.choice([name for name in grid.rows[0] if name in among])


def _keys(grid: Grid, random: Random, count: int) -> list[str]:
    return random.sample([row[0] for row in grid.rows[1:]], count)


def _to_sort(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, NUMERIC)
    return {"sheet": name, "column": _column(grid, random, NUMERIC), "order": random.choice(sorted(ORDERS))}


def _label(service: Sheet, random: Random) -> dict[str, str]:
    name, grid = _sheet(service, random, LABELS)
    column = _column(grid, random, LABELS)
    place = grid.rows[0].index(column)
    return {"sheet": name, "column": column, "value": random.choice(sorted({row[place] for row in grid.rows[1:]}))}


def _any_column(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, NUMERIC)
    return {"sheet": name, "column": _column(grid, random, grid.rows[0][1:])}


def _two_rows(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, WHOLE)
    key, other = _keys(grid, random, 2)
    value, number = random.sample(range(200, 400), 2)  # above all other values, so that the order is clear
    order = random.choice(sorted(ORDERS))
    column = _column(grid, random, WHOLE)
    return {"sheet": name, "column": column, "key": key, "value": str(value), "other": other, "number": str(number),
            "order": order}  # fmt: skip


def _with_total(service: Sheet, random: Random) -> Fields:
    name, _ = _sheet(service, random, ("Total",))
    first, last = random.choice((("Maths", "Biology"), ("Maths", "Physics"), ("Physics", "Biology")))
    return {"sheet": name, "first": first, "last": last}


def _new_row(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, NUMERIC)
    numeric = [column in NUMERIC for column in grid.rows[0]]
    values = [str(random.randrange(1, 99)) if is_number else "new" for is_number in numeric]
    return {"sheet": name, "values": "; ".join(values)}


def _extreme(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, NUMERIC)
    column = _column(grid, random, NUMERIC)
    cell = name_of((len(grid.rows), grid.rows[0].index(column)))
    return {"sheet": name, "which": random.choice(("highest", "lowest")), "column": column, "cell": cell}


def _with_note(service: Sheet, random: Random) -> Fields:
    """Writes the note into the sheet."""
    name, grid = _sheet(service, random, WHOLE)
    column, key = _column(grid, random, WHOLE), _keys(grid, random, 1)[0]
    row = next(number for number, cells in enumerate(grid.rows) if cells[0] == key)
    note = f"The right value of {column} is {random.randrange(100, 300)}"
    service.sheets[name] = replace(grid, notes=(((row, 0), note),))
    return {"sheet": name, "key": key, "column": column}


def _to_raise(service: Sheet, random: Random) -> Fields:
    label = _label(service, random)
    grid = service.sheets[label["sheet"]]
    return {"sheet": label["sheet"], "column": _column(grid, random, WHOLE), "other": label["column"],
            "value": label["value"], "amount": str(random.randrange(2, 20))}  # fmt: skip


def _to_merge(service: Sheet, random: Random) -> Fields:
    name, grid = _sheet(service, random, NUMERIC)
    row, column = random.randrange(1, len(grid.rows) - 1), random.randrange(1, 3)
    return {"sheet": name, "start": name_of((row, column)), "end": name_of((row + 1, column))}


KINDS = (
    Kind("sort", 'In "{sheet}", sort the rows by "{column}" in {order} order.', _to_sort, _sort),
    Kind("delete rows", 'In "{sheet}", delete all rows whose "{column}" is "{value}".', _label, _delete),
    Kind("delete column", 'In "{sheet}", delete the column "{column}".', _any_column, _delete_column),
    Kind(
        "update and sort",
        'In "{sheet}", set "{column}" of "{key}" to {value} and of "{other}" to {number}. Then sort the rows by the '
        "same column in {order} order.",
        _two_rows,
        _two_cells,
    ),
    Kind(
        "totals",
        'In "{sheet}", fill in "Total": the sum of the columns from "{first}" to "{last}" in each row.',
        _with_total,
        _totals,
    ),
    Kind("add a row", 'In "{sheet}", add a row at the end with the values: {values}.', _new_row, _append),
    Kind("extreme", 'In "{sheet}", put the {which} value of "{column}" into the cell {cell}.', _extreme, _best),
    Kind(
        "follow a note",
        'In "{sheet}", the cell "{key}" has a note. Set "{column}" of that row to the value that it says.',
        _with_note,
        _note,
    ),
    Kind(
        "raise",
        'In "{sheet}", raise "{column}" by {amount} in all rows whose "{other}" is "{value}".',
        _to_raise,
        _raise_all,
    ),
    Kind("merge", 'In "{sheet}", merge the cells {start} to {end}.', _to_merge, _merge),
)


def _has_changes(goal: Goal) -> bool:
    """Whether the table is another one at the end than at the beginning."""
    begins, ends = goal.begins, goal.ends
    assert isinstance(begins, Sheet)
    assert isinstance(ends, Sheet)
    assert ends.opened is not None
    return begins.sheets[ends.opened].values() != ends.grid.values()


FAMILY = Family("sheet", KINDS, make_sheet, _has_changes)


class SheetEnvironment(ToolEnvironment):
    """Changes to a table. The reward is the best share so far of the open sheet's cells that equal the target's."""

    family = FAMILY

    def __init__(self, *, overlap: bool = False) -> None:
        """
        Args:
            overlap: whether only cells that both tables have count, as in the published code, where a goal to add a row
                is reached before the row is there. False: a cell that one of them lacks counts as different.
        """
        super().__init__()
        self._is_overlap = overlap

    def begin(self, goal: Goal) -> None:
        super().begin(goal)
        ends: Any = goal.ends
        self._target: Table = ends.grid.values()

    def reward_after(self, result: Any) -> float:
        service: Any = self.service
        if service.opened is None:
            return self._reward
        return max(self._reward, share_of_cells(service.grid.values(), self._target, is_overlap=self._is_overlap))


SHEET: EnvironmentInfo = environment_info(FAMILY, SheetEnvironment, max_turns=15, item_id="tool_sheet")
