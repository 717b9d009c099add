"""Several runs beside one another: what their settings differ in, their results, and their differences.

Runs whose settings are the same but for the seed are one *arm*. An arm's value is the mean over its seeds, with a 95 %
Student t interval. Differences are paired: an arm's value minus the first arm's under the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from whet.evaluation.critique import mean_interval
from whet.report.read import read_run
from whet.report.records import Record, ReportError, RunRecord, number
from whet.report.rows import columns_of, summary_rows
from whet.report.spec import Column, ReportSpec
from whet.run_folder.files import WATCHING

SEED = "seed"
"""The setting that tells the runs of an arm apart."""
ASIDE = (SEED, *WATCHING)
"""Settings that set no arm apart."""
ENVIRONMENT = ("commit", "whet", "torch", "transformers", "device")
"""What else can move results, by its name in `env.json`."""
MAX_VALUE = 60
"""Characters that are shown of a setting."""


@dataclass(frozen=True)
class Arm:
    """Runs of the same settings, a seed each."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def seeds(self) -> tuple[Any, ...]:
        return tuple(run.setting(SEED) for run in self.runs)

    def values(self, row: str, key: str) -> dict[Any, float]:
        """By seed, a value of a row of the final tables. Runs without it are left out."""
        pairs = ((run.setting(SEED), _value(run, row, key)) for run in self.runs)
        return {seed: value for seed, value in pairs if value is not None}


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    half_width: float | None
    """Of the 95 % Student t interval. None: there is one seed."""
    values: tuple[float, ...]
    """By seed."""


@dataclass(frozen=True)
class Difference:
    """What an arm has more than the first arm, in one column of one row."""

    arm: str
    row: str
    column: Column
    estimate: Estimate
    seeds: tuple[Any, ...]
    """Those that both arms have."""


