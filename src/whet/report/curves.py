"""The curves of a run as plain data: where each stage lies on the common x axis, and the series of each panel.

What shares a panel stands in `panels` and `off_policy`; how it looks is the page's business (`charts.js`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from whet.report.kinds import CRITIQUE, kind_of
from whet.report.off_policy import OFF_POLICY_PANELS, RULE, agreement, has_off_policy, reference_lines
from whet.report.panels import CRITIQUE_PANELS, SOLVE_PANELS, Colour, Line, Panel, Unit
from whet.report.read import Phase, Record, Run, number
from whet.report.table import title_of

Band = dict[str, Any]
Point = tuple[int, float]
Series = dict[str, Any]
MAX_POINTS = 600
"""Of one line in one stage: more points than pixels teach nothing and make the page heavy."""
SFT_COLOURS: tuple[Colour, ...] = ("grey", "blue", "orange", "violet")


def curves(run: Run) -> dict[str, Any]:
    """What the page draws: the stages on the x axis, its ticks, and the panels that have something in them, those of
    the off-policy section apart from the others."""
    stages = rl_phases(run)
    bands = _bands(run, stages)
    shared = CRITIQUE_PANELS if kind_of(run) is CRITIQUE else SOLVE_PANELS
    panels = [_panel(panel, stages, bands) for panel in shared]
    warm_start = [phase for phase in run.phases if phase not in stages and phase.has("loss/nll")]
    if warm_start:
        panels.append(_warm_start(warm_start))
    more = [_off_policy(run, panel, stages, bands) for panel in OFF_POLICY_PANELS] if has_off_policy(run) else []
    return {
        "bands": bands,
        "ticks": _ticks(bands),
        "panels": [panel for panel in panels if panel["series"]],
        "off_policy": [panel for panel in more if panel["series"]],
    }


def rl_phases(run: Run) -> list[Phase]:
    """The phases that were trained by reward; the others are warm starts."""
    names = ("reward/mean", "validation/acc_dis", "critique/acc_dis")
    return [phase for phase in run.phases if phase.has(*names)]


def _bands(run: Run, stages: Sequence[Phase]) -> list[Band]:
    """Where each stage lies: its step s is at x = start + s. `kept` is the step whose weights went on, if known."""
    bands: list[Band] = []
    start = 0
    alone = kind_of(run) is not CRITIQUE and len(stages) == 1
    for stage in stages:
        end = start + max(stage.steps)
        kept = _kept_step(run.summary, stage.name) if kind_of(run) is CRITIQUE else _best_step(run, stage.name)
        name = "" if alone else title_of(stage.name)
        bands.append({"name": name, "start": start, "end": end, "kept": kept})
        start = end
    return bands


def _best_step(run: Run, phase: str) -> int | None:
    """Where weights are kept whenever validation is better than ever: the last such step."""
    steps = [event.step for event in run.events if event.event == "best" and event.phase == phase]
    return steps[-1] if steps else None


def _kept_step(summary: Record | None, stage: str) -> int | None:
    """`stages` of the summary gives a number a stage, or an object with the number in it."""
    stages = (summary or {}).get("stages")
    entry = stages.get(stage) if isinstance(stages, dict) else None
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("step", "selected_step", "selected", "best_step") if key in entry), None)
    step = number(entry)
    return None if step is None else int(step)


def _ticks(bands: Sequence[Band]) -> dict[str, list[Any]]:
    """Ticks that count each stage's own steps, because checkpoints and traces are named after those."""
    total = bands[-1]["end"] if bands else 0
    gap = next((g for e in range(7) for g in (10**e, 2 * 10**e, 5 * 10**e) if total / g <= 7), 1)
    at: list[int] = []
    text: list[str] = []
    for band in bands:
        steps = range(gap, band["end"] - band["start"] + 1, gap)
        at += [band["start"] + step for step in steps]
        text += [str(step) for step in steps]
    return {"at": at, "text": text}


def _panel(panel: Panel, stages: Sequence[Phase], bands: Sequence[Band]) -> dict[str, Any]:
    series: list[Series] = []
    for line in panel.lines:
        series += _line(line, stages, bands)
    if panel.unless_zero and not any(y for one in series for y in one["y"]):
        series = []
    return _drawn(panel.title, panel.note, panel.unit, panel.from_zero, True, series)


