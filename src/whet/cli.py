"""The command line: parse, validate, hand over. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

# Torch's threads otherwise spin while they wait, which costs a factor of ten when anything else runs on the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with this only

import typer
from rich.console import Console
from rich.markup import escape

from whet.errors import WhetError, is_out_of_memory
from whet.recipes.names import METHODS, RECIPES

if TYPE_CHECKING:
    from whet.recipes.origin import AnyConfig

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

RECIPES_HELP = f"One of: {', '.join(RECIPES)}. `whet recipes` says what they are."

RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help=RECIPES_HELP)]
SettingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE.yaml] [key.sub=value ...]",
        help="A YAML file with settings, then single settings; later ones win. `whet config RECIPE` lists all keys.",
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
    recipe: RecipeArgument,
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
    """Run a recipe from start to table and report.

    Examples: whet train critique_rl seed=1 stage2.combine=additive --out runs/additive;
    whet train bapo off_policy.kind=replay off_policy.staleness=4 --out runs/bapo
    """

    def work() -> None:
        config = _config(recipe, settings or [])
        from whet.recipes import opening

        if dry_run:
            _dry_run(config)
            return
        progress = _progress()
        begun = opening.start(config, folder, progress, overwrite=overwrite, accept_changes=accept_changes)
        _finish(begun, folder, progress)

    _guarded(work, folder)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")], accept_changes: AcceptOption = False
) -> None:
    """Go on with a run from its last whole checkpoint, to the same bits as if it had never stopped."""

    def work() -> None:
        from whet.recipes import opening

        progress = _progress()
        _finish(opening.resume(folder, progress, accept_changes=accept_changes), folder, progress)

    _guarded(work, folder)


@app.command(name="eval")
def evaluate(
    target: Annotated[
        str, typer.Argument(metavar="DIR|RECIPE", help="A run folder; or a recipe, whose settings name the models.")
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
        options = [f"evaluation.num_rounds={rounds}"] if rounds is not None else []
        options += ["evaluation.oracle_verifier=true"] if oracle_verifier else []
        config, run = _eval_target(target, list(settings or []))
        if options and config.recipe != "critique_rl":
            raise _usage("--rounds and --oracle-verifier are of critics; this is a policy that answers alone")
        config, run = _eval_target(target, [*(settings or []), *options])
        from whet.recipes.critique_rl_config import CritiqueRLConfig
        from whet.recipes.evaluate import EvalSettings, evaluate_critics, evaluate_solver
        from whet.report.table import summary_table

        own = tuple(s for s in settings or () if run is not None)
        chosen = EvalSettings(tuple(critic or ()), split, samples, temperature, own)
        progress = _progress()
        several = False
        if isinstance(config, CritiqueRLConfig):
            found = evaluate_critics(config, run, chosen, progress)
            protocol = config.evaluation
            several = samples > 1 or protocol.num_rounds > 1 or protocol.oracle_verifier
        else:
            found = evaluate_solver(config, run, chosen, progress)
        progress.close()
        out.print(summary_table({"rows": found}, several=several))
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
def recipes() -> None:
    """List what can be trained."""
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    for name, text in RECIPES.items():
        table.add_row(f"[bold]{name}[/bold]", text)
    out.print(table)
    out.print("\n`whet config NAME` shows all settings of one. Numbers are arXiv ids.", highlight=False)


@app.command()
def config(recipe: RecipeArgument, settings: SettingsArgument = None) -> None:
    """Print the full config of a recipe: every key, its value and what it means."""

    def work() -> None:
        from whet.config import describe

        print(describe(_config(recipe, settings or [])))

    _guarded(work, None)


@tiny.command()
def build(
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("tiny-model"),
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer than the shipped model's give a weaker one.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of weights and data.")] = 0,
) -> None:
    """Pretrain the tiny model from scratch (six minutes on two cores; the same bits every time)."""

    def work() -> None:
        from whet.recipes import tiny_build

        progress = _progress()
        tiny_build.build(folder, progress, num_steps=steps or tiny_build.NUM_STEPS, seed=seed)
        progress.close()
        out.print(escape(f"saved in {folder}; use it with actor.path={folder} critic.path={folder}"), soft_wrap=True)

    _guarded(work, None)


def main() -> None:
    app()


# --- between the commands and the library ---------------------------------------------------------------------------


def _config(recipe: str, settings: list[str]) -> AnyConfig:
    from whet.config import load
    from whet.recipes.critique_rl_config import CritiqueRLConfig
    from whet.recipes.solve_config import PRESETS, SolveConfig

    if recipe not in RECIPES:
        raise _usage(f"there is no recipe {recipe!r}; choose of: {', '.join(RECIPES)}")
    files = [s for s in settings if "=" not in s]
    if len(files) > 1:
        raise _usage(f"give one settings file at most, not {' and '.join(files)}; single settings are key.sub=value")
    file, single = Path(files[0]) if files else None, [s for s in settings if "=" in s]
    if recipe in METHODS:
        return load(SolveConfig, file, single, base=PRESETS[recipe])
    return load(CritiqueRLConfig, file, single)


def _eval_target(target: str, options: list[str]) -> tuple[AnyConfig, Path | None]:
    if target in RECIPES:
        return _config(target, options), None
    run = Path(target)
    if not (run / "config.yaml").exists():
        raise _usage(f"{target!r} is neither a run folder nor a recipe ({', '.join(RECIPES)})")
    from whet.recipes.opening import saved_config

    return saved_config(run, options), run


def _dry_run(config: AnyConfig) -> None:
    import tempfile

    from whet.config import check_all_read
    from whet.recipes.session import plan, prepare
    from whet.training.folder import RunFolder

    with tempfile.TemporaryDirectory() as nowhere:
        session = prepare(config, _progress(), RunFolder(Path(nowhere)))
        check_all_read(config)
        for line in plan(session):
            out.print(escape(line), highlight=False, soft_wrap=True)
        session.grader.close()
    out.print("all settings are in use; nothing was written")


def _finish(begun: Any, folder: Path, progress: Any) -> None:
    from whet.report.page import write_report
    from whet.report.table import summary_table

    if isinstance(begun, dict):
        out.print(escape(f"the run in {folder} is finished; --overwrite starts it anew"), soft_wrap=True)
        summary = begun
    else:
        try:
            summary = begun.go()
        finally:
            progress.close()
    out.print(summary_table(summary))
    out.print(
        f"{summary['seconds']:.0f} s in all; open {escape(str(write_report(folder)))}", soft_wrap=True, highlight=False
    )


def _print_samples(found: dict[str, dict[str, float | None]]) -> None:
    names = ("majority_answer", "majority_refine", "pass_answer", "pass_refine", "average_answer", "average_refine")
    for critic, metrics in found.items():
        shown = [f"{name} {100 * value:.1f} %" for name in names if (value := metrics.get(name)) is not None]
        if shown:
            out.print(f"{critic}: {', '.join(shown)}", highlight=False)


def _progress() -> Any:
    from whet.report.progress import RichProgress

    return RichProgress(out)


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
        _fail(f"this is a mistake in whet, not in what was asked of it: please report the lines above; {kept}", 70)


def _fail(message: str, code: int) -> None:
    err.print(f"[bold red]whet:[/bold red] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
