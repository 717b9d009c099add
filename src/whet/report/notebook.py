"""Shows a run in a notebook: its table, its curves, and plots of chosen metrics, as HTML and SVG without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from whet.near import near_names
from whet.report.curves import curves, joined_points, running_mean
from whet.report.html import write_page
from whet.report.records import PhaseRecord, ReportError, RunRecord
from whet.report.rows import best_rows, columns_of, row_title, summary_rows
from whet.report.spec import Colour
from whet.report.svg import chart_svg
from whet.report.table import count_in_words, denominators_in_words, intervals_in_words, intervals_of, shown

COLOURS: tuple[Colour, ...] = ("blue", "orange", "violet", "grey")
_CELL = "padding:2px 8px;text-align:right;white-space:nowrap"


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart. A notebook shows it; `save` writes it as an SVG file."""

    svg: str

    def save(self, path: str | Path) -> Path:
        """Writes the chart as a file.

        Returns: its path.
        Raises: RunError where it cannot be written.
        """
        write_page(Path(path), self.svg, of_run=False)
        return Path(path)

    def _repr_html_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return "<Plot: shown in a notebook; plot.save('plot.svg') writes it>"


def run_html(run: RunRecord, heading: str) -> str:
    """The table and the curves of a run.

    Args:
        heading: one line above them.
    """
    charts = curves(run)
    drawn = "".join(f"<div>{chart_svg(chart, charts['bands'])}</div>" for chart in charts["panels"])
    table = _table(run) if run.summary is not None else ""
    grid = f'<div style="display:flex;flex-wrap:wrap;gap:12px;margin-top:8px">{drawn}</div>' if drawn else ""
    return f"<div><p><b>{escape(heading)}</b></p>{table}{grid}</div>"


def plot(run: RunRecord, names: Sequence[str], phase: str | None = None) -> Plot:
    """A chart of metrics over the steps of the phases that have them, one after another.

    Args:
        names: of metrics, as in metrics.jsonl.
        phase: only this one. None: all.
    Raises: ReportError where no phase has a metric, with names that are near.
    """
    phases = [one for one in run.phases if phase in (None, one.name) and max(one.steps, default=0) > 0]
    measured = sorted({metric for one in phases for metric in one.metrics})
    for name in names:
        if name not in measured:
            near = near_names(name, measured)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(measured) or 'none yet'}"
            raise ReportError(f"{run.folder} has no metric {name!r}{f' in {phase}' if phase else ''}: {advice}")
    if not names:
        raise ReportError("plot needs the name of a metric, such as reward/mean")
    phases = [one for one in phases if one.has(*names)]
    bands, start = list[dict[str, Any]](), 0
    for one in phases:
        bands.append({"name": run.report_spec.title(one.name), "start": start, "end": start + max(one.steps)})
        start = bands[-1]["end"]
    series = [
        one
        for name, colour in zip(names, COLOURS * len(names), strict=False)
        for one in _series(name, colour, phases, [band["start"] for band in bands])
    ]
    title = names[0] if len(names) == 1 else ""
    chart = {"title": title, "note": "", "unit": "number", "from_zero": False, "staged": True, "series": series}
    return Plot(chart_svg(chart, bands if len(bands) > 1 else [{**bands[0], "name": ""}]))


def _series(name: str, colour: Colour, phases: Sequence[PhaseRecord], starts: Sequence[int]) -> list[dict[str, Any]]:
    """The values of a metric, and their running mean where there are enough of them."""
    parts = [
        [(start + step, value) for step, value in zip(*phase.series(name), strict=True)]
        for phase, start in zip(phases, starts, strict=True)
    ]
    kinds = [("train", parts), ("mean", [running_mean(part) for part in parts])]
    return [
        {"name": name, "colour": colour, "kind": kind, **joined_points(points)} for kind, points in kinds if any(points)
    ]


def _table(run: RunRecord) -> str:
    report_spec = run.report_spec
    rows = summary_rows(run.summary, report_spec)
    columns = columns_of(report_spec, rows)
    intervals, best = intervals_of(report_spec, rows), best_rows(report_spec, rows)
    heads = "".join(
        f'<th style="{_CELL}" title="{escape(column.meaning)}">{escape(column.title)}</th>' for column in columns
    )
    lines = []
    for name, row in rows.items():
        cells = []
        for column in columns:
            text = shown(column, row[column.key])
            if column.key == report_spec.best:
                text = f"{text} {intervals.get(name, '')}".strip()
            weight = ";font-weight:bold" if column.key == report_spec.best and name in best else ""
            cells.append(f'<td style="{_CELL}{weight}">{escape(text)}</td>')
        lines.append(f'<tr><th style="padding:2px 8px;text-align:left">{escape(row_title(report_spec, name))}</th>')
        lines.append(f"{''.join(cells)}</tr>")
    sentences = [
        count_in_words(report_spec, rows),
        intervals_in_words(report_spec, intervals),
        denominators_in_words(columns),
    ]
    caption = escape(" ".join(filter(None, ["In percent.", *sentences])))
    return (
        f'<table style="border-collapse:collapse"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(lines)}'
        f'</tbody></table><p style="font-size:smaller;opacity:0.8;max-width:60em">{caption}</p>'
    )
