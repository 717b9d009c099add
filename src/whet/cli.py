"""The command line: parse, validate, hand over. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

import whet
import whet.environment  # before torch
from whet.errors import WhetError, is_out_of_memory
from whet.methods import METHODS
from whet.plugins import culprit, said

if TYPE_CHECKING:
    from rich.table import Table

    from whet.config.runs import RunConfig
    from whet.registry import Registry
    from whet.runs.sheet import Sheet

app = typer.Typer(
    name="whet",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train the language models that make other language models better.\n\n"
    "Start here: [bold]whet train critique_rl --out runs/first[/bold] (minutes on a laptop, nothing to download), "
    "then [bold]whet report runs/first[/bold].",
)
tiny = typer.Typer(no_args_is_help=True, help="The tiny model that ships with whet.")
app.add_typer(tiny, name="tiny")

for _name in ("stdout", "stderr"):
    if getattr(sys, _name) is None:  # closed, as for some daemons
        setattr(sys, _name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
    elif hasattr(getattr(sys, _name), "reconfigure"):
        getattr(sys, _name).reconfigure(errors="replace")  # a terminal that knows no arrows still gets its table

out = Console(width=None if sys.stdout.isatty() else 100)
err = Console(stderr=True)
T = TypeVar("T")
KINDS = {
    "methods": "whet train NAME",
    "graders": "data.grader: NAME",
    "rewards": "rewards: {NAME: WEIGHT}",
    "advantages": "advantage: NAME",
    "dialects": "dialect: NAME",
}
"""What settings name, and where."""

METHODS_HELP = f"One of: {', '.join(METHODS.names())}; or a plug-in's. `whet methods` says what they are."

MethodArgument = Annotated[str, typer.Argument(metavar="METHOD", help=METHODS_HELP)]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE.yaml] [key.sub=value ...]",
        help="A YAML file with settings, then single settings; later ones win. `whet config METHOD` lists all keys.",
    ),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-changes",
        help="Go on though an input, the number of threads or a log is not what it was; the run's events say so.",
    ),
]


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"whet {version('whet')}")
        raise typer.Exit


@app.callback()
def start_up(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def train(
    method: MethodArgument,
    settings: SettingsArgument = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Run folder. A run that is there goes on, if its settings are the same.")
    ] = Path("runs/run"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Load and check everything, show the plan, write nothing.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete the run in --out first.")] = False,
    accept_changes: AcceptOption = False,
) -> None:
    """Run a method from start to table and report.

    Examples: whet train critique_rl seed=1 stage2.combine=additive --out runs/additive;
    whet train bapo off_policy.kind=replay off_policy.staleness=4 --out runs/bapo
    """

    def work() -> None:
        config = _config(method, settings or [])
        from whet.runs import opening

        if dry_run:
            _dry_run(config)
            return
        progress = _progress(_sheet(config).phases)
        begun = opening.start(config, folder, progress, overwrite=overwrite, accept_changes=accept_changes)
        _finish(begun, folder, progress)

    _guarded(work, folder)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")], accept_changes: AcceptOption = False
) -> None:
    """Go on with a run from its last whole checkpoint, to the same bits as if it had never stopped."""

    def work() -> None:
        from whet.report.read import read_sheet
        from whet.runs import opening

        progress = _progress(read_sheet(folder).phases)
        _finish(opening.resume(folder, progress, accept_changes=accept_changes), folder, progress)

    _guarded(work, folder)


@app.command(name="eval")
def evaluate(
    target: Annotated[
        str, typer.Argument(metavar="DIR|METHOD", help="A run folder; or a method, whose settings name the models.")
    ],
    settings: SettingsArgument = None,
    critic: Annotated[
        list[str] | None,
        typer.Option(
            "--critic",
            help="critic_sft, critic_stage1, critic_stage2; in the tiny world also oracle, judge, alarmist, "
            "empty, false. Of a run of one policy: best, last. May be repeated. Default: all of the run's.",
        ),
    ] = None,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Whose problems.")] = "test",
    samples: Annotated[
        int, typer.Option(min=1, max=10_000, help="Sampled chains a problem, with majority votes. 1: one greedy chain.")
    ] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="With --samples above 1. Default: 0.7 for critics; for a policy alone the run's own."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, max=1000, help="Rounds of critique and refinement.")] = None,
    oracle_verifier: Annotated[
        bool, typer.Option("--oracle-verifier", help="Keep answers that the verifier finds right.")
    ] = False,
) -> None:
    """Measure critics (answer, critique, refine, and what came of it), or a policy that answers alone.

    A run's measurements, with the texts behind them, are kept in DIR/eval.

    Examples: whet eval runs/first --samples 8;  whet eval runs/first --critic oracle;
    whet eval critique_rl data.kind=file data.path=test.jsonl dialect=english actor.path=A critic.path=B
    """

    def work() -> None:
        from whet.report.table import summary_table
        from whet.runs.evaluate import evaluate as measure
        from whet.runs.evaluate import target_of
        from whet.runs.method import EvalSettings

        options = [f"evaluation.num_rounds={rounds}"] if rounds is not None else []
        options += ["evaluation.oracle_verifier=true"] if oracle_verifier else []
        file, given = _split(settings or [])
        config, run = target_of(target, file, given)
        if options and not hasattr(getattr(config, "evaluation", None), "num_rounds"):
            raise _usage("--rounds and --oracle-verifier are of critics; this is a policy that answers alone")
        config, run = target_of(target, file, [*given, *options])

        own = tuple(s for s in settings or () if run is not None)
        progress = _progress()
        found, session = measure(
            config, run, EvalSettings(tuple(critic or ()), split, samples, temperature, own), progress
        )
        progress.close()
        out.print(summary_table({"rows": found}, session.method.sheet, several=samples > 1 or bool(options)))
        _print_samples(found)
        if run is not None:
            out.print(f"kept in {escape(str(run / 'eval'))}", soft_wrap=True, highlight=False)

    _guarded(work, None)


@app.command()
def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder, finished or not.")]) -> None:
    """Write DIR/report.html: one file that opens from disk, with curves and texts to look at."""

    def work() -> None:
        from whet.report.page import write_report

        out.print(f"open {escape(str(write_report(folder)))}", soft_wrap=True, highlight=False)

    _guarded(work, None)


@app.command()
def methods() -> None:
    """List what can be trained."""
    out.print(_listed(METHODS))
    out.print("\n`whet config NAME` shows all settings of one. Numbers are arXiv ids.", highlight=False)


@app.command(name="list")
def list_registered(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND ...]", help=f"Of {', '.join(KINDS)}. Default: all.")
    ] = None,
    plugins: Annotated[
        list[Path] | None, typer.Option("--plugins", help="A Python file of yours, to list what it registers too.")
    ] = None,
) -> None:
    """List what settings can name: methods, graders, reward terms, advantages, dialects; and who registered it."""

    def work() -> None:
        from whet.plugins import load_entry_points, load_plugins

        if unknown := [kind for kind in kinds or () if kind not in KINDS]:
            raise _usage(f"there is no list of {unknown[0]!r}; choose of: {', '.join(KINDS)}")
        load_entry_points()
        load_plugins(plugins or ())
        for kind in kinds or KINDS:
            out.print(f"[bold]{kind}[/bold] ({KINDS[kind]})", highlight=False)
            out.print(_listed(getattr(whet, kind.upper())))

    _guarded(work, None)


@app.command()
def config(method: MethodArgument, settings: SettingsArgument = None) -> None:
    """Print the full config of a method: every key, its value and what it means."""

    def work() -> None:
        from whet.config import describe

        print(describe(_config(method, settings or [])))

    _guarded(work, None)


@tiny.command()
def build(
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("tiny-model"),
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer than the shipped model's give a weaker one.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of weights and data.")] = 0,
) -> None:
    """Pretrain the tiny model from scratch (six minutes on two cores; the same bits every time)."""

    def work() -> None:
        from whet.runs import tiny_build

        progress = _progress()
        tiny_build.build(folder, progress, num_steps=steps or tiny_build.NUM_STEPS, seed=seed)
        progress.close()
        out.print(escape(f"saved in {folder}; use it with actor.path={folder} critic.path={folder}"), soft_wrap=True)

    _guarded(work, None)


def main() -> None:
    app()


# --- between the commands and the library ---------------------------------------------------------------------------


def _config(name: str, settings: list[str]) -> RunConfig:
    from whet.runs.registry import config_of

    return config_of(name, *_split(settings))


def _listed(registry: Registry[Any]) -> Table:
    """Names, what they are, and whose, where they are not ours."""
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    for entry in registry:
        whose = "" if entry.origin == "whet" else Path(entry.origin).name
        table.add_row(f"  [bold]{escape(entry.name)}[/bold]", escape(entry.says), escape(whose))
    if not list(registry):
        table.add_row("  none yet")
    return table


def _split(settings: list[str]) -> tuple[Path | None, list[str]]:
    """The settings file, if there is one, and the single settings."""
    files = [s for s in settings if "=" not in s]
    if len(files) > 1:
        raise _usage(f"give one settings file at most, not {' and '.join(files)}; single settings are key.sub=value")
    return Path(files[0]) if files else None, [s for s in settings if "=" in s]


def _dry_run(config: RunConfig) -> None:
    import tempfile

    from whet.config import check_all_read
    from whet.runs.folder import RunFolder
    from whet.runs.session import plan, prepare

    with tempfile.TemporaryDirectory() as nowhere:
        session = prepare(config, _progress(_sheet(config).phases), RunFolder(Path(nowhere)))
        check_all_read(config)
        for line in plan(session):
            out.print(escape(line), highlight=False, soft_wrap=True)
        session.grader.close()
    out.print("all settings are in use; nothing was written")


def _finish(begun: Any, folder: Path, progress: Any) -> None:
    from whet.report.page import write_report
    from whet.report.read import read_sheet
    from whet.report.table import summary_table

    if isinstance(begun, dict):
        out.print(escape(f"the run in {folder} is finished; --overwrite starts it anew"), soft_wrap=True)
        summary = begun
    else:
        try:
            summary = begun.go()
        finally:
            progress.close()
    out.print(summary_table(summary, read_sheet(folder)))
    out.print(
        f"{summary['seconds']:.0f} s in all; open {escape(str(write_report(folder)))}", soft_wrap=True, highlight=False
    )


def _print_samples(found: Mapping[str, Mapping[str, float | None]]) -> None:
    names = ("majority_answer", "majority_refine", "pass_answer", "pass_refine", "average_answer", "average_refine")
    for critic, metrics in found.items():
        shown = [f"{name} {100 * value:.1f} %" for name in names if (value := metrics.get(name)) is not None]
        if shown:
            out.print(f"{critic}: {', '.join(shown)}", highlight=False)


def _sheet(config: RunConfig) -> Sheet:
    """How the runs of a config are shown."""
    from whet.runs.registry import preset_of

    return preset_of(config.method).method.sheet


def _progress(titles: Mapping[str, str] | None = None) -> Any:
    """
    Args:
        titles: what the phases are called, where their names do not say it.
    """
    from whet.report.progress import RichProgress

    return RichProgress(out, titles)


def _usage(message: str) -> Exception:
    from whet.config import ConfigError

    return ConfigError(message)


def _guarded(work: Callable[[], None], folder: Path | None) -> None:
    """One sentence and an exit code for what users can cause; our own mistakes keep their traceback."""
    kept = f"every whole checkpoint in {str(folder)[:200]} is kept" if folder is not None else "nothing was overwritten"
    try:
        work()
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except WhetError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:  # `whet config ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f": {str(error.filename)[:200]}" if error.filename else ""
        _fail(f"{error.strerror or error}{where}; {kept}", 1)
    except Exception as error:
        if is_out_of_memory(error):
            _fail("out of memory: lower learning.token_budget, engine.max_rows, engine.prefill_tokens or "
                  f"max_new_tokens, or set gradient_checkpointing = true; {kept}", 1)  # fmt: skip
        traceback.print_exc()
        if place := culprit(error):
            _fail(f"the plug-in {place}: {said(error)}; the lines above lead there; {kept}", 1)
        _fail(f"this is a mistake in whet, not in what was asked of it: please report the lines above; {kept}", 70)


def _fail(message: str, code: int) -> None:
    err.print(f"[bold red]whet:[/bold red] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
