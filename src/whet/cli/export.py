"""`whet export`: a trained policy as a separate folder, as a GGUF file, or on a Hugging Face hub."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out, usage
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="One of the run's policies. Default: the best one, by its method's rule.")
]


@app.command(cls=PluginsCommand)
def export(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder. To push alone: a folder that was exported before.")
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A new folder, or an empty one. Without it, only the hub gets the files."),
    ] = None,
    policy: PolicyOption = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="For a policy with LoRA: whole weights, with the adapter merged into them.")
    ] = False,
    to: Annotated[
        Literal["huggingface", "gguf"],
        typer.Option(help="gguf: one file for llama.cpp, in float32. For Llama and Qwen2 shapes with byte-level BPE."),
    ] = "huggingface",
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Upload it as the model OWNER/NAME, or NAME of your own. The hub is HF_ENDPOINT's; the token is "
            "HF_TOKEN's, or that of `hf auth login`.",
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let everyone see the new model. Default: only you do.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="The hub has the model already: replace its files by one commit.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be uploaded, and send nothing.")] = False,
    plugins: PluginsOption = None,
) -> None:
    """Write a policy of a run as a Hugging Face folder or a GGUF file, with a model card; or push it to a hub.

    Examples: whet export runs/first models/mine;  whet export runs/first models/mine --to gguf;
    whet export runs/first --push-to-hub me/critic --dry-run
    """

    def work() -> None:
        from whet.api.export import export as export_folder

        if push_to_hub is None:
            if public or update or dry_run:
                raise usage("--public, --update and --dry-run go with --push-to-hub NAME")
            if folder is None:
                raise usage("where to is missing: give a new folder, or --push-to-hub NAME")
            load_own(plugins)
            exported = export_folder(run, folder, policy, merge=merge, to=to)
            _say_where(exported)
            _say_licence(exported)
            return
        if public and update:
            raise usage("--public is of a new model: an update leaves it as visible as it is")
        from whet.api.hub_push import check_name, check_ready, is_exported

        check_name(push_to_hub, update=update)  # before anything is written
        if not dry_run:
            check_ready()
        load_own(plugins)
        if is_exported(run) and folder is None:
            if policy is not None or merge or to != "huggingface":
                raise usage(f"{run} was exported already: --policy, --merge and --to go with a run")
            _push(run, push_to_hub, public=public, update=update, dry_run=dry_run)
            return
        with _place(folder) as place:
            exported = export_folder(run, place, policy, merge=merge, to=to)
            if folder is not None:
                _say_where(exported)
            _say_licence(exported)
            _push(place, push_to_hub, public=public, update=update, dry_run=dry_run)

    guarded(work, None)


def _say_where(folder: Path) -> None:
    from whet.api.export import CARD

    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    _say(f"{folder}: {size / 1e6:,.1f} MB, with {folder / CARD}")


def _say_licence(folder: Path) -> None:
    from whet.models.provenance import licence_in_words, source_of

    _say(licence_in_words(source_of(str(folder)).record))


def _push(folder: Path, name: str, *, public: bool, update: bool, dry_run: bool) -> None:
    from whet.api.hub_push import plan_push, push_to_hub

    upload = plan_push(folder, name, private=not public, update=update)
    for path, size in upload.files:
        _say(f"  {size:>13,}  {path}")
    _say(f"{'would upload' if dry_run else 'uploading'} {upload.in_words()}")
    if dry_run:
        _say(f"nothing was sent; {'a token is there' if upload.has_token else 'there is no token: hf auth login'}")
        if upload.is_offline:
            _say("HF_HUB_OFFLINE is set: unset it to push")
        return
    _say(f"pushed: {push_to_hub(folder, name, private=not public, update=update)}")


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """The folder to export to: the user's, or one that is deleted after the push."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="whet-export-") as temporary:
        yield Path(temporary) / "model"


def _say(text: str) -> None:
    out.print(escape(text), soft_wrap=True, highlight=False)
