"""The tables of `agents_tiny.py`, from its collected numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from study import cell, minus

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A row of a table: what it is called, the run that it is of, and the row there."""

    title: str
    run: str
    row: str


@dataclass(frozen=True)
class Table:
    """A question: lines to be told of, and which of them are compared, seed by seed."""

    title: str
    lines: tuple[Line, ...]
    columns: tuple[str, ...] = ("success", "[]", "turns")
    """Metrics; `[]` stands for the success of every subgroup that there is."""
    compared: tuple[tuple[int, int], ...] = ()
    """Places of lines: the first minus the second, of the column that comes first and of `also`."""
    also: tuple[str, ...] = ()


def _trained(title: str, run: str) -> tuple[Line, Line]:
    return Line(f"{title}, best validated", run, "after"), Line(f"{title}, last", run, "last")


def _against_cloning(env: str, name: str) -> Table:
    lines = (
        Line("stopped early, where all begin", name, "before"),
        *_trained("RL", name),
        *_trained("as many updates of cloning", f"{name}_clone"),
        Line("cloned to the end", name, "cloned"),
    )
    return Table(f"(a) RL against cloning, {env}", lines, compared=((1, 3), (2, 4), (1, 5), (2, 5), (1, 0), (3, 0)))


def _presets(part: str, what: str, titles: Mapping[str, str]) -> Table:
    lines = tuple(line for run, title in titles.items() for line in _trained(title, run))
    pairs = tuple((place, place % 2) for place in range(2, len(lines)))
    return Table(f"({part}) {what}", (*lines, Line("before", "grpo", "before")), compared=pairs)


ROUNDS = tuple(Line(f"AgentEvol, round {number}", "evol", f"round_{number}") for number in range(1, 3))
TURNS = tuple(f"success@{count}" for count in (2, 3, 5, 10, 15, 20))
SAMPLES = tuple(f"pass@{count}" for count in (1, 2, 4, 8))
TABLES = (
    _against_cloning("TextCraft", "textcraft"),
    _against_cloning("BabyAI", "babyai"),
    Table(
        "(b) Horizons, at the end of each run",
        (*_trained("5 turns", "short"), *_trained("10 turns", "long"), *_trained("5, then 10", "textcraft")),
        compared=((4, 0), (4, 2), (5, 1), (5, 3)),
    ),
    Table(
        "(c) AgentEvol against cloning",
        (
            Line("before", "evol", "before"),
            Line("cloned from the demonstrations", "evol", "base"),
            *ROUNDS,
            Line("AgentEvol, best validated", "evol", "after"),
            *_trained("as many updates of cloning", "evol_clone"),
        ),
        compared=((2, 1), (3, 1), (3, 6), (4, 5)),
    ),
    Table(
        "(d) Within so many turns, greedy",
        (
            Line("before", "textcraft", "before"), Line("RL, best validated", "textcraft", "after"),
            Line("cloned to the end", "textcraft", "cloned"),
        ),
        columns=TURNS, compared=((1, 0), (1, 2)), also=("success@10", "success@20"),
    ),
    Table(
        "(d) At least one of k sampled episodes, temperature 1",
        (
            Line("before", "sampled_before", "before"), Line("RL, best validated", "sampled_after", "before"),
            Line("cloned to the end", "sampled_cloned", "before"),
        ),
        columns=SAMPLES, compared=((1, 0), (1, 2)), also=("pass@8",),
    ),
    _presets(
        "f", "Ways to credit", {"grpo": "GRPO", "rloo": "RLOO", "reinforce_pp": "REINFORCE++", "ppo": "PPO"}
    ),
    _presets("g", "Credit of turns", {"grpo": "one an episode", "per_turn": "one a turn", "gigpo": "GiGPO, both"}),
)  # fmt: skip
FEWEST = 3
"""Seeds that a difference has to have before it is called one."""
HORIZONS = {"short": "5 turns", "long": "10 turns", "textcraft": "5, then 10"}


def text(result: Result, tables: Sequence[Table]) -> str:
    """All tables, as the numbers came out."""
    seeds = ", ".join(map(str, result["seeds"]))
    lines = [
        "# What RL adds to a tiny agent", "",
        f"Seeds {seeds}; mean ± half width of a 95 % t interval over seeds, in percent (turns: their number). Success "
        "on the test items, greedy unless said otherwise, at most 20 turns; a subgroup's column says how many items it "
        "has. *Best validated* is chosen on validation items, which are neither trained on nor tested. Differences "
        f"are of runs with one seed, in points; those beyond their interval are bold, from {FEWEST} seeds on.", "",
    ]  # fmt: skip
    if result["missing"]:
        told = [f"{name} ({', '.join(map(str, seeds))})" for name, seeds in result["missing"].items()]
        lines += [f"Not finished, so not in here (by seed): {'; '.join(told)}.", ""]
    for table in tables:
        lines += _table(result["runs"], table)
        if table.title.startswith("(b)"):
            lines += _horizons(result["horizons"])
    hours = ", ".join(f"{part} {value:.2f}" for part, value in result["hours"].items())
    lines += [f"Hours in one thread: {hours}; {sum(result['hours'].values()):.2f} in all."]
    lines += [f"Command: `{result['command']}`. Machine: {json.dumps(result['machine'])}.", ""]
    return "\n".join([*lines, "## Settings", "", *_settings(result["settings"])])


