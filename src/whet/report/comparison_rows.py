"""Lists the metrics that no chart of the run's report spec shows, so that no measurement is lost."""

from __future__ import annotations

from collections.abc import Sequence

from whet.report.curves import WARM_START, stages_of, warm_starts_of
from whet.report.off_policy import has_off_policy
from whet.report.records import PhaseRecord, RunRecord

WIDTH, HEIGHT, MAX_POINTS = 100, 20, 100
"""Of a small curve, in SVG units."""


def other_metrics(run: RunRecord) -> list[dict[str, str]]:
    """A row for each such metric and phase: first, last, least and greatest value, and a small curve. The curve is an
    SVG's `points`, empty for a single value."""
    charts = (*run.report_spec.charts, *(run.report_spec.off_policy if has_off_policy(run) else ()))
    named = {key for chart in charts for line in chart.lines for key in line.keys}
    stages, warm = stages_of(run), warm_starts_of(run)
    in_table = (*(column.key for column in run.report_spec.columns), "n", "k") if run.summary else ()
    tested = {f"test/{key}" for key in in_table}
    rows = []
    for phase in run.phases:
        drawn = named if phase in stages else set(WARM_START) if phase in warm else tested
        rows += [_row(run, phase, key) for key in phase.metrics if key not in drawn]
    return rows


def _row(run: RunRecord, phase: PhaseRecord, key: str) -> dict[str, str]:
    values = phase.series(key)[1]
    shown = {"first": values[0], "last": values[-1], "least": min(values), "greatest": max(values)}
    return {
        "key": key,
        "phase": run.report_spec.title(phase.name),
        "count": f"{len(values):,}",
        **{name: f"{value:.4g}" for name, value in shown.items()},
        "points": _points(values),
    }


def _points(values: Sequence[float]) -> str:
    """SVG points from left to right over the whole width. A constant is in the middle."""
    if len(values) < 2:
        return ""
    every = -(-len(values) // MAX_POINTS)
    thinned = [*values[:-1:every], values[-1]]
    least, spread = min(values), max(values) - min(values)
    heights = [HEIGHT * (1 - (value - least) / spread) if spread else HEIGHT / 2 for value in thinned]
    return " ".join(f"{WIDTH * i / (len(thinned) - 1):.1f},{y:.1f}" for i, y in enumerate(heights))
