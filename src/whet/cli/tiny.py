"""`whet tiny`: the tiny model that ships with whet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out, progress_bar

tiny = typer.Typer(no_args_is_help=True, help="The tiny model that ships with whet.")
app.add_typer(tiny, name="tiny")


@tiny.command()
def build(
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("tiny-model"),
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer than the shipped model's give a weaker one.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of weights and data.")] = 0,
) -> None:
    """Pretrain the tiny model from scratch (six minutes on two cores; the same bits every time)."""

    def work() -> None:
        from whet.runs import tiny_build

        with closing(progress_bar()) as progress:
            tiny_build.build(folder, progress, num_steps=steps or tiny_build.NUM_STEPS, seed=seed)
        out.print(escape(f"saved in {folder}; use it with actor.path={folder} critic.path={folder}"), soft_wrap=True)

    guarded(work, None)


@tiny.command(name="random")
def stand_in(
    text: Annotated[Path, typer.Argument(metavar="FILE", help="Any text or Parquet file; best your own data.")],
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("random-model"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the weights.")] = 0,
) -> None:
    """Make a small random model with a tokenizer trained on FILE: to try your data, wording and settings in minutes.

    Example: whet tiny random gsm8k/train.jsonl --out models/random, then whet train grpo policy.path=models/random
    data.kind=file data.path=gsm8k/train.jsonl dialect=english
    """

    def work() -> None:
        from whet.runs.tiny_build import build_stand_in

        count = build_stand_in(text, folder, seed=seed)
        out.print(escape(f"{count:,} random weights, saved in {folder}: policy.path={folder}"), soft_wrap=True)

    guarded(work, None)
