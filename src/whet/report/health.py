"""Health notes: what a careful reader of the metrics and events would point out, in plain words.

Every check says something, also when all is well, so that one sees what was looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.report.curves import rl_phases
from whet.report.kinds import CRITIQUE, kind_of, summary_rows
from whet.report.notes import Note, Share, drift, events, failures, flaws, group_notes, share_notes, worst_first
from whet.report.read import Phase, Run
from whet.report.solve_health import solve_notes
from whet.report.table import percent, title_of

SHARES = (
    Share(
        "length/truncated",
        "Truncated critiques",
        "of the critiques ran into the token limit",
        0.02,
        0.1,
        "A cut critique seldom reaches its verdict; look whether max_new_tokens is too low.",
    ),
    Share(
        "critique/unparsed",
        "Unparsed critiques",
        "of the critiques had no readable verdict",
        0.02,
        0.1,
        "Read a few of them below before trusting the reward.",
    ),
)
SAMPLER_KL_WATCH, SAMPLER_KL_BAD = 0.01, 0.1
"""Nats a token between the sampler's and the trainer's weights. On-policy it is rounding, far below the first."""
SHIFT = 0.05
"""A change of Acc@Dis on one class that is worth a word."""


def health_notes(run: Run) -> list[Note]:
    """All notes, the worst first; equals in the order in which they are made."""
    stages = rl_phases(run)
    notes = [*flaws(run), *events(run)]
    if kind_of(run) is CRITIQUE:
        notes += [*failures(run, CRITIQUE, " of the first answer"), *group_notes(stages)]
        for share in SHARES:
            notes += share_notes(share, stages)
        notes += [*drift(stages, SAMPLER_KL_WATCH, SAMPLER_KL_BAD), *_one_sided(stages), *_identity(run)]
    else:
        notes += solve_notes(run, stages)
    return worst_first(notes)


def _one_sided(stages: Sequence[Phase]) -> list[Note]:
    """The failure that two-stage training is there to prevent: one class of answers judged better at the other's
    expense (arXiv:2510.24320, fig. 3)."""
    notes = []
    for stage in stages:
        right, wrong = (stage.series(f"validation/acc_dis_{kind}")[1] for kind in ("correct", "incorrect"))
        if len(right) < 2 or len(wrong) < 2:
            continue
        on_right, on_wrong = right[-1] - right[0], wrong[-1] - wrong[0]
        moved = (
            f"{title_of(stage.name)}: from the first to the last validation, Acc@Dis moved by "
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


def _identity(run: Run) -> list[Note]:
    """Delta = Acc@Refine - Acc = (i→c) - (c→i), in every row that has them."""
    broken, checked = [], 0
    for name, row in summary_rows(run.summary or {}, CRITIQUE).items():
        acc, refined, delta, spoiled, mended = (row[key] for key in ("acc", "acc_refine", "delta", "c2i", "i2c"))
        if acc is None or refined is None or delta is None or spoiled is None or mended is None:
            continue
        checked += 1
        if max(abs(delta - (refined - acc)), abs(delta - (mended - spoiled))) > 1e-3:
            broken.append(title_of(name))
    if broken:
        text = f"Delta is not Acc@Refine - Acc, or not i→c - c→i, in: {', '.join(broken)}."
        return [Note("bad", "Table does not add up", text)]
    text = f"Delta = Acc@Refine - Acc = i→c - c→i holds in all rows that have them ({checked})."
    return [Note("good", "Table adds up", text)] if checked else []
