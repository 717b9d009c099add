"""The application: its name, its help, and the options before a command."""

from __future__ import annotations

from typing import Annotated

import typer

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


def _show_version(show: bool) -> None:
    if show:
        from whet.distribution import version as installed_version

        print(f"whet {installed_version()}")
        raise typer.Exit


@app.callback()
def start_up(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
