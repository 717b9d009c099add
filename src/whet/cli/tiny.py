"""`whet tiny`: the tiny models that ship with whet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out, progress_bar
from whet.cli.own_files import PluginsOption, load_own

What = Literal["model", "agents"]

tiny = typer.Typer(no_args_is_help=True, help="The tiny models that ship with whet.")
app.add_typer(tiny, name="tiny")


@tiny.command()
def build(
    what: Annotated[
        What, typer.Argument(help="The model of the tiny world, or the agents of four environments.")
    ] = "model",
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("tiny-model"),
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer than the shipped model's give a weaker one.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of weights and data.")] = 0,
) -> None:
    """Make a model that ships with whet from scratch, with the same bits every time.

    `whet tiny build` takes six minutes on two cores. `whet tiny build agents` takes half an hour, needs
    the extra `envs` (make setup EXTRAS=envs), and saves two, fully cloned and stopped early, as OUT/cloned and
    OUT/early.
    """

    def work() -> None:
        from whet.run import agent_build, tiny_build

        with closing(progress_bar()) as progress:
            if what == "agents":
                agent_build.build_agents(folder, progress, num_steps=steps or agent_build.NUM_STEPS, seed=seed)
                settings = f"policy.path={folder / 'cloned'}"
            else:
                tiny_build.build(folder, progress, num_steps=steps or tiny_build.NUM_STEPS, seed=seed)
                settings = f"actor.path={folder} critic.path={folder}"
        out.print(escape(f"saved in {folder}; use it with {settings}"), soft_wrap=True)

    guarded(work, None)


@tiny.command(name="random")
def stand_in(
    text: Annotated[Path, typer.Argument(metavar="FILE", help="Any text or Parquet file; best your own data.")],
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("random-model"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the weights.")] = 0,
) -> None:
    """Make a small random model with a tokenizer trained on FILE, to try your data, prompts and settings in minutes.

    Example: whet tiny random gsm8k/train.jsonl --out models/random, then whet train grpo policy.path=models/random
    data.kind=file data.path=gsm8k/train.jsonl prompts=english
    """

    def work() -> None:
        from whet.run.tiny_build import build_stand_in

        count = build_stand_in(text, folder, seed=seed)
        out.print(escape(f"{count:,} random weights, saved in {folder}: policy.path={folder}"), soft_wrap=True)

    guarded(work, None)


@tiny.command(name="agent")
def random_agent(
    env: Annotated[str, typer.Argument(metavar="NAME[,NAME...]", help="Of the environments whose words it has.")],
    folder: Annotated[Path, typer.Option("--out", help="Where to save the model.")] = Path("tiny-agent"),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the weights.")] = 0,
    vocabulary: Annotated[
        int, typer.Option(min=500, max=100_000, help="Tokens, at most; several environments need more than 1500.")
    ] = 1500,
    start: Annotated[
        str | None, typer.Option(metavar="AGENT", help="A tiny agent whose weights it takes over; else random ones.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """Make a tiny agent of random weights that knows the words of your environment, from its expert's episodes.

    Example: whet tiny agent guess --plugins guess.py --out models/guess, then whet train agent_clone
    data.env=guess policy.path=models/guess format=plain --plugins guess.py
    """

    def work() -> None:
        from whet.run.agent_build import build_agent

        load_own(plugins)
        names = [name.strip() for name in env.split(",")]
        count = build_agent(names, folder, seed=seed, vocabulary=vocabulary, start=start)
        what = "random weights" if start is None else f"weights, taken over from {start}"
        out.print(escape(f"{count:,} {what}, saved in {folder}: policy.path={folder}"), soft_wrap=True)

    guarded(work, None)
