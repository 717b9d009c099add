"""`whet env check`: does an environment, here or behind an address, keep the protocol?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from whet.cli.console import guarded, out, usage
from whet.cli.envs import env_app, environment_named, made, settings_of
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

if TYPE_CHECKING:
    from whet.envs import EnvironmentInfo


@env_app.command(cls=PluginsCommand)
def check(
    target: Annotated[str, typer.Argument(metavar="NAME|URL", help="A registered environment, or a server's address.")],
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="An environment of the server. A whet server's default: all.")
    ] = "",
    items: Annotated[int, typer.Option(min=2, max=1000, help="Items to check, from all splits.")] = 3,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="key=value", help="A setting of the environment.")
    ] = None,
    plugins: PluginsOption = None,
) -> None:
    """Check that an environment keeps the protocol: seeds, ends, rewards, forks. Exits with 1 where it does not.

    A URL is as in `data.env`: http://HOST:PORT of `whet env serve`, agentgym+http://... of AgentGym's servers,
    openenv+ws://... of OpenEnv's.

    Examples: whet env check maze;  whet env check http://127.0.0.1:8001;
    whet env check agentgym+http://127.0.0.1:36001 textcraft
    """

    problems: list[str] = []

    def work() -> None:
        from whet.envs.remote.address import is_address

        load_own(plugins)
        if name and not is_address(target):
            raise usage(f"{target!r} is no address, so it stands alone: leave {name!r} out")
        infos = _remote(target, name, settings) if is_address(target) else [_local(target, settings)]
        problems.extend(problem for info in infos for problem in _checked(info, items))
        for problem in problems:
            out.print(escape(problem), soft_wrap=True, highlight=False)

    guarded(work, None)
    if problems:
        raise typer.Exit(1)


def _local(name: str, settings: list[str] | None) -> EnvironmentInfo:
    given, info = settings_of(settings), environment_named(name)
    made(info, given).close()
    info = info.settled(given)
    return replace(info, make=partial(info.make, **given))


def _remote(url: str, name: str, settings: list[str] | None) -> list[EnvironmentInfo]:
    from whet.config.environment_data import RemoteEnvironment
    from whet.envs.remote.info import remote_info, remote_names

    given, remote = settings_of(settings), RemoteEnvironment(url=url)
    names = [name] if name else remote_names(url)
    infos = [remote_info(name, remote, given) for name in names]
    return [replace(info, make=partial(info.make, **given)) for info in infos]


def _checked(info: EnvironmentInfo, num_items: int) -> list[str]:
    """Shows what the checks say as a table. Returns: the violations, in sentences."""
    from rich.table import Table

    from whet.envs.checks import CHECKS
    from whet.envs.checks import check as run_check

    table = Table(title=escape(info.name), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("check", "result"):
        table.add_column(column)
    problems: list[str] = []
    for check_name in CHECKS:
        found = run_check(info, check_name, num_items=num_items)
        problems += found
        result = f"[red]{len(found)} violation{'s' if found[1:] else ''}[/red]" if found else "[green]ok[/green]"
        if check_name == "its_expert_succeeds" and info.expert is None:
            result = "it has none"
        table.add_row(check_name.replace("_", " "), result)
    out.print(table)
    return problems
