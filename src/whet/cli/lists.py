"""`whet methods`, `whet list`, `whet config`: list what settings can name, and a method's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import whet
from whet.cli.app import app
from whet.cli.console import MethodArgument, SettingsArgument, SettingsCommand, config_of, guarded, out, usage
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own, with_plugins
from whet.methods import METHODS

if TYPE_CHECKING:
    from rich.table import Table

    from whet.registry import Registry

KINDS = {
    "methods": "whet train NAME",
    "graders": "data.grader: NAME",
    "rewards": "rewards: {NAME: WEIGHT}",
    "advantages": "advantage: NAME",
    "losses": "loss.kind: NAME",
    "prompts": "prompts: NAME",
    "environments": "whet env play NAME",
    "benchmarks": "whet eval RUN --benchmark NAME",
    "callbacks": "callbacks.use: [NAME]",
    "strategies": "whet eval RUN --strategy NAME",
}
"""The kinds of things that settings name, each with the place where it is named."""


@app.command()
def methods() -> None:
    """List what can be trained."""
    out.print(_table(METHODS))
    out.print("\n`whet config NAME` shows all settings of one. Numbers are arXiv ids.", highlight=False)


@app.command(name="list", cls=PluginsCommand)
def list_registered(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND ...]", help=f"Of {', '.join(KINDS)}. Default: all.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """List what settings can name, from methods to environments, and who registered it."""

    def work() -> None:
        if unknown := [kind for kind in kinds or () if kind not in KINDS]:
            raise usage(f"there is no list of {unknown[0]!r}; choose of: {', '.join(KINDS)}")
        load_own(plugins)
        for kind in kinds or KINDS:
            out.print(f"[bold]{kind}[/bold] ({KINDS[kind]})", highlight=False)
            out.print(_table(getattr(whet, kind.upper())))

    guarded(work, None)


@app.command(cls=SettingsCommand)
def config(method: MethodArgument, settings: SettingsArgument = None, plugins: PluginsOption = None) -> None:
    """Print the full config of a method: every key, its value and what it means."""

    def work() -> None:
        from whet.config import describe

        print(describe(config_of(method, with_plugins(settings, plugins))))

    guarded(work, None)


def _table(registry: Registry[Any]) -> Table:
    """A row for each entry: its name, its description, and the plug-in or package that registered it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    for entry in registry:
        origin = "" if entry.origin == "whet" else Path(entry.origin).name
        table.add_row(f"  [bold]{escape(entry.name)}[/bold]", escape(entry.says), escape(origin))
    if not list(registry):
        table.add_row("  none yet")
    return table
