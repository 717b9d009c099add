"""The curves of a run as plain data: the place of each stage on the common x axis, and the series of each chart.

The run's report spec says which lines share a chart. `charts.js` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from whet.report.off_policy import agreement, has_off_policy, reference_lines
from whet.report.records import PhaseRecord, RunRecord
from whet.report.spec import Chart, Colour, Line, Unit

Band = dict[str, Any]
Point = tuple[int, float]
Series = dict[str, Any]
MAX_POINTS = 600
"""Of one line in one stage: more points than pixels show nothing and make the page heavy."""
SFT_COLOURS: tuple[Colour, ...] = ("grey", "blue", "orange", "violet")
WARM_START = ("loss/nll", "validation/loss/nll")
"""Metrics that are drawn of a warm start."""


def curves(run: RunRecord) -> dict[str, Any]:
    """The data of the page's charts: the stages on the x axis, its ticks, and the charts that are not empty. Those of
    the off-policy section are separate."""
    stages = stages_of(run)
    bands = _bands(run, stages)
    charts = [_chart(chart, stages, bands) for chart in run.report_spec.charts]
    if warm_start := warm_starts_of(run):
        charts.append(_warm_start(run, warm_start))
    off_policy = (
        [_off_policy(run, chart, stages, bands) for chart in run.report_spec.off_policy] if has_off_policy(run) else []
    )
    return {
        "bands": bands,
        "ticks": _ticks(bands),
        "panels": [chart for chart in charts if chart["series"]],
        "off_policy": [chart for chart in off_policy if chart["series"]],
    }


def stages_of(run: RunRecord) -> list[PhaseRecord]:
    """The phases of training proper."""
    return [phase for phase in run.phases if phase.has(*run.report_spec.training)]


def warm_starts_of(run: RunRecord) -> list[PhaseRecord]:
    """The phases before training that fit texts."""
    return [phase for phase in run.phases if phase.has(WARM_START[0]) and not phase.has(*run.report_spec.training)]


def _bands(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Band]:
    """The place of each stage: its step s is at x = start + s. `kept` is the step whose weights were used next, if
    known."""
    bands: list[Band] = []
    start = 0
    alone = not run.report_spec.is_staged and len(stages) == 1
    for stage in stages:
        end = start + max(stage.steps)
        best_step = _best_step(run, stage.name)
        name = "" if alone else run.report_spec.title(stage.name)
        bands.append({"name": name, "start": start, "end": end, "kept": best_step})
        start = end
    return bands


def _best_step(run: RunRecord, phase: str) -> int | None:
    """The last step at which validation was better than ever and the weights were kept."""
    steps = [event.step for event in run.events if event.event == "best" and event.phase == phase]
    return steps[-1] if steps else None


def _ticks(bands: Sequence[Band]) -> dict[str, list[Any]]:
    """Ticks that count the steps of each stage, because checkpoints and traces are named after those."""
    total = bands[-1]["end"] if bands else 0
    gap = next((g for e in range(7) for g in (10**e, 2 * 10**e, 5 * 10**e) if total / g <= 7), 1)
    at: list[int] = []
    text: list[str] = []
    for band in bands:
        steps = range(gap, band["end"] - band["start"] + 1, gap)
        at += [band["start"] + step for step in steps]
        text += [str(step) for step in steps]
    return {"at": at, "text": text}


def _chart(chart: Chart, stages: Sequence[PhaseRecord], bands: Sequence[Band]) -> dict[str, Any]:
    series: list[Series] = []
    for line in chart.lines:
        series += _line(line, stages, bands)
    if chart.unless_zero and not any(y for one in series for y in one["y"]):
        series = []
    return _drawn(chart.title, chart.note, chart.unit, chart.from_zero, True, series)


def _line(line: Line, stages: Sequence[PhaseRecord], bands: Sequence[Band]) -> list[Series]:
    """The series of one line: its band, its training values, and either the validation or their running mean."""
    style = {"name": line.name, "colour": line.colour}
    placed = list(zip(stages, (band["start"] for band in bands), strict=True))
    series: list[Series] = []
    if line.band:  # a stage at a time, because a filled band has no gaps
        for stage, start in placed:
            low, high = (joined_points([_placed(stage.series(key), start)]) for key in line.band)
            if low["x"] and low["x"] == high["x"]:
                series.append({**style, "kind": "band", "x": low["x"], "y": high["y"], "low": low["y"]})
    train = [_placed(stage.series(line.key), start) for stage, start in placed]
    checked = [_placed(stage.series(line.validation_key), start) for stage, start in placed]
    if line.points:
        kinds = [("points", train)]
    else:
        means = [running_mean(points) for points in train] if not any(checked) and not line.band else []
        kinds = [("train", train), ("mean", means), ("validation", checked)]
    largest = max((abs(y) for points in train for _, y in points), default=0.0) or 1.0
    for kind, parts in kinds:
        if any(parts):
            joined = joined_points(parts)
            if line.scaled:
                joined["raw"] = joined["y"]
                joined["y"] = [None if y is None else _short(y / largest) for y in joined["y"]]
            series.append({**style, "kind": kind, **joined})
    return series


def _off_policy(run: RunRecord, chart: Chart, stages: Sequence[PhaseRecord], bands: Sequence[Band]) -> dict[str, Any]:
    """A chart of the off-policy section, with its sentence and the reference lines from the settings."""
    drawn = _chart(chart, stages, bands)
    end = bands[-1]["end"] if bands else 0
    says = f"{chart.says} {agreement(run, chart)}".strip() if chart.against == "rule" else chart.says
    if drawn["series"]:
        drawn["series"] += [
            {"name": name, "colour": "grey", "kind": "reference", "x": [0, end], "y": [value, value]}
            for name, value in reference_lines(run, chart)
        ]
    return {**drawn, "says": says, "log": chart.log}


def _placed(series: tuple[list[int], list[float]], start: int) -> list[Point]:
    return [(start + step, value) for step, value in zip(*series, strict=True)]


def running_mean(points: Sequence[Point]) -> list[Point]:
    """The centred mean over about a twelfth of the stage (less at its ends). Empty for too short a stage."""
    reach = len(points) // 24
    if not reach:
        return []
    windows = (points[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    return [(points[i][0], fmean(y for _, y in window)) for i, window in enumerate(windows)]


def joined_points(parts: Sequence[Sequence[Point]]) -> dict[str, list[Any]]:
    """The stages' points one after the other, with a gap between stages. The next one starts from chosen weights,
    which need not be the last."""
    points: list[tuple[int, float | None]] = []
    for part in parts:
        if part and points:
            points.append((points[-1][0], None))
        points += _thinned(part)
    return {"x": [x for x, _ in points], "y": [None if y is None else _short(y) for _, y in points]}


def _warm_start(run: RunRecord, phases: Sequence[PhaseRecord]) -> dict[str, Any]:
    series: list[Series] = []
    for index, phase in enumerate(phases):
        style = {"name": run.report_spec.title(phase.name), "colour": SFT_COLOURS[index % len(SFT_COLOURS)]}
        for kind, key in zip(("train", "validation"), WARM_START, strict=True):
            if points := _placed(phase.series(key), 0):
                series.append({**style, "kind": kind, **joined_points([points])})
    return _drawn("Warm start", "loss per token, in nats", "number", True, False, series)


def _drawn(title: str, note: str, unit: Unit, from_zero: bool, staged: bool, series: list[Series]) -> dict[str, Any]:
    return {"title": title, "note": note, "unit": unit, "from_zero": from_zero, "staged": staged, "series": series}


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Every k-th point, and always the last one, so that a stage's line has at most MAX_POINTS + 1."""
    every = -(-len(points) // MAX_POINTS) or 1
    return [point for i, point in enumerate(points) if i % every == 0 or i == len(points) - 1]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
