"""Health notes: what a careful reader of the metrics and events would point out, in plain words.

A check speaks wherever its metrics were measured, whatever the method, and also when all is well, so that one sees
what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from whet.report.accounts import episodes
from whet.report.checks import drift, grader, learning
from whet.report.curves import stages_of
from whet.report.notes import Note, events, failures, flaws, groups, shares, worst_first
from whet.report.records import PhaseRecord, RunRecord
from whet.report.rows import summary_rows
from whet.report.table import percent

Check = Callable[[RunRecord, Sequence[PhaseRecord]], list[Note]]
SHIFT = 0.05
"""A change of Acc@Dis on one class that is worth a word."""


def one_sided(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """The failure that two-stage training is there to prevent: one class of answers judged better at the other's
    expense (arXiv:2510.24320, fig. 3)."""
    notes = []
    for stage in stages:
        right, wrong = (stage.series(f"validation/acc_dis_{kind}")[1] for kind in ("correct", "incorrect"))
        if len(right) < 2 or len(wrong) < 2:
            continue
        on_right, on_wrong = right[-1] - right[0], wrong[-1] - wrong[0]
        moved = (
            f"{run.sheet.title(stage.name)}: from the first to the last validation, Acc@Dis moved by "
            f"{percent(on_right, signed=True)} points on right answers and by {percent(on_wrong, signed=True)} on wrong"
        )
        if on_right >= SHIFT and on_wrong <= -SHIFT:
            notes.append(Note("watch", "Over-conservative critic", f"{moved}: it learns to call answers right."))
        elif on_wrong >= SHIFT and on_right <= -SHIFT:
            notes.append(Note("watch", "Over-aggressive critic", f"{moved}: it learns to call answers wrong."))
        elif min(on_right, on_wrong) <= -SHIFT:
            notes.append(Note("watch", "Falling discriminability", f"{moved}: it is lost, not traded."))
        else:
            notes.append(Note("good", "Balance of the verdicts", f"{moved}: no class gains at the other's expense."))
    return notes


def identity(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Delta = Acc@Refine - Acc = (i→c) - (c→i), in every row that has them."""
    broken, checked = [], 0
    for name, row in summary_rows(run.summary, run.sheet).items():
        acc, refined, delta, spoiled, mended = (row.get(key) for key in ("acc", "acc_refine", "delta", "c2i", "i2c"))
        if acc is None or refined is None or delta is None or spoiled is None or mended is None:
            continue
        checked += 1
        if max(abs(delta - (refined - acc)), abs(delta - (mended - spoiled))) > 1e-3:
            broken.append(run.sheet.title(name))
    if broken:
        text = f"Delta is not Acc@Refine - Acc, or not i→c - c→i, in: {', '.join(broken)}."
        return [Note("bad", "Table does not add up", text)]
    text = f"Delta = Acc@Refine - Acc = i→c - c→i holds in all rows that have them ({checked})."
    return [Note("good", "Table adds up", text)] if checked else []


CHECKS: tuple[Check, ...] = (failures, grader, episodes, learning, groups, shares, drift, one_sided, identity)
POLICY_CHECKS: tuple[Check, ...] = (learning, groups, drift)
"""Those that are made again of each policy of several, with its own metrics."""


def health_notes(run: RunRecord) -> list[Note]:
    """All notes, the worst first; equals in the order in which they are made."""
    stages = stages_of(run)
    notes = [*flaws(run), *events(run), *(note for check in CHECKS for note in check(run, stages))]
    for policy in run.sheet.policies:
        own = [stage.of(policy) for stage in stages]
        found = [note for check in POLICY_CHECKS for note in check(run, own)]
        notes += [replace(note, title=f"{note.title}, {policy}") for note in found]
    return worst_first(notes)
