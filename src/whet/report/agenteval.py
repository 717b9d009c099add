"""An evaluation by AgentEval for the terminal: tables of published and of generated items, and what could not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from whet.evaluation.agenteval import USUAL, AgentEval, Measured, NotRun
from whet.evaluation.agenteval import Table as Which
from whet.report.table import percent

TITLES: Mapping[Which, str] = {
    "published": "published items: their numbers mean upstream's items",
    "generated": "generated items: whet's own, which stand beside no published score",
}
BASELINES = ("expert", "random", "constant")
COLUMNS = ("environment", "items", "score", "success", *BASELINES, "turns", "invalid", "cut", "failed")
EXPLAINED = (
    "In percent, but for items, turns (of at most) and failed episodes. Score: mean reward in [0, 1], with its 95 % "
    "interval. Expert, random, constant: their scores on the same items. Cut: episodes at a limit. Failed: episodes of "
    "a broken environment or endpoint, left out of the other columns. Neither table is averaged, nor are both."
)


def agenteval_tables(result: AgentEval) -> list[Table]:
    """A table of each kind of items that was measured, and one of what could not run."""
    tables = [_scores(result.table(which), title) for which, title in TITLES.items() if result.table(which)]
    if tables:
        tables[-1].caption = EXPLAINED
    return tables + ([_absent(result.not_run)] if result.not_run else [])


def _scores(lines: Sequence[Measured], title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=0, title_justify="left", caption_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "environment" else "right")
    for line in lines:
        policy = line.policy
        table.add_row(
            line.environment,
            str(len(line.items)),
            Text(_with_interval(policy), style="bold"),
            percent(policy["success"]),
            *(percent(row["score"]) if (row := line.rows[name]) is not None else "–" for name in BASELINES),
            "–" if policy["turns"] is None else f"{policy['turns']:.1f}/{line.max_turns}",
            percent(policy["invalid"]),
            percent(policy["truncated"]),
            str(sum(policy["failures"].values())),
        )
    return table


def _with_interval(row: Mapping[str, Any]) -> str:
    if row["score"] is None:
        return "–"
    return f"{percent(row['score'])} ({100 * row['score_low']:.0f}–{100 * row['score_high']:.0f})"


def _absent(not_run: Sequence[NotRun]) -> Table:
    """Environments with one reason share a line."""
    table = Table(title="could not run, which is no zero", box=box.SIMPLE_HEAD, padding=0, title_justify="left")
    table.add_column("environment", max_width=30)
    table.add_column("why", overflow="fold")
    by_reason: dict[str, list[str]] = {}
    for absent in not_run:
        by_reason.setdefault(absent.why, []).append(absent.environment)
    for why, names in by_reason.items():
        table.add_row(", ".join(names), Text(why))
    return table


def agenteval_notes(result: AgentEval) -> Iterator[str]:
    """Sentences below the tables: by whose settings, whose items, silent agents, and reasons of failed episodes."""
    by_paper: dict[tuple[Any, ...], dict[int, list[str]]] = {}
    by_choice: dict[str, list[str]] = {}
    for line in result.measured:
        by_turns = by_paper.setdefault((line.paper, line.temperature, line.format, line.overridden), {})
        by_turns.setdefault(line.max_turns, []).append(line.environment)
        by_choice.setdefault(line.choice, []).append(line.environment)
    for (paper, temperature, format, overridden), by_turns in by_paper.items():
        turns = [f"{count} turn{'s' * (count != 1)} in {', '.join(names)}" for count, names in by_turns.items()]
        sampling = f"temperature {temperature:g}" if temperature else "greedy (temperature 0)"
        whose = paper if paper == USUAL else f"as published by {paper}"
        ending = f"; your own {', '.join(overridden)} holds instead" if overridden else ""
        yield f"{whose}: {sampling}, {format}, {'; '.join(turns)}{ending}"
    yield "items: " + "; ".join(f"{choice} in {', '.join(names)}" for choice, names in by_choice.items())
    if silent := [line.environment for line in result.measured if line.policy["invalid"] == 1.0]:
        yield (
            f"not one action was understood in {', '.join(silent)}: look at the episodes; the agent may need another "
            "form of replies (format) or other rules (rules)"
        )
    for line in result.measured:
        for agent, row in line.rows.items():
            if row is not None and row["failures"]:
                kinds = ", ".join(f"{count} {kind}" for kind, count in row["failures"].items())
                yield f"{line.environment}, {agent}: failed episodes: {kinds} (the first: {row['reason']})"
