"""`whet show`: a page of recorded conversations, from files of other libraries too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out


@app.command()
def show(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE ...", help="JSON or JSON lines, of one kind or several.")
    ],
    to: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("episodes.html"),
    limit: Annotated[int, typer.Option(min=1, help="The first so many records of each file.")] = 10_000,
) -> None:
    """Make a page of recorded conversations, turn by turn, which opens from disk.

    A file holds traces of verifiers (`traces.jsonl`), trajectories and logs of AgentGym, or chats: `messages`, or
    `prompt` and `completion`, with `reward` where there is one. A run's own page is made by `whet report RUN`.
    `whet env show` replays trajectories, and draws each turn.

    Example: whet show outputs/my-env/traces.jsonl --out episodes.html
    """

    def work() -> None:
        from whet.methods.report_specs import load_report
        from whet.report.page import write_episodes
        from whet.trajectories.recorded import recorded_rows

        rows = [row for file in files for row in recorded_rows(file, limit=limit)]
        page = write_episodes(to, rows, load_report("episodes"))
        out.print(f"{len(rows):,} episodes in {escape(str(page))}", soft_wrap=True, highlight=False)

    guarded(work, None)
