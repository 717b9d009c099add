"""What the final table rests on: how many tasks, and how many replies that were cut. The console says it too."""

from __future__ import annotations

from whet.evals.intervals import interval_of_share
from whet.report.notes import Level, Note
from whet.report.records import Record, number
from whet.report.rows import row_title, summary_rows
from whet.report.table import percent
from whet.runs.sheet import Sheet

FEW = 30
"""Tasks of a test: of fewer a share of one half is uncertain by more than 17 points."""


def closing_notes(summary: Record | None, sheet: Sheet) -> list[Note]:
    """Of a finished run; of one whose summary is data that it made, none."""
    return [] if sheet.makes else [*_size(summary, sheet), *_cut(summary, sheet)]


def _size(summary: Record | None, sheet: Sheet) -> list[Note]:
    counts = [int(n) for row in summary_rows(summary, sheet).values() if (n := row["n"])]
    if not counts:
        return []
    n = min(counts)
    low, high = (percent(end) for end in interval_of_share(0.5, n))
    many = f"1 {sheet.problem}" if n == 1 else f"{n:,} {sheet.problem}s"
    text = f"The table rests on {many}: a share near one half may be anything from {low} to {high} % (95 %)."
    if n >= FEW:
        return [Note("good", "Size of the test", text)]
    advice = f"Raise data.num_test, or give more test {sheet.problem}s, before comparing rows."
    return [Note("watch", "Size of the test", f"{text} {advice}")]


def _cut(summary: Record | None, sheet: Sheet) -> list[Note]:
    """By the sheet's own bound for training, where it has one. Of the last row: what was cut before training and has
    been learnt away is no trouble."""
    share = next((each for each in sheet.shares if each.key.endswith("length/truncated")), None)
    rows = (summary or {}).get("rows")
    if share is None or not isinstance(rows, dict):
        return []
    shares = {name: number(rows[name].get("truncated")) for name in summary_rows(summary, sheet)}
    cut = {name: value for name, value in shares.items() if value is not None}
    if not cut:
        return []
    name, value = list(cut.items())[-1]
    level: Level = "bad" if value >= share.bad else "good"
    text = f"{row_title(sheet, name)}: {percent(value)} % {share.what}, in the test."
    return [Note(level, f"{share.title} in the test", text if level == "good" else f"{text} {share.advice}")]
