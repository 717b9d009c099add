"""Draws the curves of a run as SVG, for notebooks: no script, no other file, and text in the page's own colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import escape

from whet.report.spec import Unit

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 44, 24
"""Pixels around the plot."""
COLOURS = {"blue": "#2f6db5", "orange": "#cf6f21", "violet": "#7d5ba6", "grey": "#7b838d"}
"""Readable on light and on dark paper."""
FAINT = 0.35
"""Opacity of training values beside their mean or the validation."""


def chart_svg(chart: Mapping[str, Any], bands: Sequence[Mapping[str, Any]] = (), *, is_small: bool = False) -> str:
    """One chart as an SVG element.

    Args:
        chart: an element of `panels` in `curves`: title, note, unit, and series with kind, colour, x and y.
        bands: the stages on the x axis, as in `curves`. They count where the chart is `staged`.
        is_small: the lines alone, without axes and names.
    """
    series = chart["series"]
    stages = list(bands) if chart.get("staged") else []
    low, high, step = _range(series, from_zero=bool(chart.get("from_zero")))
    largest = max([band["end"] for band in stages] or [x for one in series for x in one["x"]] or [1])
    smallest = 0 if stages else min((x for one in series for x in one["x"]), default=0)
    place = _Place(smallest, max(largest, smallest + 1), low, high, is_small)
    marks = [] if is_small else [*_axes(place, chart["unit"], step, stages), *_stages(place, stages), *_names(chart)]
    marks += [mark for one in series for mark in _marks(place, one, series)]
    label = escape(chart["title"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {place.width} {place.height}" role="img" '
        f'aria-label="{label}" width="{place.width}" font-family="sans-serif" font-size="11" fill="currentColor">'
        f"{''.join(marks)}</svg>"
    )


class _Place:
    """From values to pixels."""

    def __init__(self, left: float, right: float, low: float, high: float, is_small: bool) -> None:
        self.left, self.right, self.low, self.high = left, right, low, high
        self.width, self.height = (160, 36) if is_small else (WIDTH, HEIGHT)
        edges = (2, 2, 3, 3) if is_small else (LEFT, RIGHT, TOP, BOTTOM)
        self.x0, self.x1 = edges[0], self.width - edges[1]
        self.y0, self.y1 = self.height - edges[3], edges[2]

    def x(self, value: float) -> float:
        return round(self.x0 + (value - self.left) / (self.right - self.left) * (self.x1 - self.x0), 1)

    def y(self, value: float) -> float:
        return round(self.y0 - (value - self.low) / (self.high - self.low) * (self.y0 - self.y1), 1)


def _range(series: Sequence[Mapping[str, Any]], *, from_zero: bool) -> tuple[float, float, float]:
    """The ends of the y axis and the distance of its ticks, a round number."""
    values = [y for one in series for key in ("y", "low") for y in one.get(key) or [] if y is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if from_zero:
        low = min(low, 0.0)
    if high - low < 1e-12:  # a flat line lies at the lower edge, of 0 to 1 where it is 0
        high = low + (abs(low) or 1.0)
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step


def _axes(place: _Place, unit: Unit, distance: float, stages: Sequence[Mapping[str, Any]]) -> list[str]:
    marks = []
    for index in range(round((place.high - place.low) / distance) + 1):
        value = place.low + index * distance
        y = place.y(value)
        marks.append(_line(place.x0, y, place.x1, y, opacity=0.15))
        marks.append(_text(place.x0 - 5, y + 4, _shown(value, unit), "end"))
    gap = _gap(place.right - place.left)
    starts = [(stage["start"], stage["end"] - stage["start"]) for stage in stages] or [(0, math.floor(place.right))]
    for start, length in starts:  # steps count from 1 in each stage
        first = gap if stages else -(-math.ceil(place.left) // gap) * gap
        for step in range(first, length + 1, gap):
            marks.append(_text(place.x(start + step), place.y0 + 15, f"{step:,}", "middle"))
    return marks


def _gap(length: float) -> int:
    """The distance of ticks on the x axis: a round number, with at most seven of them."""
    return next((g for e in range(9) for g in (10**e, 2 * 10**e, 5 * 10**e) if length / g <= 7), 1)


def _shown(value: float, unit: Unit) -> str:
    return f"{100 * value:.3g} %" if unit == "percent" else f"{value:.4g}"


def _stages(place: _Place, stages: Sequence[Mapping[str, Any]]) -> list[str]:
    marks = [_line(x, place.y0, x, place.y1, opacity=0.4) for stage in stages[1:] for x in [place.x(stage["start"])]]
    for stage in stages:
        room = place.x(stage["end"]) - place.x(stage["start"])
        if stage["name"] and room > 6.2 * len(stage["name"]):
            marks.append(_text(place.x(stage["start"]) + 4, place.y1 - 4, stage["name"], "start", opacity=0.7))
    return marks


def _names(chart: Mapping[str, Any]) -> list[str]:
    """The title, its note, and the name of each line in its colour."""
    note = f'<tspan font-weight="normal" opacity="0.7">  {escape(chart.get("note") or "")}</tspan>'
    title = f'<text x="{LEFT - 40}" y="13" font-size="12" font-weight="bold">{escape(chart["title"])}{note}</text>'
    lines = {one["name"]: one["colour"] for one in chart["series"] if one["name"] != chart["title"]}
    parts = [f'<tspan fill="{COLOURS[colour]}">{escape(name)}   </tspan>' for name, colour in lines.items()]
    legend = f'<text x="{LEFT - 40}" y="28" xml:space="preserve">{"".join(parts)}</text>' if parts else ""
    return [title, legend]


def _marks(place: _Place, one: Mapping[str, Any], series: Sequence[Mapping[str, Any]]) -> list[str]:
    """The marks of one series."""
    colour, kind = COLOURS[one["colour"]], one["kind"]
    points = list(zip(one["x"], one["y"], strict=True))
    if kind == "band":
        edge = [*points, *reversed(list(zip(one["x"], one["low"], strict=True)))]
        return [f'<polygon points="{_path(place, edge)}" fill="{colour}" opacity="0.2"/>']
    others = {other["kind"] for other in series if other["name"] == one["name"]}
    opacity = FAINT if kind == "train" and others & {"mean", "validation"} else 1
    pieces = _pieces(points)
    marks = []
    if kind != "points":
        dash = ' stroke-dasharray="4 3"' if kind == "reference" else ""
        marks += [
            f'<polyline points="{_path(place, piece)}" fill="none" stroke="{colour}" stroke-width="1.6" '
            f'opacity="{opacity}"{dash}/>'
            for piece in pieces
            if len(piece) > 1
        ]
    has_dots = kind in ("points", "validation") and place.width == WIDTH
    dots = [point for piece in pieces if has_dots or len(piece) == 1 for point in piece]
    return marks + [f'<circle cx="{place.x(x)}" cy="{place.y(y)}" r="2.4" fill="{colour}"/>' for x, y in dots]


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The points without gaps between them, piece by piece."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    return [piece for piece in pieces if piece]


def _path(place: _Place, points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{place.x(x)},{place.y(y)}" for x, y in points)


def _line(x1: float, y1: float, x2: float, y2: float, *, opacity: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" opacity="{opacity}"/>'


def _text(x: float, y: float, text: str, anchor: str, *, opacity: float = 0.8) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" opacity="{opacity}">{escape(text)}</text>'
