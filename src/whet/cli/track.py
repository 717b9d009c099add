"""`whet track`: sends a run's numbers, traces, table and alerts to trackers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import err, guarded, note, out, usage
from whet.errors import WhetError, text_of

if TYPE_CHECKING:
    from whet.tracking.follow import Feed

START_S, POLL_S = 60.0, 0.5
"""Seconds that a follower waits for a run to begin, and between two looks."""


@app.command()
def track(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or not.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="NAME[,NAME...]", help="tensorboard, trackio, wandb or mlflow; several by commas."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for their files. Default: RUN/tracking/NAME; trackio has its own."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="The tracker's project. Default: WANDB_PROJECT or TRACKIO_PROJECT, else whet.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--once",
            help="Go on until the run has finished, or send what is there and leave. --follow waits a minute for a run "
            "that is starting.",
        ),
    ] = False,
    traces: Annotated[int, typer.Option(min=0, max=1000, help="Episodes of a step that are sent, at most.")] = 4,
    again: Annotated[bool, typer.Option("--again", help="Send everything anew, though the tracker has it.")] = False,
) -> None:
    """Send a run to trackers: numbers by step, sample traces, alerts and the final table. The run is only read.

    What a tracker has is noted in RUN/tracking, so a second call sends only what is new.

    Examples: whet track runs/first --to tensorboard, then tensorboard --logdir runs;
    whet track runs/first --to trackio,wandb --project mine --follow
    """

    failed: list[Feed] = []

    def work() -> None:
        from whet.tracking.follow import Feed, TrackSettings
        from whet.tracking.follow import follow as send
        from whet.tracking.state import locked

        kinds = _kinds(to)
        if project is not None and not project.strip():
            raise usage("--project is empty: give it a name, or leave it out")
        if follow:
            _wait_for(run)
        feeds = []
        for kind in kinds:
            place = folder / kind if folder is not None and len(kinds) > 1 else folder
            feeds.append(Feed(run, kind, TrackSettings(out=place, project=project, num_traces=traces)))

        def report(feed: Feed, error: Exception) -> None:
            failed.append(feed)
            said = text_of(error) if isinstance(error, WhetError) else f"{type(error).__name__}: {text_of(error)}"
            note(f"[bold red]{feed.kind}:[/bold red] {escape(said)}", err)

        with ExitStack() as stack:
            for feed in feeds:
                stack.enter_context(locked(feed.file))
                feed.load(anew=again)
            send(feeds, lambda: not follow or (run / "summary.json").exists(), report=report)
        for feed in feeds:
            if feed not in failed:
                out.print(escape(feed.in_words()), soft_wrap=True, highlight=False)

    guarded(work, None)
    if failed:
        raise typer.Exit(1)


def _wait_for(run: Path) -> None:
    """Waits for a run that is about to begin: loading it takes seconds, and its folder comes after that."""
    from whet.report.read import check_is_run
    from whet.report.records import ReportError

    until = time.monotonic() + START_S
    is_said = False
    while time.monotonic() < until:
        try:
            check_is_run(run)
            return
        except ReportError:
            if not is_said:
                note(f"waiting for a run in {escape(str(run))}, {START_S:g} s at most")
                is_said = True
            time.sleep(POLL_S)


def _kinds(names: str) -> list[str]:
    """The trackers that `--to` names.

    Raises: ConfigError where it names none, or one that there is not.
    """
    from whet.tracking.protocol import KINDS

    kinds = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not kinds:
        raise usage(f"--to is empty: name a tracker, of {', '.join(KINDS)}")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise usage(f"there is no tracker {unknown[0][:60]!r}: choose of {', '.join(KINDS)}")
    return kinds
