"""`whet train` and `whet resume`: a run from start to table and report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import (
    MethodArgument,
    SettingsArgument,
    SettingsCommand,
    config_of,
    guarded,
    loading,
    note,
    out,
    program,
    progress_bar,
    report_spec_of,
)
from whet.cli.own_files import PluginsOption, with_plugins
from whet.cli.parts import print_parts
from whet.distribution import has_extra

if TYPE_CHECKING:
    from whet.config.runs import RunConfig
    from whet.methods.base import MethodSpec
    from whet.run.session import Session

AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-changes",
        help="Resume though an input, the number of threads or a log has changed; the run's events record it.",
    ),
]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Load and check everything, show the plan, write nothing.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Delete the run in --out first.")]


@app.command(cls=SettingsCommand)
def train(
    method: MethodArgument,
    settings: SettingsArgument = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Run folder. A run in it resumes, if its settings are the same.")
    ] = Path("runs/run"),
    dry_run: DryRunOption = False,
    overwrite: OverwriteOption = False,
    accept_changes: AcceptOption = False,
    plugins: PluginsOption = None,
) -> None:
    """Run a method from start to table and report.

    Examples: whet train critique_rl seed=1 stage2.combine=additive --out runs/additive;
    whet train bapo off_policy.kind=replay off_policy.staleness=4 --out runs/bapo
    """

    run_or_plan(
        method, settings, folder, dry_run=dry_run, overwrite=overwrite, accept_changes=accept_changes, plugins=plugins
    )


@app.command(cls=SettingsCommand)
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[num_steps=N]", help="More steps for the current phase, or the last one that trained."),
    ] = None,
    accept_changes: AcceptOption = False,
    plugins: PluginsOption = None,
) -> None:
    """Resume a run from its last whole checkpoint, to the same bits as if it had never stopped, or make it longer.

    Examples: whet resume runs/mine;  whet resume runs/bapo num_steps=400;  whet resume runs/mine stage2.num_steps=80
    """

    def work() -> None:
        with loading():
            from whet.run import launch

            progress = progress_bar(report_spec_of(launch.saved_config(folder)).phases)
            overrides = with_plugins(settings, plugins)
            begun = launch.resume(folder, progress, overrides=overrides, accept_changes=accept_changes)
        finish(begun, folder, progress)

    guarded(work, folder)


def run_or_plan(
    method: str,
    settings: list[str] | None,
    folder: Path,
    *,
    dry_run: bool,
    overwrite: bool,
    accept_changes: bool,
    plugins: list[Path] | None,
) -> None:
    """Run a method, or go on with the run in the folder, and show its results. With `dry_run`, print its plan."""

    def work() -> None:
        with loading():
            config = config_of(method, with_plugins(settings, plugins))
            from whet.run import launch

            if dry_run:
                _dry_run_of(config)
                return
            progress = progress_bar(report_spec_of(config).phases)
            begun = launch.start(config, folder, progress, overwrite=overwrite, accept_changes=accept_changes)
        finish(begun, folder, progress)

    guarded(work, folder)


def _dry_run_of(config: RunConfig) -> None:
    """Load and check everything, and print the plan of a run."""
    import tempfile

    from whet.config import check_all_read
    from whet.run.data import with_products
    from whet.run.plan import plan
    from whet.run.session import prepare
    from whet.run_folder.folder import RunFolder

    with tempfile.TemporaryDirectory() as nowhere:
        progress = progress_bar(report_spec_of(config).phases)
        config = with_products(config, progress)
        session = prepare(config, progress, RunFolder(Path(nowhere)))
        check_all_read(config)
        for line in plan(session):
            note(escape(line))
        session.close_services()
    out.print("all settings are in use; nothing was written")


def _kept_starts(folder: Path) -> list[str]:
    """Messages of phases that improved nothing: they explain why two rows of the table may be the same."""
    from whet.run_folder.logs import EVENTS, readable

    file = folder / EVENTS
    events = readable(file.read_bytes()) if file.is_file() else []
    return list(
        dict.fromkeys(
            str(event["message"]) for event in events if event.get("event") in ("start_kept", "none_succeeded")
        )
    )


def finish(begun: Session | dict[str, Any], folder: Path, progress: Any) -> None:
    """Finish a run, and show its results and the next commands.

    Args:
        begun: its session; for a finished run, its summary.
    """
    from whet.report.closing import closing_notes
    from whet.report.page import write_report
    from whet.report.read import read_report_spec
    from whet.report.table import summary_tables
    from whet.run import launch

    if isinstance(begun, dict):
        report_spec = read_report_spec(folder)
        summary, best = begun, _best_of_finished(folder)
        run = shlex.quote(str(folder))
        longer = f"`whet resume {run} num_steps=N` makes it longer, `whet train` with --overwrite starts it anew"
        again = "--overwrite makes its data anew" if report_spec.makes else longer
        note(escape(f"the run in {folder} is finished; {again}"))
    else:
        spec = begun.algorithm.spec
        report_spec = spec.report_of(begun.algorithm.config)
        try:
            begun, summary = launch.go(begun, folder, progress)
        finally:
            progress.close()
        policies = begun.loop.policies  # none, where all roles are endpoints and rules
        best = (spec.best_of(policies), spec) if policies else None
    for table in summary_tables(summary, report_spec, width=out.width):
        out.print(table)
    print_parts(summary["rows"], report_spec.title)
    for warning in closing_notes(summary, report_spec):
        if warning.level != "good":
            note(f"[bold]note:[/bold] {escape(warning.text)}")
    for text in _kept_starts(folder):
        note(f"[bold]note:[/bold] {escape(text)}")
    page = escape(str(write_report(folder)))
    out.print(f"{summary['seconds']:.0f} s without loading; open {page}", soft_wrap=True, highlight=False)
    if report_spec.makes:
        _show_data(folder / report_spec.makes, summary["rows"]["all"]["kept"])
    elif best is not None:
        _show_next(folder, *best)
    for text in summary.get("closing", ()):
        out.print(escape(text), soft_wrap=True, highlight=False)


def _best_of_finished(folder: Path) -> tuple[str, MethodSpec] | None:
    """The name of the best policy, and the method's spec. None: this whet cannot read the run's settings or
    checkpoints."""
    from whet.errors import WhetError
    from whet.run.load import load_run

    try:
        trained = load_run(folder)
    except WhetError:
        return None
    return trained.best, trained.spec


def _show_data(file: Path, count: int) -> None:
    """Print the file of the critiques, and a command that uses them."""
    out.print(f"{count:,} critiques in {escape(str(file))}", soft_wrap=True, highlight=False)
    if count:
        out.print("a critic's warm start takes them as they are:", highlight=False)
        out.print(escape(f"  {program()} train critique_rl warm_start.file={file}"), soft_wrap=True, highlight=False)


def _show_next(folder: Path, best: str, spec: MethodSpec) -> None:
    """Print the trained model's folder, and three commands that use it."""
    from whet.methods import METHODS
    from whet.methods.names import POLICY
    from whet.run_folder.files import BEST

    run = shlex.quote(f"./{folder}" if str(folder) in METHODS else str(folder))
    whet = program()
    export = (f"{whet} export {run} DIR", "a Hugging Face folder, with a model card")
    installing = "" if has_extra("serve") else "; first `make setup EXTRAS=serve` in whet's checkout"
    serve = (f"{whet} serve {run}", f"an OpenAI-compatible endpoint{installing}")
    if "act" in spec.skills.get(POLICY, {}):
        commands = [(f"{whet} eval {run} --samples 4", "measure it again, by samples"), serve, export]
    elif spec.skills:
        critiques = any("critique" in skills for skills in spec.skills.values())
        hint = "give it answers to critique" if critiques else "ask it"
        commands = [(f"{whet} chat {run}", hint), serve, export]
    else:
        commands = [
            (f"{whet} eval {run} --samples 4", "measure it again, by samples"),
            (f"{whet} report {run}", "write the page again"),
            export,
        ]
    link = folder / BEST
    out.print(f"trained: {escape(str(link if link.exists() else folder))} ({best})", soft_wrap=True, highlight=False)
    out.print("next:", highlight=False)
    width = max(len(command) for command, _ in commands)
    for command, says in commands:
        gap = " " * (width - len(command) + 3)
        out.print(f"  [bold]{escape(command)}[/bold]{gap}[dim]{escape(says)}[/dim]", soft_wrap=True, highlight=False)
