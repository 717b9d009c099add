"""Health notes: what a careful reader of the metrics and events would point out, in plain words.

A check gives a note wherever its metrics were measured, whatever the method. It does so also when all is well, to show
what was checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from whet.evaluation.intervals import Z
from whet.report.checks import drift, grader, learning
from whet.report.closing import closing_notes
from whet.report.curves import stages_of
from whet.report.notes import Note, episodes, events, failures, flaws, groups, shares, worst_first
from whet.report.records import PhaseRecord, RunRecord
from whet.report.rows import summary_rows
from whet.report.table import percent

Check = Callable[[RunRecord, Sequence[PhaseRecord]], list[Note]]
SHIFT = 0.05
"""A change of Acc@Dis on one class that is worth a note."""


def one_sided(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """The failure that two-stage training prevents: one class of answers judged better at the other's expense
    (arXiv:2510.24320, fig. 3)."""
    notes = []
    for stage in stages:
        right, wrong = (stage.series(f"validation/acc_dis_{kind}")[1] for kind in ("correct", "incorrect"))
        if len(right) < 2 or len(wrong) < 2:
            continue
        on_right, on_wrong = right[-1] - right[0], wrong[-1] - wrong[0]
        lost = _is_loss(stage, "correct", right) or _is_loss(stage, "incorrect", wrong)
        moved = (
            f"{run.report_spec.title(stage.name)}: from the first to the last validation, Acc@Dis moved by "
            f"{percent(on_right, signed=True)} points on right answers and by {percent(on_wrong, signed=True)} on wrong"
        )
        if on_right >= SHIFT and on_wrong <= -SHIFT:
            notes.append(Note("watch", "Over-conservative critic", f"{moved}: it learns to call answers right."))
        elif on_wrong >= SHIFT and on_right <= -SHIFT:
            notes.append(Note("watch", "Over-aggressive critic", f"{moved}: it learns to call answers wrong."))
        elif min(on_right, on_wrong) <= -SHIFT:
            notes.append(Note("watch", "Falling discriminability", f"{moved}: it is lost, not traded."))
        elif lost:
            notes.append(Note("watch", "Balance of the verdicts", f"{moved}: one class gained at the other's expense."))
        else:
            text = f"{moved}: neither class lost more than chance explains."
            notes.append(Note("good", "Balance of the verdicts", text))
    return notes


def _is_loss(stage: PhaseRecord, kind: str, shares: Sequence[float]) -> bool:
    """Whether a class of answers is judged worse at the last validation than at the first. The loss must exceed the
    chance variation (95 %) of the difference of two such shares. False where the numbers of answers are missing."""
    counts = stage.series(f"validation/n_{kind}")[1]
    if not counts or min(counts[0], counts[-1]) < 1:
        return False
    variance = sum(share * (1 - share) / count for share, count in ((shares[0], counts[0]), (shares[-1], counts[-1])))
    return shares[0] - shares[-1] > Z * math.sqrt(max(0.0, variance))  # a damaged log may make it negative


def harm(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Critics after whose critiques the actor is right less often than alone."""
    rows = summary_rows(run.summary, run.report_spec)
    worse = {run.report_spec.title(name): row["delta"] for name, row in rows.items() if (row.get("delta") or 0.0) < 0}
    if not worse:
        return []
    listed = ", ".join(f"{title} ({percent(delta, signed=True)} points)" for title, delta in worse.items())
    text = f"The actor is right less often after the critique than alone: {listed}."
    return [Note("watch", "Worse than no critic", text)]


def identity(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Delta = Acc@Refine - Acc = (i→c) - (c→i), in every row that has them."""
    broken, checked = [], 0
    for name, row in summary_rows(run.summary, run.report_spec).items():
        acc, refined, delta, spoiled, mended = (row.get(key) for key in ("acc", "acc_refine", "delta", "c2i", "i2c"))
        if acc is None or refined is None or delta is None or spoiled is None or mended is None:
            continue
        checked += 1
        if max(abs(delta - (refined - acc)), abs(delta - (mended - spoiled))) > 1e-3:
            broken.append(run.report_spec.title(name))
    if broken:
        text = f"Delta is not Acc@Refine - Acc, or not i→c - c→i, in: {', '.join(broken)}."
        return [Note("bad", "Table does not add up", text)]
    text = f"Delta = Acc@Refine - Acc = i→c - c→i holds in all rows that have them ({checked})."
    return [Note("good", "Table adds up", text)] if checked else []


def closing(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Notes on the final table."""
    return closing_notes(run.summary, run.report_spec)


CHECKS: tuple[Check, ...] = (
    *(failures, grader, episodes, learning, groups, shares, drift, closing, one_sided, harm, identity),
)
POLICY_CHECKS: tuple[Check, ...] = (learning, groups, drift)
"""Checks that run again for each policy of several, with its metrics."""


def health_notes(run: RunRecord) -> list[Note]:
    """All notes, the worst first; equals in the order of the checks."""
    stages = stages_of(run)
    notes = [*flaws(run), *events(run), *(note for check in CHECKS for note in check(run, stages))]
    for policy in run.report_spec.policies:
        policy_stages = [stage.of(policy) for stage in stages]
        policy_notes = [note for check in POLICY_CHECKS for note in check(run, policy_stages)]
        notes += [replace(note, title=f"{note.title}, {policy}") for note in policy_notes]
    return worst_first(notes)
