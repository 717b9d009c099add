"""The run's headline numbers, and the values to compare them with."""

from __future__ import annotations

import re

from whet.report.curves import stages_of
from whet.report.records import RunRecord
from whet.report.rows import Rows
from whet.report.spec import fields
from whet.report.table import percent


class _Missing(Exception):
    """A text lacks a number."""


def stats(run: RunRecord, rows: Rows) -> list[dict[str, str]]:
    """The report spec's stats whose numbers are there."""
    shown = []
    for stat in run.report_spec.stats:
        if stat.so_far and run.summary is not None:
            continue
        label, value = _filled(run, rows, stat.label), _filled(run, rows, stat.value)
        if label is not None and value is not None:
            parts = (_filled(run, rows, part) for part in stat.beside)
            shown.append({"label": label, "value": value, "beside": "; ".join(filter(None, parts))})
    return shown


def _filled(run: RunRecord, rows: Rows, text: str) -> str | None:
    """A stat's text with its numbers filled in. None: one is missing."""
    try:
        return "".join(before + (_field(run, rows, name, form) if name else "") for before, name, form in fields(text))
    except _Missing:
        return None


def _field(run: RunRecord, rows: Rows, name: str, form: str) -> str:
    place, _, key = name.partition(".")
    if not key:
        return run.report_spec.title(_row(run, rows, place))
    left, *rest = re.split(r" ([-/]) ", name)
    value = _number(run, rows, left)
    if rest:
        other = _number(run, rows, rest[1])
        if rest[0] == "/" and other <= 0:
            raise _Missing
        value = value / other if rest[0] == "/" else value - other
    return format(value, form) if form not in ("", "+") else percent(value, signed=form == "+")


def _number(run: RunRecord, rows: Rows, term: str) -> float:
    place, _, key = term.partition(".")
    if place.startswith("steps["):
        values = [value for stage in stages_of(run) for value in stage.series(key)[1]]
        if not values:
            raise _Missing
        return values[0 if place == "steps[0]" else -1]
    value = rows[_row(run, rows, place)][key]
    if value is None:
        raise _Missing
    return value


def _row(run: RunRecord, rows: Rows, place: str) -> str:
    """The name of the row at a place: the place itself, or of the trained rows the first (of several) or the last."""
    if not place.startswith("rows["):
        if place not in rows:
            raise _Missing
        return place
    report_spec = run.report_spec
    trained = [
        name for name, row in rows.items() if name not in report_spec.untrained and row[report_spec.best] is not None
    ]
    if not trained or (place == "rows[0]" and len(trained) == 1):
        raise _Missing
    return trained[0 if place == "rows[0]" else -1]
