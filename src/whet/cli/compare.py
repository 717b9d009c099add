"""`whet compare`: several runs beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR DIR ...", help="Run folders, finished or not.")],
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a page too, with the curves over one another.")
    ] = None,
) -> None:
    """Compare runs: what their settings differ in, their results, and differences paired by seed.

    Runs whose settings are the same but for the seed are one arm. Its numbers are means over seeds, with 95 % t
    intervals. The first run's arm is what the others are compared with. `whet report DIR DIR` writes the page alone.

    Example: whet compare runs/grpo0 runs/grpo1 runs/rloo0 runs/rloo1 --out comparison.html
    """

    def work() -> None:
        from whet.report.comparison import compare_runs
        from whet.report.comparison_tables import print_comparison

        comparison = compare_runs(folders)
        print_comparison(comparison, out)
        if to is not None:
            from whet.report.comparison_page import write_comparison

            out.print(f"open {escape(str(write_comparison(comparison, to)))}", soft_wrap=True, highlight=False)

    guarded(work, None)
