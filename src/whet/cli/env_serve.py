"""`whet env serve`: all environments behind one port, for whet's client, AgentGym's clients and OpenEnv's."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from whet.cli.console import guarded, out, usage
from whet.cli.envs import env_app
from whet.cli.listening import check_secret
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own
from whet.distribution import how_to_install

PACKAGES = ("starlette", "uvicorn", "websockets")
"""What the server needs beyond whet's own dependencies."""


@env_app.command(cls=PluginsCommand)
def serve(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="Environments to serve; `whet env list` has them. Default: all."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; the default is this machine's own.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8001,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="WHET_ENV_TOKEN",
            show_envvar=True,
            help="Clients send it as `Authorization: Bearer TOKEN`; /v1/health needs none. Give it in the environment: "
            "other users of the machine see a command's options.",
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Serve beyond this machine without a token: to whoever reaches it.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME.key=value", help="A setting of an environment, such as textcraft.recipes=FOLDER."
        ),
    ] = None,
    max_sessions: Annotated[
        int, typer.Option(min=1, help="Environments at one time, over all wires; one more is refused with 503.")
    ] = 256,
    lease_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a call after which a session is closed.")
    ] = 600.0,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, help="Seconds of one reset or step; a later answer closes the session.")
    ] = 60.0,
    max_body_bytes: Annotated[
        int, typer.Option(min=1000, help="Bytes of a request's body; a longer one is refused with 413.")
    ] = 2_000_000,
    plugins: PluginsOption = None,
) -> None:
    """Serve environments to other processes and machines, at one address.

    It speaks to three kinds of clients: whet's at /v1, AgentGym's at /agentgym/NAME, OpenEnv's at /openenv/NAME.

    Examples: whet env serve;  whet env serve textcraft maze --port 9000 --max-sessions 64
    """

    def work() -> None:
        check_secret(token, "token", "WHET_ENV_TOKEN", host, is_open=no_token)
        try:
            from whet.envs.server.app import serve as run_server
            from whet.envs.server.served import served_environments
            from whet.envs.server.sessions import Sessions
        except ModuleNotFoundError as error:
            if error.name in PACKAGES:
                raise usage(f"whet env serve needs {', '.join(PACKAGES)}: {how_to_install('serve')}") from error
            raise
        load_own(plugins)
        served = served_environments(names or (), _by_environment(settings))
        sessions = Sessions(capacity=max_sessions, lease_s=lease_s, timeout_s=timeout_s)

        def started(address: str) -> None:
            out.print(f"serving {escape(', '.join(served))} at {address}  (Ctrl-C stops)", soft_wrap=True)
            for client, path in (("whet", ""), ("AgentGym", "/agentgym/NAME"), ("OpenEnv", "/openenv/NAME")):
                out.print(f"  {client + ':':<10}{address}{path}", soft_wrap=True, highlight=False)

        run_server(served, sessions, host, port, started, max_body_bytes=max_body_bytes, token=token)
        out.print("stopped")

    guarded(work, None)


def _by_environment(arguments: list[str] | None) -> dict[str, dict[str, Any]]:
    """Settings such as `textcraft.recipes=FOLDER`, by environment."""
    from whet.config.yaml_text import NotYaml, load

    settings: dict[str, dict[str, Any]] = {}
    for argument in arguments or ():
        path, equals, value = argument.partition("=")
        name, dot, key = path.partition(".")
        if not (equals and dot and name and key):
            raise usage(f"{argument!r} is no setting: write NAME.key=value, such as textcraft.recipes=FOLDER")
        try:
            settings.setdefault(name, {})[key] = load(value)
        except NotYaml as error:
            raise usage(f"{argument!r} is not valid YAML{error}: close its brackets and quotes") from error
    return settings
