"""Counts how episodes ended: finished, failed and retried, or lost."""

from __future__ import annotations

from collections.abc import Sequence

from whet.report.notes import Note
from whet.report.records import PhaseRecord, RunRecord
from whet.report.table import percent

ENDS = {"episodes/started": "started", "episodes/played": "finished", "episodes/refilled": "failed, retried",
        "episodes/lost": "failed, lost"}  # fmt: skip
FAULTS = {"faults/env_error": "environment", "faults/timeout": "timeout", "faults/endpoint_error": "endpoint",
          "faults/grader_error": "grader"}  # fmt: skip
LOST = 0.01
"""Share of the episodes: a warning where more are lost."""


def accounts(run: RunRecord) -> list[dict[str, str]]:
    """A row for each phase with episodes, and a total where there are several: how episodes ended, and failures by
    kind. Empty where nothing was counted."""
    sums = {
        run.report_spec.title(phase.name): _sums(phase)
        for phase in run.phases
        if phase.has("episodes/started", "validation/episodes/started")
    }
    if len(sums) > 1:
        sums["All"] = {key: sum(row[key] for row in sums.values()) for key in (*ENDS, *FAULTS)}
    names = {**ENDS, **FAULTS}
    return [
        {"phase": title, **{names[key]: f"{count:,.0f}" for key, count in row.items()}} for title, row in sums.items()
    ]


def episodes(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """A note on failures, and on whether the counts add up."""
    rows = [_sums(phase) for phase in run.phases if phase.has("episodes/started", "validation/episodes/started")]
    begun, rolled_out, again, lost = (sum(row[key] for row in rows) for key in ENDS)
    if not begun:
        return []
    if begun != rolled_out + again + lost:
        text = f"{begun:,.0f} episodes were started, and {rolled_out + again + lost:,.0f} are accounted for."
        return [Note("bad", "Episodes", text)]
    if not again + lost:
        return [Note("good", "Episodes", f"All {begun:,.0f} that were started were finished.")]
    failed = percent((again + lost) / begun)
    text = (
        f"Of {begun:,.0f} that were started {again + lost:,.0f} failed ({failed} %): {again:,.0f} were retried "
        f"under a fresh seed, {lost:,.0f} are lost. None of them is a reward or part of a baseline."
    )
    return [Note("bad" if lost > LOST * begun else "watch", "Episodes", text)]


def _sums(phase: PhaseRecord) -> dict[str, float]:
    """Sums over training and validation of the phase."""
    return {key: sum(sum(phase.series(name)[1]) for name in (key, f"validation/{key}")) for key in (*ENDS, *FAULTS)}