def _settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, own in settings.items():
        yield f"- {name}: `{' '.join(own) if isinstance(own, Sequence) else own}`"
    yield ""


def _table(runs: Mapping[str, Any], table: Table) -> list[str]:
    """A table and its differences; nothing where no run of it has finished."""
    found = {line: _of(runs, line) for line in table.lines}
    known = {line: by_seed for line, by_seed in found.items() if by_seed}
    if not known:
        return []
    columns = list(_columns(table.columns, [row for by_seed in known.values() for row in by_seed.values()]))
    heads = [_head(column, known) for column in columns]
    lines = [
        f"## {table.title}",
        "",
        f"| | {' | '.join(heads)} | seeds |",
        "|---" * (len(heads) + 2) + "|",
    ]
    for line, by_seed in known.items():
        cells = [
            cell([row.get(column) for row in by_seed.values()], scale=1 if column == "turns" else 100)
            for column in columns
        ]
        lines.append(f"| {line.title} | {' | '.join(cells)} | {len(by_seed)} |")
    metrics = (columns[0], *table.also) if table.columns[0] == "success" else table.also
    pairs = [(table.lines[left], table.lines[right]) for left, right in table.compared]
    told = [_difference(found[a], found[b], a, b, metric) for a, b in pairs for metric in metrics]
    if told := [each for each in told if each]:
        lines += ["", "| difference | of | points | seeds |", "|---|---|---|---|", *told]
    return [*lines, ""]


def _of(runs: Mapping[str, Any], line: Line) -> dict[str, Mapping[str, float | None]]:
    """By seed, the metrics of a line."""
    return {seed: run["rows"][line.row] for seed, run in runs[line.run].items() if line.row in run["rows"]}


def _columns(wanted: Sequence[str], rows: Sequence[Mapping[str, float | None]]) -> Iterator[str]:
    groups = dict.fromkeys(key for row in rows for key in row if key.startswith("success["))
    for column in wanted:
        yield from groups if column == "[]" else [column]


def _head(column: str, known: Mapping[Line, Mapping[str, Mapping[str, float | None]]]) -> str:
    of_all = column == "success" or column.startswith(("success@", "pass@"))
    count = "n" if of_all else column.replace("success[", "n[", 1) if column.startswith("success[") else ""
    numbers = {row.get(count) for by_seed in known.values() for row in by_seed.values()} - {None}
    title = column.removeprefix("success[").removesuffix("]")
    return f"{title} ({max(numbers):.0f})" if count and numbers else title  # type: ignore[type-var]


def _difference(
    left: Mapping[str, Mapping[str, float | None]], right: Mapping[str, Mapping[str, float | None]], a: Line, b: Line,
    metric: str,
) -> str:  # fmt: skip
    both = [seed for seed in left if seed in right]
    values = minus([left[seed].get(metric) for seed in both], [right[seed].get(metric) for seed in both])
    return f"| {a.title} − {b.title} | {metric} | {told(values)} | {len(both)} |" if both else ""


def told(values: Sequence[float | None]) -> str:
    """A difference; bold where its interval leaves 0 out. Two seeds can agree by chance, to the last item."""
    shown = cell(values, sign=True)
    mean, _, half = shown.partition(" ± ")
    is_told = sum(value is not None for value in values) >= FEWEST and abs(float(mean)) > float(half)
    return f"**{shown}**" if is_told else shown


def _horizons(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """What the horizons came to at equal steps in environments."""
    if not all(found.values()):
        return []
    lines = ["At equal steps in environments, greedy on validation items:", ""]
    lines += [
        "| horizon | thousands of steps | compared at | success there | on average |",
        "|---" * 5 + "|",
    ]
    for name, title in HORIZONS.items():
        own = found[name].values()
        thousands = [cell([each[key] for each in own], scale=1e-3) for key in ("env_steps", "budget")]
        successes = [cell([each[key] for each in own]) for key in ("at", "mean")]
        lines.append(f"| {title} | {' | '.join((*thousands, *successes))} |")
    grown = found["textcraft"]
    for name in ("short", "long"):
        for key, what in (("at", "there"), ("mean", "on average")):
            values = minus([each[key] for each in grown.values()], [each[key] for each in found[name].values()])
            lines += ["", f"Growing minus {HORIZONS[name]}, {what}: {told(values)} points."]
    return [*lines, ""]
