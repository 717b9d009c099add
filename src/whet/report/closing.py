"""Notes on the final table: the number of tasks, and of replies that were cut. The console prints them too."""

from __future__ import annotations

from whet.evaluation.intervals import interval_of_share
from whet.report.notes import Level, Note
from whet.report.records import Record, number
from whet.report.rows import row_title, summary_rows
from whet.report.spec import ReportSpec
from whet.report.table import percent

FEW = 30
"""Tasks of a test: with fewer, a share of one half is uncertain by more than 17 points."""


def closing_notes(summary: Record | None, report_spec: ReportSpec) -> list[Note]:
    """Notes on a finished run. None if the run made data."""
    return [] if report_spec.makes else [*_size(summary, report_spec), *_cut(summary, report_spec)]


def _size(summary: Record | None, report_spec: ReportSpec) -> list[Note]:
    counts = [int(n) for row in summary_rows(summary, report_spec).values() if (n := row["n"] or 0) >= 1]
    if not counts:
        return []
    n = min(counts)
    low, high = (percent(end) for end in interval_of_share(0.5, n))
    many = f"1 {report_spec.problem}" if n == 1 else f"{n:,} {report_spec.problem}s"
    text = f"The table rests on {many}: a share near one half may be anything from {low} to {high} % (95 %)."
    if n >= FEW:
        return [Note("good", "Size of the test", text)]
    advice = f"Measure on more test {report_spec.problem}s before comparing rows: a larger data.num_test or test file."
    return [Note("watch", "Size of the test", f"{text} {advice}")]


def _cut(summary: Record | None, report_spec: ReportSpec) -> list[Note]:
    """A note on the last row's share of cut replies, by the report spec's bound for training. Earlier rows are no
    trouble if training has removed the cuts."""
    share = next((candidate for candidate in report_spec.shares if candidate.key.endswith("length/truncated")), None)
    rows = (summary or {}).get("rows")
    if share is None or not isinstance(rows, dict):
        return []
    shares = {name: number(rows[name].get("truncated")) for name in summary_rows(summary, report_spec)}
    cut = {name: value for name, value in shares.items() if value is not None}
    if not cut:
        return []
    name, value = list(cut.items())[-1]
    level: Level = "bad" if value >= share.bad else "good"
    text = f"{row_title(report_spec, name)}: {percent(value)} % {share.what}, in the test."
    return [Note(level, f"{share.title} in the test", text if level == "good" else f"{text} {share.advice}")]
