"""A comparison of runs as a page: tables, and the arms' curves over one another. It opens from disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from whet.evaluation.critique import mean_interval
from whet.report.comparison import SEED, Arm, Comparison
from whet.report.comparison_tables import grids
from whet.report.curves import MAX_POINTS, stages_of
from whet.report.html import WEB, page_template, plotly_hash, plotly_packed, script_json, source_hash, write_page
from whet.report.records import ReportError, RunRecord
from whet.report.spec import Chart, Line

COLOURS = ("blue", "orange", "violet", "right", "wrong", "grey")
DASHES = ("", "dash", "dot")
"""Of arms beyond the colours."""
MAX_ARMS = len(COLOURS) * len(DASHES)
SCRIPTS = ("base.js", "charts.js", "draw.js")
Points = dict[int, float]


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Writes the page, whole or not at all.

    Returns: its path.
    Raises: ReportError where the path is no place for a page. RunError where it cannot be written.
    """
    if path.suffix != ".html" or path.is_dir() or not path.parent.is_dir():
        raise ReportError(f"no page can be written to {path}: give a file in an existing folder, ending in .html")
    script = "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS)
    charts = comparison_charts(comparison)
    page = page_template("comparison.html.j2").render(
        comparison=comparison,
        grids=grids(comparison),
        num_charts=len(charts),
        max_arms=MAX_ARMS,
        data=script_json({"curves": {"bands": [], "panels": charts, "off_policy": [], "strategies": []}}),
        style=Markup((WEB / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hashes=Markup(f"{source_hash(script)} {plotly_hash()}"),
        plotly=plotly_packed(),
    )
    write_page(path, page, of_run=False)
    return path


def comparison_charts(comparison: Comparison) -> list[dict[str, Any]]:
    """A chart for each line of the runs' charts: by arm, the mean over seeds and its 95 % interval as a band.

    The x axis counts the steps of all stages. Validation is drawn where there is any, else training.
    """
    runs = [run for arm in comparison.arms for run in arm.runs]
    lines: dict[str, tuple[Chart, Line]] = {}
    for run in runs:
        for chart in run.report_spec.charts:
            for line in chart.lines:
                lines.setdefault(line.key or line.validation_key, (chart, line))
    charts = [_chart(comparison.arms[:MAX_ARMS], chart, line) for chart, line in lines.values()]
    return [chart for chart in charts if chart["series"]]


def _chart(arms: Sequence[Arm], chart: Chart, line: Line) -> dict[str, Any]:
    is_alone = len(chart.lines) == 1
    series = []
    for index, arm in enumerate(arms):
        style = {
            "name": arm.name,
            "colour": COLOURS[index % len(COLOURS)],
            "dash": DASHES[index // len(COLOURS)],
        }
        if checked := _by_seed(arm, line.validation_key):
            series += _mean_and_band(style, checked, "validation")
        else:
            series += _mean_and_band(style, _by_seed(arm, line.key), "train")
    kind = "validation" if any(one["kind"] == "validation" for one in series) else "training"
    return {
        "title": chart.title if is_alone else f"{chart.title}: {line.name}",
        "note": kind,
        "unit": chart.unit,
        "from_zero": chart.from_zero,
        "log": chart.log,
        "staged": False,
        "series": series,
    }


def _by_seed(arm: Arm, key: str) -> list[Points]:
    """A metric in each seed's run that has it: the last one, as in the tables, where a seed has several."""
    return list({run.setting(SEED): points for run in arm.runs if (points := _points(run, key))}.values())


def _points(run: RunRecord, key: str) -> Points:
    """By step, counted on from stage to stage, a metric of training."""
    points: Points = {}
    start = 0
    for stage in stages_of(run):
        points |= {start + step: value for step, value in zip(*stage.series(key), strict=True)}
        start += max(stage.steps)
    return points


def _mean_and_band(style: dict[str, str], by_run: Sequence[Points], kind: str) -> list[dict[str, Any]]:
    """The mean over the runs that have a step. The band is drawn where two or more have it."""
    steps = sorted({step for points in by_run for step in points})
    every = -(-len(steps) // MAX_POINTS) or 1
    steps = [step for index, step in enumerate(steps) if index % every == 0 or index == len(steps) - 1]
    values = [[points[step] for points in by_run if step in points] for step in steps]
    if not steps:
        return []
    series: list[dict[str, Any]] = []
    wide = [(step, *mean_interval(some)) for step, some in zip(steps, values, strict=True) if len(some) > 1]
    band = [(step, mean, half) for step, mean, half in wide if half is not None]
    if band:
        x = [step for step, _, _ in band]
        # Where no value is negative, such as a share or a time, no mean can be.
        least = 0.0 if min(map(min, values)) >= 0 else float("-inf")
        low, high = [max(mean - half, least) for _, mean, half in band], [mean + half for _, mean, half in band]
        series.append({**style, "kind": "band", "x": x, "y": high, "low": low})
    series.append({**style, "kind": kind, "x": steps, "y": [fmean(some) for some in values]})
    return series
