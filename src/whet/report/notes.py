"""What health notes are made of, whatever kind of run they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
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


WASTED, WASTED_BAD = 0.5, 0.8
"""Of the groups, those that teach nothing and are not right throughout."""


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
        # By the last quarter: what was wrong at first and has been learnt away is no trouble.
        late = fmean(last_quarter(values))
        level: Level = "bad" if late >= share.bad else "watch" if late >= share.watch else "good"
        mean = percent(fmean(values))
        text = f"{title_of(stage.name)}: {mean} % {share.what}; {percent(late)} % in its last quarter."
        notes.append(Note(level, share.title, text if level == "good" else f"{text} {share.advice}"))
    return notes


def group_notes(stages: Sequence[Phase]) -> list[Note]:
    """Groups without signal at the end of each stage: all right is progress, anything else is a waste."""
    notes = []
    for stage in stages:
        keys = ("group/no_signal", "group/all_right", "group/all_wrong")
        flat, right, wrong = (fmean(last_quarter(values)) if (values := stage.series(key)[1]) else None for key in keys)
        if flat is None:
            continue
        text = f"{title_of(stage.name)}: in the last quarter {percent(flat)} % of the groups were paid alike throughout"
        if right is None or wrong is None:  # a run made before they were told apart
            level: Level = "watch" if flat >= WASTED else "good"
            notes.append(Note(level, "Groups without signal", f"{text} and taught nothing, right ones or wrong ones."))
            continue
        wasted = max(flat - right, wrong)  # a penalty on length pays groups that are all wrong differently
        level = "bad" if wasted >= WASTED_BAD else "watch" if wasted >= WASTED else "good"
        text += f"; {percent(right)} % were all right, {percent(wrong)} % all wrong."
        if level != "good":
            text += " More attempts a task, easier tasks, or ones nearer to an even chance, would waste less."
        elif right >= WASTED:
            text += " What is always right is learnt: harder tasks would teach more."
        notes.append(Note(level, "Groups without signal", text))
    return notes


def last_quarter(values: Sequence[float]) -> Sequence[float]:
    return values[-max(1, len(values) // 4) :]


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
