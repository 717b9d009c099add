"""The curves of a run as plain data: which metrics share a panel, and where each stage lies on the common x axis.

Colours, fonts and sizes are the page's business (`page.js`); here a line only says which of the palette's it wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from whet.report.read import Phase, Record, Run, number
from whet.report.table import title_of

Unit = Literal["percent", "number"]
Colour = Literal["blue", "orange", "violet", "grey"]
Band = dict[str, Any]
Point = tuple[int, float]
MAX_POINTS = 600
"""Of one line in one stage: more points than pixels teach nothing and make the page heavy."""


@dataclass(frozen=True, slots=True)
class Line:
    key: str
    name: str
    colour: Colour

    @property
    def validation_key(self) -> str:
        return f"validation/{self.key.removeprefix('critique/')}"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    note: str
    """What one sees in it, in a few words."""
    unit: Unit
    from_zero: bool
    lines: tuple[Line, ...]


PANELS = (
    Panel(
        "Discriminability",
        "verdicts that agree with the verifier",
        "percent",
        False,
        (
            Line("critique/acc_dis_correct", "on right answers", "blue"),
            Line("critique/acc_dis_incorrect", "on wrong answers", "orange"),
        ),
    ),
    Panel(
        "Accuracy of the actor",
        "of all questions",
        "percent",
        False,
        (Line("critique/acc", "before: Acc", "grey"), Line("critique/acc_refine", "after: Acc@Refine", "blue")),
    ),
    Panel(
        "What critique changes",
        "of all questions",
        "percent",
        True,
        (Line("critique/i2c", "mended, i→c", "blue"), Line("critique/c2i", "spoiled, c→i", "orange")),
    ),
    Panel(
        "Reward",
        "mean of the critiques",
        "number",
        False,
        (
            Line("reward/mean", "total", "blue"),
            Line("reward/direct", "direct", "orange"),
            Line("reward/indirect", "indirect", "violet"),
        ),
    ),
    Panel(
        "KL divergence",
        "per token",
        "number",
        True,
        (Line("kl/ref", "to the reference", "blue"), Line("kl/sampler", "sampler to trainer", "orange")),
    ),
    Panel("Entropy", "of the critic, per token, in nats", "number", True, (Line("entropy", "entropy", "blue"),)),
    Panel("Length", "of a critique, in tokens", "number", True, (Line("length/mean", "mean length", "blue"),)),
    Panel(
        "Lost critiques",
        "shares of critiques and of groups",
        "percent",
        True,
        (
            Line("length/truncated", "truncated", "blue"),
            Line("critique/unparsed", "unparsed", "orange"),
            Line("group/no_signal", "groups without signal", "grey"),
        ),
    ),
    Panel(
        "Clipped tokens",
        "share past each bound",
        "percent",
        True,
        (Line("clip/low", "lower bound", "blue"), Line("clip/high", "upper bound", "orange")),
    ),
    Panel("Gradient norm", "before clipping", "number", True, (Line("optim/grad_norm", "norm", "blue"),)),
    Panel(
        "Seconds a step",
        "where the time goes",
        "number",
        True,
        (Line("time/rollout", "rollout", "blue"), Line("time/update", "update", "orange")),
    ),
)
SFT_COLOURS: tuple[Colour, ...] = ("grey", "blue", "orange", "violet")


def curves(run: Run) -> dict[str, Any]:
    """What the page draws: the stages on the x axis, its ticks, and the panels that have something in them."""
    stages = rl_phases(run)
    bands = _bands(stages, run.summary)
    panels = [_panel(panel, stages, bands) for panel in PANELS]
    warm_start = [phase for phase in run.phases if phase not in stages and phase.has("loss/nll")]
    if warm_start:
        panels.append(_warm_start(warm_start))
    return {"bands": bands, "ticks": _ticks(bands), "panels": [panel for panel in panels if panel["series"]]}


def rl_phases(run: Run) -> list[Phase]:
    """The phases that were trained by reward; the others are warm starts."""
    names = ("reward/mean", "validation/acc_dis", "critique/acc_dis")
    return [phase for phase in run.phases if phase.has(*names)]


def _bands(stages: Sequence[Phase], summary: Record | None) -> list[Band]:
    """Where each stage lies: its step s is at x = start + s. `kept` is the step whose weights went on, if known."""
    bands: list[Band] = []
    start = 0
    for stage in stages:
        end = start + max(stage.steps)
        kept = _kept_step(summary, stage.name)
        bands.append({"name": title_of(stage.name), "start": start, "end": end, "kept": kept})
        start = end
    return bands


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
    series: list[dict[str, Any]] = []
    for line in panel.lines:
        style = {"name": line.name, "colour": line.colour}
        train = [_placed(stage.series(line.key), band["start"]) for stage, band in zip(stages, bands, strict=True)]
        checked = [
            _placed(stage.series(line.validation_key), band["start"]) for stage, band in zip(stages, bands, strict=True)
        ]
        means = [_running_mean(points) for points in train] if not any(checked) else []
        for kind, parts in (("train", train), ("mean", means), ("validation", checked)):
            if any(parts):
                series.append({**style, "kind": kind, **_joined(parts)})
    return _drawn(panel.title, panel.note, panel.unit, panel.from_zero, True, series)


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
    series: list[dict[str, Any]] = []
    for index, phase in enumerate(phases):
        style = {"name": title_of(phase.name), "colour": SFT_COLOURS[index % len(SFT_COLOURS)]}
        for kind, key in (("train", "loss/nll"), ("validation", "validation/loss/nll")):
            if points := _placed(phase.series(key), 0):
                series.append({**style, "kind": kind, **_joined([points])})
    return _drawn("Warm start", "loss per token, in nats", "number", True, False, series)


def _drawn(
    title: str, note: str, unit: Unit, from_zero: bool, staged: bool, series: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"title": title, "note": note, "unit": unit, "from_zero": from_zero, "staged": staged, "series": series}


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Every k-th point, and always the last one, so that a stage's line has at most MAX_POINTS and one."""
    every = -(-len(points) // MAX_POINTS) or 1
    return [point for i, point in enumerate(points) if i % every == 0 or i == len(points) - 1]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
