"""Health notes: what a careful reader of the metrics and events would point out, in plain words.

Every check says something, also when all is well, so that one sees what was looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.report.curves import rl_phases
from whet.report.read import Phase, Run
from whet.report.table import percent, summary_rows, title_of

Level = Literal["good", "watch", "bad"]


@dataclass(frozen=True, slots=True)
class Note:
    level: Level
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Share:
    """A share that should stay low, and from where on it is worth a look, or a worry."""

    key: str
    title: str
    what: str
    watch: float
    bad: float
    advice: str


SHARES = (
    Share(
        "group/no_signal",
        "Groups without signal",
        "of the groups had equal rewards throughout and taught nothing",
        0.5,
        0.8,
        "More attempts a task, or tasks nearer to an even chance, would waste less.",
    ),
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
    notes = [*_flaws(run), *_events(run), *_failures(run)]
    for share in SHARES:
        notes += _share(share, stages)
    notes += [*_sampler(stages), *_one_sided(stages), *_identity(run)]
    return sorted(notes, key=lambda note: ("bad", "watch", "good").index(note.level))


def _flaws(run: Run) -> list[Note]:
    return [Note("watch", "Unreadable record", flaw) for flaw in run.flaws]


def _events(run: Run) -> list[Note]:
    """One note a kind of warning or error, with its count and its latest message."""
    notes = []
    trouble = [event for event in run.events if event.level in ("warning", "error", "critical")]
    for (level, slug), count in Counter((event.level, event.event) for event in trouble).items():
        last = [event for event in trouble if (event.level, event.event) == (level, slug)][-1]
        often = "once" if count == 1 else f"{count:,} times, the last one"
        worst: Level = "watch" if level == "warning" else "bad"
        notes.append(Note(worst, f"{level.capitalize()}: {slug}", f"{often} at {last.time}: {last.message}"))
    if run.events and not trouble:
        notes.append(Note("good", "Events", f"None of the {len(run.events):,} events is a warning or an error."))
    return notes


def _failures(run: Run) -> list[Note]:
    """Failures of graders and environments among the recorded exchanges; they are ours, and never a reward."""
    total = len(run.exchanges)
    outcomes = Counter(e.outcome for e in run.exchanges if e.outcome not in ("ok", "truncated"))
    ungraded = sum(e.answer_score is None for e in run.exchanges)
    if not total:
        return []
    if not outcomes and not ungraded:
        return [Note("good", "Failures", f"None of the {total:,} recorded exchanges failed, and all were graded.")]
    parts = [f"{count:,} ended in {outcome}" for outcome, count in outcomes.most_common()]
    parts += [f"{ungraded:,} have no grade of the first answer"] if ungraded else []
    level: Level = "bad" if max(outcomes.total(), ungraded) > 0.01 * total else "watch"
    return [Note(level, "Failures", f"Of {total:,} recorded exchanges {' and '.join(parts)}. They are never a reward.")]


def _share(share: Share, stages: Sequence[Phase]) -> list[Note]:
    notes = []
    for stage in stages:
        values = stage.series(share.key)[1]
        if not values:
            continue
        late = values[-max(1, len(values) // 4) :]
        mean, late_mean = sum(values) / len(values), sum(late) / len(late)
        worst = max(mean, late_mean)
        level: Level = "bad" if worst >= share.bad else "watch" if worst >= share.watch else "good"
        text = f"{title_of(stage.name)}: {percent(mean)} % {share.what}; {percent(late_mean)} % in its last quarter."
        notes.append(Note(level, share.title, text if level == "good" else f"{text} {share.advice}"))
    return notes


def _sampler(stages: Sequence[Phase]) -> list[Note]:
    """Whether the tokens were sampled from the weights that the trainer thinks they were."""
    peaks = [(max(values, key=abs), stage.name) for stage in stages if (values := stage.series("kl/sampler")[1])]
    if not peaks:
        return []
    peak, stage_name = max(peaks, key=lambda pair: abs(pair[0]))
    level: Level = "bad" if abs(peak) >= SAMPLER_KL_BAD else "watch" if abs(peak) >= SAMPLER_KL_WATCH else "good"
    text = f"The KL divergence from sampler to trainer is at most {abs(peak):.2g} nats a token, as a step's mean"
    end = "." if level == "good" else f" ({title_of(stage_name)}): look for stale weights or differing kernels."
    return [Note(level, "Off-policy drift", text + end)]


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
    for name, row in summary_rows(run.summary or {}).items():
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