def _line(line: Line, stages: Sequence[Phase], bands: Sequence[Band]) -> list[Series]:
    """The series of one line: its band, its training values, and their running mean or else the validation."""
    style = {"name": line.name, "colour": line.colour}
    placed = list(zip(stages, (band["start"] for band in bands), strict=True))
    series: list[Series] = []
    if line.band:  # a stage at a time: what is filled has no gaps
        for stage, start in placed:
            low, high = (_joined([_placed(stage.series(key), start)]) for key in line.band)
            if low["x"] and low["x"] == high["x"]:
                series.append({**style, "kind": "band", "x": low["x"], "y": high["y"], "low": low["y"]})
    train = [_placed(stage.series(line.key), start) for stage, start in placed]
    checked = [_placed(stage.series(line.validation_key), start) for stage, start in placed]
    if line.points:
        kinds = [("points", train)]
    else:
        means = [_running_mean(points) for points in train] if not any(checked) and not line.band else []
        kinds = [("train", train), ("mean", means), ("validation", checked)]
    largest = max((abs(y) for points in train for _, y in points), default=0.0) or 1.0
    for kind, parts in kinds:
        if any(parts):
            joined = _joined(parts)
            if line.scaled:
                joined["raw"] = joined["y"]
                joined["y"] = [None if y is None else _short(y / largest) for y in joined["y"]]
            series.append({**style, "kind": kind, **joined})
    return series


def _off_policy(run: Run, panel: Panel, stages: Sequence[Phase], bands: Sequence[Band]) -> dict[str, Any]:
    """A panel of the off-policy section: with its sentence, and with what the settings set against its lines."""
    drawn = _panel(panel, stages, bands)
    end = bands[-1]["end"] if bands else 0
    says = f"{panel.says} {agreement(run)}".strip() if panel.title == RULE else panel.says
    if drawn["series"]:
        drawn["series"] += [
            {"name": name, "colour": "grey", "kind": "reference", "x": [0, end], "y": [value, value]}
            for name, value in reference_lines(run, panel)
        ]
    return {**drawn, "says": says, "log": panel.log}


def _placed(series: tuple[list[int], list[float]], start: int) -> list[Point]:
    return [(start + step, value) for step, value in zip(*series, strict=True)]


def _running_mean(points: Sequence[Point]) -> list[Point]:
    """The centred mean over about a twelfth of the stage (less at its ends); nothing for a stage too short for it."""
    reach = len(points) // 24
    if not reach:
        return []
    windows = (points[max(0, i - reach) : i + reach + 1] for i in range(len(points)))
    return [(points[i][0], fmean(y for _, y in window)) for i, window in enumerate(windows)]


def _joined(parts: Sequence[Sequence[Point]]) -> dict[str, list[Any]]:
    """The stages' points one after the other, with a gap between stages: the next one starts from weights that were
    chosen, which need not be the last ones."""
    points: list[tuple[int, float | None]] = []
    for part in parts:
        if part and points:
            points.append((points[-1][0], None))
        points += _thinned(part)
    return {"x": [x for x, _ in points], "y": [None if y is None else _short(y) for _, y in points]}


def _warm_start(phases: Sequence[Phase]) -> dict[str, Any]:
    series: list[Series] = []
    for index, phase in enumerate(phases):
        style = {"name": title_of(phase.name), "colour": SFT_COLOURS[index % len(SFT_COLOURS)]}
        for kind, key in (("train", "loss/nll"), ("validation", "validation/loss/nll")):
            if points := _placed(phase.series(key), 0):
                series.append({**style, "kind": kind, **_joined([points])})
    return _drawn("Warm start", "loss per token, in nats", "number", True, False, series)


def _drawn(title: str, note: str, unit: Unit, from_zero: bool, staged: bool, series: list[Series]) -> dict[str, Any]:
    return {"title": title, "note": note, "unit": unit, "from_zero": from_zero, "staged": staged, "series": series}


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Every k-th point, and always the last one, so that a stage's line has at most MAX_POINTS and one."""
    every = -(-len(points) // MAX_POINTS) or 1
    return [point for i, point in enumerate(points) if i % every == 0 or i == len(points) - 1]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
