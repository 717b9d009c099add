"""The rows of the summary, in a report spec's order and with its titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from whet.report.records import Record, number
from whet.report.spec import Column, ReportSpec
from whet.report.texts import short_name

Rows = Mapping[str, Mapping[str, float | None]]


def summary_rows(summary: Record | None, report_spec: ReportSpec) -> dict[str, dict[str, float | None]]:
    """The rows in the order of display, each with every column, `n` and `k`. None: no value."""
    rows = (summary or {}).get("rows")
    if not isinstance(rows, Mapping):
        return {}
    names = [name for name in report_spec.order if name in rows] + [
        name for name in rows if name not in report_spec.order
    ]
    keys = [*(column.key for column in report_spec.columns), "n", "k"]
    return {
        str(name): {key: number(rows[name].get(key)) for key in keys} for name in names if isinstance(rows[name], dict)
    }


def columns_of(report_spec: ReportSpec, rows: Rows) -> tuple[Column, ...]:
    """The report spec's columns with the number of samples filled in. Without samples, columns about them are left
    out."""
    counts = {int(count) for row in rows.values() if (count := row.get("k"))}
    k = str(*counts) if len(counts) == 1 else "k"
    return tuple(
        replace(c, title=c.title.format(k=k), group=c.group.format(k=k), what=c.what.format(k=k))
        for c in report_spec.columns
        if counts or not c.is_sampled
    )


def best_rows(report_spec: ReportSpec, rows: Rows) -> set[str]:
    """The row, or the tied rows, with the highest value in the headline column."""
    values = {name: value for name, row in rows.items() if (value := row[report_spec.best]) is not None}
    return {name for name, value in values.items() if value == max(values.values())}


def row_title(report_spec: ReportSpec, name: str) -> str:
    """A row's title, shortened."""
    return short_name(report_spec.title(name))
