"""`whet data`: makes data sets: critiques by AutoMathCritique."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.app import app
from whet.cli.console import SettingsArgument, SettingsCommand
from whet.cli.own_files import PluginsOption
from whet.cli.train import AcceptOption, DryRunOption, OverwriteOption, run_or_plan

MAKER = "auto_critique"
"""The method that makes critiques."""

data_app = typer.Typer(name="data", no_args_is_help=True, help="Make data: critiques without people.")
app.add_typer(data_app)


@data_app.callback()
def data() -> None:
    pass


@data_app.command(cls=SettingsCommand)
def critiques(
    settings: SettingsArgument = None,
    folder: Annotated[
        Path,
        typer.Option("--out", help="A folder. A run that was stopped there resumes, if its settings are the same."),
    ] = Path("runs/critique_data"),
    dry_run: DryRunOption = False,
    overwrite: OverwriteOption = False,
    accept_changes: AcceptOption = False,
    plugins: PluginsOption = None,
) -> None:
    """Make critiques: wrong solutions, critiques of them with hints, and filters (AutoMathCritique, 2411.16579).

    Writes critiques.jsonl, which a warm start takes (warm_start.file), the same as mathcritique.json and trl.jsonl,
    first_errors.json, dropped.jsonl, manifest.json and a page. `given=FILE` imports your answers: JSON lines of
    question, answer and, if known, correct, reference, error_step. `trajectories=[FILE]` imports episodes of agents.
    `whet config auto_critique` lists all settings.

    Examples: whet data critiques --out runs/critiques;  whet data critiques mine.yaml num_questions=500 --out runs/mine
    """

    run_or_plan(
        MAKER, settings, folder, dry_run=dry_run, overwrite=overwrite, accept_changes=accept_changes, plugins=plugins
    )
