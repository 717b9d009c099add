"""`whet export`: a trained policy as a separate folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="One of the run's policies. Default: the best one, by its method's rule.")
]


@app.command(cls=PluginsCommand)
def export(
    run: RunArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    policy: PolicyOption = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="For a policy with LoRA: whole weights, with the adapter merged into them.")
    ] = False,
    plugins: PluginsOption = None,
) -> None:
    """Write a policy of a run as a Hugging Face folder: weights, tokenizer, configs and a model card."""

    def work() -> None:
        from whet.api.export import CARD
        from whet.api.export import export as write
        from whet.models.provenance import licence_in_words, source_of

        load_own(plugins)
        exported = write(run, folder, policy, merge=merge)
        size = sum(file.stat().st_size for file in exported.rglob("*") if file.is_file())
        words = licence_in_words(source_of(str(exported)).record)
        out.print(escape(f"{exported}: {size / 1e6:,.1f} MB, with {exported / CARD}"), soft_wrap=True, highlight=False)
        out.print(escape(words), soft_wrap=True, highlight=False)

    guarded(work, None)
