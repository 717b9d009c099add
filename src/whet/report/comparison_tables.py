"""The tables of a comparison of runs: as plain cells for any medium, and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whet.report.comparison import ABSENT, Comparison, Difference, Estimate
from whet.report.rows import row_title
from whet.report.spec import Column
from whet.report.table import shown


@dataclass(frozen=True)
class Grid:
    """A table's content, for any medium."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int = 1
    """Columns that name a row; the others hold its values."""
    note: str = ""


def grids(comparison: Comparison) -> list[Grid]:
    """What differs, the results, the paired differences, and settings of some arms alone. Empty ones are left out."""
    everywhere, of_some = _settings(comparison)
    tables = (everywhere, _results(comparison), _by_seed(comparison), _differences(comparison), of_some)
    return [grid for grid in tables if grid.rows]


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Prints the tables, and what a reader should know before believing them."""
    for grid in grids(comparison):
        for table in _fitting(grid, console.width):
            console.print(table)
        if grid.note:
            console.print(grid.note, highlight=False, markup=False)
    for note in comparison.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def _fitting(grid: Grid, width: int) -> list[Table]:
    """The grid as one table, or as several that each have as many of its columns as fit."""
    measuring, parts = Console(width=10 * width), [list[int]()]
    for index in range(grid.num_names, len(grid.heads)):
        if parts[-1] and measuring.measure(_table(grid, [*parts[-1], index])).maximum > width:
            parts.append([])
        parts[-1].append(index)
    return [_table(grid, part, titled=part is parts[0]) for part in parts]


def _table(grid: Grid, columns: Sequence[int], *, titled: bool = True) -> Table:
    title = grid.title if titled else None
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    shown_columns = [*range(grid.num_names), *columns]
    for index in shown_columns:
        justify: Literal["left", "right"] = "left" if index < grid.num_names else "right"
        table.add_column(grid.heads[index], justify=justify, overflow="fold", vertical="bottom")
    for row in grid.rows:
        table.add_row(*(Text(row[index]) for index in shown_columns))
    return table


def _settings(comparison: Comparison) -> tuple[Grid, Grid]:
    """What differs, and apart from it what not every arm has, such as the parts of another loss."""
    heads = ("setting", *(f"{arm.name} ({_seeds(arm.seeds)})" for arm in comparison.arms))
    rows = [(key, *values) for key, values in comparison.differing.items()]
    everywhere = tuple(row for row in rows if ABSENT not in row)
    of_some = tuple(row for row in rows if ABSENT in row)
    return Grid("What the settings differ in", heads, everywhere), Grid("Settings of some arms alone", heads, of_some)


def _results(comparison: Comparison) -> Grid:
    report_spec, columns = comparison.report_spec, comparison.columns
    rows = []
    for arm in comparison.arms:
        for row in comparison.rows_of(arm):
            cells = [_cell(column, comparison.estimate(arm, row, column.key)) for column in columns]
            if any(cell != "–" for cell in cells):
                rows.append((arm.name, row_title(report_spec, row), *cells))
    several = any(len(arm.seeds) > 1 for arm in comparison.arms)
    note = "In percent where it is a share. " if any(column.unit == "percent" for column in columns) else ""
    note += "Mean over seeds ± half the width of its 95 % t interval." if several else ""
    heads = ("arm", report_spec.who, *(column.title for column in columns))
    return Grid("Results", heads, tuple(rows) if columns else (), 2, note.strip())


def _by_seed(comparison: Comparison) -> Grid:
    """The headline's value of each seed, where one arm has several. Of more arms, the differences say it by seed."""
    [arm, *others], column = comparison.arms, comparison.headline
    seeds = list(dict.fromkeys(arm.seeds))
    if others or column is None or len(seeds) < 2:
        return Grid("", (), ())
    rows = []
    for row in comparison.rows_of(arm):
        values = arm.values(row, column.key)
        if values:
            cells = (shown(column, values[seed]) if seed in values else "–" for seed in seeds)
            rows.append((row_title(comparison.report_spec, row), *cells))
    heads = (comparison.report_spec.who, *(f"seed {seed}" for seed in seeds))
    return Grid(f"{column.title} by seed", heads, tuple(rows))


def _differences(comparison: Comparison) -> Grid:
    first = comparison.arms[0].name
    rows = tuple(
        (
            difference.arm,
            row_title(comparison.report_spec, difference.row),
            _signed(difference.column, difference.estimate),
            _verdict(difference.estimate),
            ", ".join(_one(difference, value) for value in difference.estimate.values),
        )
        for difference in comparison.differences
    )
    column = comparison.headline
    title = f"{column.title if column else ''} over {first}, paired by seed"
    heads = ("arm", comparison.report_spec.who, "points", "", "by seed")
    return Grid(title, heads, rows, 2)


def _verdict(estimate: Estimate) -> str:
    if estimate.half_width is None:
        return "one seed"
    if estimate.mean and estimate.half_width == 0:
        return "no spread"  # equal differences of a few seeds say nothing of chance
    return "may be chance" if abs(estimate.mean) <= estimate.half_width else "beyond chance"


def _seeds(seeds: tuple[object, ...]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"


def _cell(column: Column, estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    mean = shown(column, estimate.mean)
    return mean if estimate.half_width is None else f"{mean} ± {_half(column, estimate.half_width)}"


def _signed(column: Column, estimate: Estimate) -> str:
    sign = "+" if estimate.mean > 0 else ""
    text = f"{sign}{shown(column, estimate.mean).lstrip('+')}"
    return text if estimate.half_width is None else f"{text} ± {_half(column, estimate.half_width)}"


def _half(column: Column, half_width: float) -> str:
    return shown(column, half_width).lstrip("+")


def _one(difference: Difference, value: float) -> str:
    return ("+" if value > 0 else "") + shown(difference.column, value).lstrip("+")
