"""`whet serve`: a run's policies, or the model of a folder, behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import DraftOption, ProductsOption, guarded, out, usage
from whet.cli.listening import check_secret
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own
from whet.distribution import how_to_install


@app.command(cls=PluginsCommand)
def serve(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or a model's: config.json, weights and tokenizer.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; the default is this machine's own.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8000,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Policies to serve; may be repeated. Default: the best one, and its partner."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="WHET_API_KEY",
            show_envvar=True,
            help="Clients send it as `Authorization: Bearer KEY`; /health needs none. Give it in the environment: "
            "other users of the machine see a command's options. Default: no key is needed.",
        ),
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Serve beyond this machine without a key: to whoever reaches it.")
    ] = False,
    max_body_bytes: Annotated[
        int, typer.Option(min=1000, help="Bytes of a request's body; a longer one is refused with 413.")
    ] = 2_000_000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None,
        typer.Option(help="Number type of a model folder. Default: float32. A run has its own."),
    ] = None,
    products: ProductsOption = "float32",
    draft: DraftOption = 0,
    plugins: PluginsOption = None,
) -> None:
    """Serve a run's policies, or any model folder, at /v1/chat/completions and /v1/completions, for OpenAI's client.

    A run's model `ACTOR+CRITIC` writes an answer, a critique of it, and the refinement.

    Examples: whet serve runs/first;  whet serve runs/first --policy actor --port 8001;  whet serve models/smollm2
    """

    def work() -> None:
        check_secret(api_key, "key", "WHET_API_KEY", host, is_open=no_key)
        from whet.run.load import load_run

        try:
            from whet.serve.app import serve as run_server
            from whet.serve.models import is_model_folder, served_folder, served_policies
        except ModuleNotFoundError as error:
            if error.name in ("fastapi", "uvicorn", "starlette"):
                raise usage(f"whet serve needs fastapi and uvicorn: {how_to_install('serve')}") from error
            raise
        load_own(plugins)
        with out.status("loading"):
            if is_model_folder(run):
                served = served_folder(
                    run, policies or (), device=device, dtype=dtype or "float32", products=products, draft=draft
                )
            elif not (run / "config.yaml").exists():
                raise usage(
                    f"{run} holds neither a run (config.yaml) nor a model (config.json): give the folder of one"
                )
            elif dtype is not None:
                raise usage("--dtype goes with a model folder: a run's policies have the number type of its settings")
            else:
                loaded = replace(load_run(run), products=products, draft=draft)
                served = served_policies(loaded, policies or (), device=device)

        def started(address: str) -> None:
            out.print(f"serving at {address}/v1  (Ctrl-C stops)", soft_wrap=True, highlight=False)
            for name in served.names:
                out.print(f"  {escape(name)}", highlight=False)

        run_server(served, host, port, started, max_body_bytes=max_body_bytes, api_key=api_key)
        out.print("stopped")

    guarded(work, None)
