"""Health notes for any run: broken records, events, failures, shares, groups without signal, and ends of episodes."""

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


WASTED, WASTED_BAD = 0.5, 0.8
"""Share of the groups without signal that are not all right: to watch, and bad."""
EVEN = 1e-6
"""A difference of two shares that rounding may make."""
LOST = 0.01
"""Share of lost episodes above which a note is bad."""
ENDS = {
    "episodes/started": "started",
    "episodes/finished": "finished",
    "episodes/retried": "failed, retried",
    "episodes/lost": "failed, lost",
}
FAULTS = {
    "faults/env_error": "environment",
    "faults/timeout": "timeout",
    "faults/endpoint_error": "endpoint",
    "faults/grader_error": "grader",
}
"""Counts of how episodes ended, and of failures by kind, with the words of the report."""


@dataclass(frozen=True, slots=True)
class Note:
    """A finding about a run's health."""

    level: Level
    title: str
    text: str


def worst_first(notes: Sequence[Note]) -> list[Note]:
    """The notes, bad ones first."""
    return sorted(notes, key=lambda note: ("bad", "watch", "good").index(note.level))


def flaws(run: RunRecord) -> list[Note]:
    """A note for each record that could not be read."""
    return [Note("watch", "Unreadable record", flaw) for flaw in run.flaws]


def events(run: RunRecord) -> list[Note]:
    """A note for each kind of warning or error, with its count and its latest message."""
    notes = []
    problems = [event for event in run.events if event.level in ("warning", "error", "critical")]
    for (level, kind), count in Counter((event.level, event.event) for event in problems).items():
        last = [event for event in problems if (event.level, event.event) == (level, kind)][-1]
        times = "once" if count == 1 else f"{count:,} times, the last one"
        note_level: Level = "watch" if level == "warning" else "bad"
        notes.append(Note(note_level, f"{level.capitalize()}: {kind}", f"{times} at {last.time}: {last.message}"))
    if run.events and not problems:
        notes.append(Note("good", "Events", f"None of the {len(run.events):,} events is a warning or an error."))
    return notes


def failures(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Failures of graders and environments among the recorded traces. They are never a reward."""
    traces, answer = run.report_spec.traces, " of the first answer" if run.report_spec.view == "exchange" else ""
    total = len(run.exchanges)
    outcomes = Counter(exchange.outcome for exchange in run.exchanges if exchange.outcome not in ("ok", "truncated"))
    ungraded = sum(exchange.answer_score is None for exchange in run.exchanges)
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
        # The last quarter decides, as mistakes that training removed are no problem.
        late = fmean(last_quarter(values))
        level: Level = "bad" if late >= share.bad else "watch" if late >= share.watch else "good"
        mean = percent(fmean(values))
        text = f"{run.report_spec.title(stage.name)}: {mean} % {share.what}; {percent(late)} % in its last quarter."
        notes.append(Note(level, share.title, text if level == "good" else f"{text} {share.advice}"))
    return notes


def groups(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """A note for each stage on the groups without signal at its end. All right is progress; others are wasted."""
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
        if right + wrong > flat + EVEN:  # right and wrong are by the score alone
            text += (
                " In some of these only other terms than the score, such as a penalty on length, make the rewards "
                "differ. They do not teach what is right."
            )
        if level != "good":
            text += " More attempts a task, easier tasks, or ones nearer to an even chance, would waste less."
        elif right >= WASTED:
            text += " What is always right is learnt: harder tasks would teach more."
        notes.append(Note(level, "Groups without signal", text))
    return notes


def last_quarter(values: Sequence[float]) -> Sequence[float]:
    """The last quarter of some values, and one at least."""
    return values[-max(1, len(values) // 4) :]


def accounts(run: RunRecord) -> list[dict[str, str]]:
    """The table of how episodes ended and of failures by kind. Empty: nothing was counted.

    It has a row for each phase with episodes, and a total where there are several.
    """
    sums = {run.report_spec.title(phase.name): _sums(phase) for phase in _phases_with_episodes(run)}
    if len(sums) > 1:
        sums["All"] = {key: sum(row[key] for row in sums.values()) for key in (*ENDS, *FAULTS)}
    names = {**ENDS, **FAULTS}
    return [
        {"phase": title, **{names[key]: f"{count:,.0f}" for key, count in row.items()}} for title, row in sums.items()
    ]


def episodes(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """A note on failures, and on whether the counts add up."""
    rows = [_sums(phase) for phase in _phases_with_episodes(run)]
    started, finished, retried, lost = (sum(row[key] for row in rows) for key in ENDS)
    failed = retried + lost
    if not started:
        return []
    if started != finished + retried + lost:
        text = f"{started:,.0f} episodes were started, and {finished + retried + lost:,.0f} are accounted for."
        return [Note("bad", "Episodes", text)]
    if not failed:
        return [Note("good", "Episodes", f"All {started:,.0f} that were started were finished.")]
    text = (
        f"Of {started:,.0f} that were started {failed:,.0f} failed ({percent(failed / started)} %): {retried:,.0f} "
        f"were retried under a fresh seed, {lost:,.0f} are lost. None of them is a reward or part of a baseline."
    )
    return [Note("bad" if lost > LOST * started else "watch", "Episodes", text)]


def _phases_with_episodes(run: RunRecord) -> list[PhaseRecord]:
    return [phase for phase in run.phases if phase.has("episodes/started", "validation/episodes/started")]


def _sums(phase: PhaseRecord) -> dict[str, float]:
    """The counts of a phase, summed over training and validation."""
    return {key: sum(sum(phase.series(name)[1]) for name in (key, f"validation/{key}")) for key in (*ENDS, *FAULTS)}
