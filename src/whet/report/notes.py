"""Health notes for any run: broken records, events, failures, shares, groups without signal.

Counts how episodes ended: finished, failed and retried, or lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from whet.report.records import PhaseRecord, RunRecord
from whet.report.spec import Share
from whet.report.table import percent

Level = Literal["good", "watch", "bad"]


@dataclass(frozen=True, slots=True)
class Note:
    level: Level
    title: str
    text: str


WASTED, WASTED_BAD = 0.5, 0.8
"""Share of the groups without signal that are not right throughout: to watch, and bad."""


def worst_first(notes: Sequence[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: ("bad", "watch", "good").index(note.level))


def flaws(run: RunRecord) -> list[Note]:
    return [Note("watch", "Unreadable record", flaw) for flaw in run.flaws]


def events(run: RunRecord) -> list[Note]:
    """A note for each kind of warning or error, with its count and its latest message."""
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


def failures(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Failures of graders and environments among the recorded traces. They are never a reward."""
    traces, answer = run.report_spec.traces, " of the first answer" if run.report_spec.view == "exchange" else ""
    total = len(run.exchanges)
    outcomes = Counter(e.outcome for e in run.exchanges if e.outcome not in ("ok", "truncated"))
    ungraded = sum(e.answer_score is None for e in run.exchanges)
    if not total:
        return []
    if not outcomes and not ungraded:
        return [Note("good", "Failures", f"None of the {total:,} recorded {traces} failed, and all were graded.")]
    parts = [f"{count:,} ended in {outcome}" for outcome, count in outcomes.most_common()]
    parts += [f"{ungraded:,} have no grade{answer}"] if ungraded else []
    level: Level = "bad" if max(outcomes.total(), ungraded) > 0.01 * total else "watch"
    text = f"Of {total:,} recorded {traces} {' and '.join(parts)}. They are never a reward."
    return [Note(level, "Failures", text)]


def shares(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """A note for each share of the report spec."""
    return [note for share in run.report_spec.shares for note in _share(run, share, stages)]


def _share(run: RunRecord, share: Share, stages: Sequence[PhaseRecord]) -> list[Note]:
    notes = []
    for stage in stages:
        values = stage.series(share.key)[1]
        if not values:
            continue
        # Judged by the last quarter: mistakes that training removed are no trouble.
        late = fmean(last_quarter(values))
        level: Level = "bad" if late >= share.bad else "watch" if late >= share.watch else "good"
        mean = percent(fmean(values))
        text = f"{run.report_spec.title(stage.name)}: {mean} % {share.what}; {percent(late)} % in its last quarter."
        notes.append(Note(level, share.title, text if level == "good" else f"{text} {share.advice}"))
    return notes


def groups(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Groups without signal at the end of each stage: all right is progress, anything else is a waste."""
    if not run.report_spec.is_compared:
        return []
    notes = []
    for stage in stages:
        keys = ("group/no_signal", "group/all_right", "group/all_wrong")
        flat, right, wrong = (fmean(last_quarter(values)) if (values := stage.series(key)[1]) else None for key in keys)
        if flat is None or right is None or wrong is None:
            continue
        name = run.report_spec.title(stage.name)
        text = f"{name}: in the last quarter {percent(flat)} % of the groups had equal rewards throughout"
        wasted = max(flat - right, wrong)  # a penalty on length gives groups that are all wrong different rewards
        level: Level = "bad" if wasted >= WASTED_BAD else "watch" if wasted >= WASTED else "good"
        text += f"; {percent(right)} % were all right, {percent(wrong)} % all wrong."
        if level != "good":
            text += " More attempts a task, easier tasks, or ones nearer to an even chance, would waste less."
        elif right >= WASTED:
            text += " What is always right is learnt: harder tasks would teach more."
        notes.append(Note(level, "Groups without signal", text))
    return notes


def last_quarter(values: Sequence[float]) -> Sequence[float]:
    return values[-max(1, len(values) // 4) :]


# --- accounts ---------------------------------------------------------------------------------------------------------


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
