"""What health notes are made of, whatever kind of run they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.report.kinds import Kind
from whet.report.read import Phase, Run
from whet.report.table import percent, title_of

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


NO_SIGNAL = Share(
    "group/no_signal",
    "Groups without signal",
    "of the groups had equal rewards throughout and taught nothing",
    0.5,
    0.8,
    "More attempts a task, or tasks nearer to an even chance, would waste less.",
)


def worst_first(notes: Sequence[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: ("bad", "watch", "good").index(note.level))


def flaws(run: Run) -> list[Note]:
    return [Note("watch", "Unreadable record", flaw) for flaw in run.flaws]


def events(run: Run) -> list[Note]:
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


def failures(run: Run, kind: Kind, answer: str) -> list[Note]:
    """Failures of graders and environments among the recorded traces; they are ours, and never a reward.

    Args:
        answer: what has no grade where `answer_score` is None.
    """
    total = len(run.exchanges)
    outcomes = Counter(e.outcome for e in run.exchanges if e.outcome not in ("ok", "truncated"))
    ungraded = sum(e.answer_score is None for e in run.exchanges)
    if not total:
        return []
    if not outcomes and not ungraded:
        return [Note("good", "Failures", f"None of the {total:,} recorded {kind.traces} failed, and all were graded.")]
    parts = [f"{count:,} ended in {outcome}" for outcome, count in outcomes.most_common()]
    parts += [f"{ungraded:,} have no grade{answer}"] if ungraded else []
    level: Level = "bad" if max(outcomes.total(), ungraded) > 0.01 * total else "watch"
    text = f"Of {total:,} recorded {kind.traces} {' and '.join(parts)}. They are never a reward."
    return [Note(level, "Failures", text)]


def share_notes(share: Share, stages: Sequence[Phase]) -> list[Note]:
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


def drift(stages: Sequence[Phase], watch: float, bad: float) -> list[Note]:
    """Whether the tokens were sampled from the weights that the trainer thinks they were."""
    peaks = [(max(values, key=abs), stage.name) for stage in stages if (values := stage.series("kl/sampler")[1])]
    if not peaks:
        return []
    peak, stage_name = max(peaks, key=lambda pair: abs(pair[0]))
    level: Level = "bad" if abs(peak) >= bad else "watch" if abs(peak) >= watch else "good"
    text = f"The KL divergence from sampler to trainer is at most {abs(peak):.2g} nats a token, as a step's mean"
    end = "." if level == "good" else f" ({title_of(stage_name)}): look for stale weights or differing kernels."
    return [Note(level, "Off-policy drift", text + end)]