@dataclass(frozen=True)
class Comparison:
    """Arms in the order in which their first runs were named."""

    arms: tuple[Arm, ...]
    differing: Mapping[str, tuple[str, ...]]
    """By dotted setting, its value in each arm, or `ABSENT`. Only settings that differ between arms."""
    notes: tuple[str, ...]
    """Sentences on what a reader should know before believing the table."""

    @property
    def report_spec(self) -> ReportSpec:
        """The first run's."""
        return self.arms[0].runs[0].report_spec

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that every run has and some row fills. Empty: the methods are measured by different things."""
        runs = [run for arm in self.arms for run in arm.runs]
        shared = set.intersection(*({column.key for column in run.report_spec.columns} for run in runs))
        filled = {key for arm in self.arms for row in self.rows_of(arm) for key in shared if arm.values(row, key)}
        rows = {
            f"{number} {row}": values
            for number, run in enumerate(runs)
            for row, values in summary_rows(run.summary, self.report_spec).items()
        }
        return tuple(column for column in columns_of(self.report_spec, rows) if column.key in filled)

    @property
    def headline(self) -> Column | None:
        """The column whose differences count: the first run's, or else the first that all have."""
        best = [column for column in self.columns if column.key == self.report_spec.best]
        return next(iter([*best, *self.columns]), None)

    def rows_of(self, arm: Arm) -> list[str]:
        """The rows of an arm's final tables, in their order of display."""
        return list(dict.fromkeys(row for run in arm.runs for row in summary_rows(run.summary, run.report_spec)))

    def estimate(self, arm: Arm, row: str, key: str) -> Estimate | None:
        """The mean over the arm's seeds. None: no run has the value."""
        return _estimate(tuple(arm.values(row, key).values()))

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Of the headline column, by arm and trained row, over the seeds that an arm shares with the first."""
        first, column = self.arms[0], self.headline
        if column is None:
            return ()
        return tuple(
            difference
            for arm in self.arms[1:]
            for row in self._trained(arm)
            if (difference := _difference(first, arm, row, column)) is not None
        )

    def _trained(self, arm: Arm) -> list[str]:
        untrained = {name for run in arm.runs for name in run.report_spec.untrained}
        return [row for row in self.rows_of(arm) if row not in untrained]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The final tables as records, one for each run and row: `pandas.DataFrame(comparison.rows)`."""
        return [
            {"arm": arm.name, "run": str(run.folder), SEED: run.setting(SEED), "row": row, **values}
            for arm in self.arms
            for run in arm.runs
            for row, values in summary_rows(run.summary, run.report_spec).items()
        ]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All steps of all runs as records: arm, run, seed, phase, step, and the metrics by name."""
        return [
            {"arm": arm.name, "run": str(run.folder), SEED: run.setting(SEED), "phase": phase.name, "step": step}
            | dict(values)
            for arm in self.arms
            for run in arm.runs
            for phase in run.phases
            for step, values in phase.steps.items()
        ]


def compare_runs(folders: Sequence[Path | str]) -> Comparison:
    """Compares runs, finished or not.

    Args:
        folders: of two runs at least. The first one's arm is what the others are compared with.
    Raises: ReportError where a folder holds no run, or there is nothing to compare.
    """
    places = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    if len(places) < 2:
        raise ReportError("a comparison needs two runs at least: name their folders, such as runs/a runs/b")
    runs = [read_run(place) for place in places]
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(_of_arm(run), []).append(run)
    members = list(groups.values())
    flat = [dict(_flat(group[0].settings)) for group in members]
    keys = [key for key in dict.fromkeys(key for settings in flat for key in settings) if key not in ASIDE]
    differing = {
        key: tuple(_shown(settings.get(key, _MISSING)) for settings in flat)
        for key in keys
        if len({repr(settings.get(key, _MISSING)) for settings in flat}) > 1
    }
    arms = tuple(Arm(name, tuple(group)) for name, group in zip(_names(members, differing), members, strict=True))
    return Comparison(arms, differing, tuple(_notes(arms)))


_MISSING = object()
ABSENT = "–"
"""Stands for a setting that an arm does not have."""


def _flat(settings: Record, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _of_arm(run: RunRecord) -> str:
    return repr(sorted((key, repr(value)) for key, value in _flat(run.settings) if key not in ASIDE))


def _shown(value: Any) -> str:
    if value is _MISSING:
        return ABSENT
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _names(members: Sequence[Sequence[RunRecord]], differing: Mapping[str, tuple[str, ...]]) -> list[str]:
    """By arm, what sets it apart in one or two settings. Otherwise the names of its folders."""
    if 0 < len(differing) <= 2:
        return [", ".join(f"{key}={values[i]}" for key, values in differing.items()) for i in range(len(members))]
    return [_folders(group) for group in members]


def _folders(group: Sequence[RunRecord]) -> str:
    names = [run.folder.name for run in group]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _value(run: RunRecord, row: str, key: str) -> float | None:
    rows = (run.summary or {}).get("rows")
    values = rows.get(row) if isinstance(rows, Mapping) else None
    return number(values.get(key)) if isinstance(values, Mapping) else None


def _estimate(values: tuple[float, ...]) -> Estimate | None:
    return Estimate(*mean_interval(values), values) if values else None


def _difference(first: Arm, arm: Arm, row: str, column: Column) -> Difference | None:
    """None: no seed has the value in both arms."""
    left, right = arm.values(row, column.key), first.values(row, column.key)
    seeds = tuple(seed for seed in left if seed in right)
    estimate = _estimate(tuple(left[seed] - right[seed] for seed in seeds))
    return None if estimate is None else Difference(arm.name, row, column, estimate, seeds)


def _notes(arms: Sequence[Arm]) -> Iterator[str]:
    runs = [run for arm in arms for run in arm.runs]
    for run in runs:
        if run.summary is None:
            yield f"{run.folder} is unfinished: it has curves, and no row in the table."
    for arm in arms:
        twice = [seed for seed in dict.fromkeys(arm.seeds) if arm.seeds.count(seed) > 1]
        for seed in twice:
            names = ", ".join(str(run.folder) for run in arm.runs if run.setting(SEED) == seed)
            yield f"{names} have the same settings and seed {seed}: they are one sample, and the last one counts."
    if len(arms) == 1:
        yield "All runs have the same settings, so they are one arm: there is no difference to compare."
    elif alone := [arm.name for arm in arms if len(set(arm.seeds)) == 1]:
        who = "Each arm has one seed" if len(alone) == len(arms) else f"One seed has: {'; '.join(alone)}"
        yield f"{who}. A difference may be chance; more seeds give it an interval."
    for name in ENVIRONMENT:
        values = {str(run.env.get(name)) for run in runs if run.env.get(name) is not None}
        if len(values) > 1:
            yield f"The runs differ in {name}: {', '.join(sorted(values))}."
    tables = [summary_rows(run.summary, run.report_spec) for run in runs]
    for key, what in (
        ("n", "measured on unequal numbers of tasks"),
        ("k", "measured by unequal numbers of samples"),
    ):
        counts = {int(count) for table in tables for values in table.values() if (count := values[key])}
        if len(counts) > 1:
            yield f"The runs were {what}: {', '.join(map(str, sorted(counts)))}."
