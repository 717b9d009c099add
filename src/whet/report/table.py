"""The summary as a table: the format of its values, the text under it, and the tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whet.evaluation.intervals import interval_of_share
from whet.report.records import Record
from whet.report.rows import Rows, best_rows, columns_of, row_title, summary_rows
from whet.report.spec import Column, ReportSpec

FINE = 2
"""Points: the ends of a narrower interval have a decimal."""


def summary_tables(summary: Record, report_spec: ReportSpec, *, several: bool = False, width: int = 80) -> list[Table]:
    """The content of `summary.json`, with the best of the headline column in bold. The last table has a caption.

    Args:
        several: answers went through several rounds, samples, or fewer than one critique each.
        width: in characters. Groups of columns that do not fit side by side become separate tables.
    """
    rows = summary_rows(summary, report_spec)
    columns = columns_of(report_spec, rows)
    title = next((column.title for column in columns if column.key == report_spec.best), report_spec.best)
    extra = f"{report_spec.several} " if several and report_spec.several else ""
    intervals = {} if extra else intervals_of(report_spec, rows)
    tables = [
        _table(report_spec, rows, together, intervals)
        for together in _fitting(report_spec, rows, columns, intervals, width)
    ]
    words = [
        count_in_words(report_spec, rows),
        intervals_in_words(report_spec, intervals),
        denominators_in_words(columns),
    ]
    tables[
        -1
    ].caption = f"In percent. {' '.join(filter(None, words))} {extra}{_best_in_words(report_spec, rows, title)}"
    return tables


def _best_in_words(report_spec: ReportSpec, rows: Rows, title: str) -> str:
    """The best rows by name, as a log has no bold print."""
    best = best_rows(report_spec, rows)
    names = [row_title(report_spec, name) for name in rows if name in best]
    return f"Best {title}: {', '.join(names)}." if names else ""


def _fitting(
    report_spec: ReportSpec, rows: Rows, columns: Sequence[Column], intervals: Mapping[str, str], width: int
) -> list[list[Column]]:
    """The columns by table: as many groups in each as fit. A group that is too wide alone is split into columns."""
    console, tables = Console(width=10 * width), list[list[Column]]()  # wide enough to measure all columns

    def fits(together: Sequence[Column]) -> bool:
        return console.measure(_table(report_spec, rows, together, intervals)).maximum <= width

    for _, group in groupby(columns, key=lambda column: column.group):
        whole = list(group)
        for part in [whole] if fits(whole) else [[column] for column in whole]:
            both = [*tables[-1], *part] if tables else part
            if tables and fits(both):
                tables[-1] = both
            else:
                tables.append(part)
    return tables


def _table(report_spec: ReportSpec, rows: Rows, columns: Sequence[Column], intervals: Mapping[str, str]) -> Table:
    best = best_rows(report_spec, rows)
    table = Table(box=box.SIMPLE_HEAD, padding=0, caption_justify="left")
    table.add_column(
        report_spec.who, max_width=22, overflow="fold", vertical="bottom"
    )  # names may differ in their ends
    for column in columns:  # long titles take a line a word, so that all fits into 80 columns uncut
        is_folded = " " in column.title and not (column.key == report_spec.best and intervals)
        width = max(map(len, column.title.split())) if is_folded else None
        title = column.title.replace("@", "@\n") if len(column.title) > len("pass@4") else column.title
        title = title.replace(" of ", "\nof ")  # the number stays with its word
        table.add_column(title, justify="right", min_width=4, max_width=width, vertical="bottom")
    for name, row in rows.items():
        cells = []
        for column in columns:
            is_headline = column.key == report_spec.best
            cell = Text(shown(column, row[column.key]), style="bold" if name in best and is_headline else "")
            if is_headline and name in intervals:
                cell.append(f" {intervals[name]}", style="not bold")
            cells.append(cell)
        table.add_row(Text(row_title(report_spec, name)), *cells)
    return table


def shown(column: Column, value: float | None) -> str:
    """A value in its column's unit; a dash where there is none."""
    if column.unit != "percent":
        decimals = {"tokens": 1, "points": 2, "count": 0}[column.unit]
        return "–" if value is None else f"{value:,.{decimals}f}"
    return percent(value, signed=column.signed)


def percent(value: float | None, *, signed: bool = False) -> str:
    """A fraction in percent with one decimal, without the sign `%`; a dash where there is none."""
    if value is None:
        return "–"
    rounded = round(100 * value, 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:+.1f}" if signed and rounded else f"{rounded:.1f}"


def denominators_in_words(columns: Sequence[Column]) -> str:
    """The denominators with their columns, and the warnings on them."""
    shared: dict[str, list[str]] = {}
    warnings: dict[str, list[str]] = {}
    for column in columns:
        title = f"'{column.title}'" if " " in column.title else column.title
        denominator, _, warning = column.denominator.partition("; ")
        if denominator.startswith("a "):
            warnings.setdefault(f"stands {denominator}", []).append(title)
            continue
        shared.setdefault(denominator, []).append(title)
        if warning:
            warnings.setdefault(warning, []).append(title)
    divided = "; ".join(f"{', '.join(titles)} by {denominator}" for denominator, titles in shared.items())
    return " ".join([f"Divided: {divided}.", *(f"In {', '.join(t)} {warning}." for warning, t in warnings.items())])


def count_in_words(report_spec: ReportSpec, rows: Rows) -> str:
    """The number of tasks behind the rows."""
    counts = sorted({int(n) for row in rows.values() if (n := row["n"]) is not None})
    if not counts:
        return f"The number of {report_spec.problem}s, n, was not recorded."
    if len(counts) > 1:
        return f"n = {counts[0]:,} to {counts[-1]:,} {report_spec.problem}s, which differs from row to row."
    return f"n = {counts[0]:,} {report_spec.problem}s in every row."


def intervals_of(report_spec: ReportSpec, rows: Rows) -> dict[str, str]:
    """By row the 95 % interval of the headline column, in percent and in brackets.

    Empty where that column is no share of the tasks, or where other columns give the interval.
    """
    columns = {column.key: column for column in report_spec.columns}
    column = columns.get(report_spec.best)
    if column is None or column.denominator != f"all {report_spec.problem}s" or f"{report_spec.best}_low" in columns:
        return {}
    intervals = {}
    for name, row in rows.items():
        share, n = row[report_spec.best], row["n"]
        if share is None or n is None or n < 1 or not 0 <= share <= 1:
            continue
        low, high = (100 * end for end in interval_of_share(share, int(n)))
        decimals = 0 if high - low >= FINE else 1
        intervals[name] = f"({low:.{decimals}f}–{high:.{decimals}f})"
    return intervals


def intervals_in_words(report_spec: ReportSpec, intervals: Mapping[str, str]) -> str:
    """Explains the brackets. Empty where there are none."""
    title = next((column.title for column in report_spec.columns if column.key == report_spec.best), report_spec.best)
    return f"In brackets: the 95 % interval of {title}." if intervals else ""
