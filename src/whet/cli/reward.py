"""`whet reward test`: which replies cheat a reward, before a run finds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out, usage
from whet.cli.golden import GoldenOption, check_golden
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

if TYPE_CHECKING:
    from whet.checks.reward_test import RewardReport
    from whet.checks.scorers import Kind

BASICS = ("golden", "wrong answer", "golden beats wrong")
"""Cases that are shown in any case."""
PREFIX = "data.columns."
"""Of the settings that this command takes."""

reward_app = typer.Typer(name="reward", no_args_is_help=True, help="Graders and reward terms: test one before a run.")
app.add_typer(reward_app)


@reward_app.callback()
def group() -> None:
    """Graders and reward terms: test one before a run."""


@reward_app.command("test", cls=PluginsCommand)
def try_replies(
    target: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A plug-in file, for all in it; or a registered name.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[data.columns.KEY=COLUMN ...]", help="Which columns of --data hold prompt, answer and solution."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="Your rows, with answers. Default: built-in sums.")
    ] = None,
    golden: GoldenOption = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.05, max=600, help="Seconds of one call. Past it, the call is killed.")
    ] = 2.0,
    samples: Annotated[int, typer.Option("--samples", min=2, max=64, help="Tasks to try it on.")] = 24,
    everything: Annotated[bool, typer.Option("--all", help="Show the cases that are fine too.")] = False,
    plugins: PluginsOption = None,
) -> None:
    """Try golden, wrong and adversarial replies on a grader or a reward term. Exits with 1 where it has holes.

    It gives the reward empty replies, both answers at once, everything boxed, the question copied, 100k characters,
    look-alikes, deep LaTeX, huge powers, control tokens as text, constants, and more. Each gets a verdict: fine, a
    hole, crashed, hung, no score, not finite, out of range, not repeatable.

    Examples: whet reward test mine.py;  whet reward test math_verify --all;
    whet reward test brief --plugins mine.py --data problems.jsonl --golden '#### {answer}';
    whet reward test mine.py --data rows.csv data.columns.prompt=query data.columns.answer=label
    """

    reports: list[RewardReport] = []

    def work() -> None:
        from whet.checks.reward_test import check_reward
        from whet.checks.samples import built_in_tasks, tasks_of_file
        from whet.checks.scorers import scorer_of

        check_golden(golden)
        columns = _columns(settings, data)
        is_file = target.endswith(".py")
        load_own([*(plugins or []), *([Path(target)] if is_file else [])])
        for kind, name in _of_file(Path(target)) if is_file else _of_name(target):
            tasks = tasks_of_file(data, samples, columns) if data is not None else built_in_tasks(samples, name)
            scorer = scorer_of(kind, name, tasks, timeout_s)
            try:
                report = check_reward(scorer, tasks, golden)
            finally:
                scorer.close()
            reports.append(report)
            _show(report, everything)

    guarded(work, None)
    if any(report.holes for report in reports):
        raise typer.Exit(1)


def _columns(settings: list[str] | None, data: Path | None) -> dict[str, str]:
    """The user's names of columns, by `prompt`, `answer` and `solution`. Raises: ConfigError."""
    from whet.config.loading import load
    from whet.config.parts import ColumnNames

    if settings and data is None:
        raise usage(f"{settings[0]} names a column of your rows, and there are none: give them with --data FILE")
    if other := next((setting for setting in settings or () if not setting.startswith(PREFIX)), None):
        known = ", ".join(f"{PREFIX}{name}=COLUMN" for name in ColumnNames.model_fields)
        raise usage(f"{other!r} is no setting of this command: it takes {known}")
    return load(ColumnNames, overrides=[setting.removeprefix(PREFIX) for setting in settings or ()]).given()


def _of_file(file: Path) -> list[tuple[Kind, str]]:
    """The graders and reward terms that a loaded plug-in registered."""
    from whet.grading import GRADERS
    from whet.rewards import REWARDS

    origin = str(file.expanduser().resolve())
    names: list[tuple[Kind, str]] = [("grader", entry.name) for entry in GRADERS if entry.origin == origin]
    names += [("reward", entry.name) for entry in REWARDS if entry.origin == origin]
    if not names:
        raise usage(f"{file} registers no grader and no reward: decorate a function with @whet.grader or @whet.reward")
    return names


def _of_name(name: str) -> list[tuple[Kind, str]]:
    from whet.checks.scorers import Kind
    from whet.grading import GRADERS
    from whet.registry import Registry
    from whet.rewards import REWARDS

    registries: dict[Kind, Registry[object]] = {"grader": GRADERS, "reward": REWARDS}  # type: ignore[dict-item]
    found = [(kind, name) for kind in get_args(Kind) if name in registries[kind]]
    if not found:
        raise usage(_unknown(name, [*GRADERS.names(), *REWARDS.names()]))
    return found


def _unknown(name: str, known: Sequence[str]) -> str:
    """What to type in place of a name that nothing has."""
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return (
            f"{name} is no name: one function of a file is tested by its registered name, as in whet reward test "
            f"{function or 'NAME'} --plugins {file}; whet reward test {file} tests all in it"
        )
    if Path(name).suffix in (".jsonl", ".json", ".csv", ".tsv", ".parquet"):
        return (
            f"{name} is a file of rows, and no grader: name the grader or its file first, as in whet reward test "
            f"mine.py --data {name}"
        )
    return (
        f"there is no grader and no reward {name[:200]!r}; choose of: {', '.join(known)}. For one of yours give its "
        f"file (whet reward test mine.py), or its name and its file (whet reward test {name[:200]} --plugins mine.py)"
    )


def _show(report: RewardReport, everything: bool) -> None:
    from rich.table import Table

    colours = {"fine": "green", "note": "yellow", "not tried": "yellow"}
    title = f"{report.kind} {report.name}, golden replies as {report.form!r}"
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("case", "rewards", "verdict", "what to do"):
        table.add_column(column, overflow="fold")
    for row in report.rows:
        if everything or row.verdict != "fine" or row.case in BASICS or row.case.startswith("best constant"):
            colour = colours.get(row.verdict, "red")
            verdict = f"[{colour}]{row.verdict}[/{colour}]"
            case = escape(row.case) + (f"\n[dim]{escape(repr(row.reply))}[/dim]" if row.reply else "")
            table.add_row(case, escape(row.rewards), verdict, escape(row.advice))
    out.print(table)
    num_fine = sum(row.verdict == "fine" for row in report.rows)
    holes = len(report.holes)
    verdict = f"{holes} hole{'s' if holes != 1 else ''}" if holes else "no holes"
    note = "" if everything else "; --all shows them"
    out.print(f"{verdict}; {num_fine} of {len(report.rows)} cases are fine{note}\n", highlight=False)
