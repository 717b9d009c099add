"""`whet env`: lists environments, acts in them by hand, and replays and shows trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from whet.cli.app import app
from whet.cli.console import guarded, out, usage
from whet.cli.own_files import PluginsCommand, PluginsOption, load_own

if TYPE_CHECKING:
    from whet.envs import Environment, EnvironmentInfo

env_app = typer.Typer(
    name="env",
    no_args_is_help=True,
    help="Environments that an agent acts in: list them, play one, replay and show recorded episodes.",
)
app.add_typer(env_app)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of an environment; `whet env list` has them.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[key=value ...]", help="The environment's own settings, such as recipes=FOLDER."),
]


@env_app.command("list", cls=PluginsCommand)
def list_environments(plugins: PluginsOption = None) -> None:
    """List the environments, with their numbers of items and their requirements."""

    def work() -> None:
        from rich.table import Table

        from whet.envs import ENVIRONMENTS, EnvError
        from whet.envs.registry import HELD

        load_own(plugins)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("name", "what it is", "items", "turns", "success", "needs"):
            table.add_column(title, justify="right" if title in ("items", "turns") else "left")
        for entry in ENVIRONMENTS:
            info = entry.make()
            try:
                items = " + ".join(f"{len(ids):,}" for ids in _disjoint(info).values())
            except EnvError:
                items = "?"
            needs = f"make setup EXTRAS={info.needs}" if info.needs else ""
            table.add_row(
                entry.name, escape(entry.says), items, str(info.max_turns), f"> {info.success_above:g}", escape(needs)
            )
        out.print(table)
        out.print("Items: train + test. Turns: the usual limit, which a run's settings may change.", highlight=False)
        held = "; ".join(f"{name} ({why})" for name, why in HELD.items())
        out.print(f"Held for later: {held}.", highlight=False)

    guarded(work, None)


@env_app.command(cls=PluginsCommand)
def splits(
    name: NameArgument,
    settings: Settings = None,
    train: Annotated[Path | None, typer.Option(help="A published list of item ids to train on.")] = None,
    test: Annotated[Path | None, typer.Option(help="A published list of item ids to test on.")] = None,
    plugins: PluginsOption = None,
) -> None:
    """Show an environment's splits by subgroup. With two lists of published ids, count the items in both.

    Example: whet env splits maze --train RL-ids/train/maze_train.json --test RL-ids/eval/maze_test.json
    """

    def work() -> None:
        from collections import Counter

        from rich.table import Table

        from whet.trajectories.published import overlaps, read_numbers

        info = _settled(_info(name, plugins), settings)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("split", "items", "by subgroup"):
            table.add_column(title, justify="right" if title == "items" else "left")
        for split, items in info.splits().items():
            groups = Counter(map(info.group, items)) if info.group is not None else {}
            by_group = ", ".join(f"{group}: {groups[group]:,}" for group in sorted(groups))
            table.add_row(split, f"{len(items):,}", escape(by_group))
        out.print(table)
        if (train is None) != (test is None):
            raise usage("give both --train and --test, to see which items they share")
        if train is not None and test is not None:
            numbers = [read_numbers(path, info.named_items) for path in (train, test)]
            both = overlaps(*numbers)
            out.print(f"{both} of the {len(set(numbers[1]))} items of {test} are in {train} as well", highlight=False)
            if both:
                out.print("A result on those items is none on unseen ones: leave them out, or say so.")

    guarded(work, None)


@env_app.command(cls=PluginsCommand)
def play(
    name: NameArgument,
    settings: Settings = None,
    item: Annotated[int | None, typer.Option(help="Its number. Default: the first of the test split.")] = None,
    seed: Annotated[int, typer.Option(help="Of chance in the environment.")] = 0,
    expert: Annotated[bool, typer.Option("--expert", help="Watch the scripted expert instead.")] = False,
    plugins: PluginsOption = None,
) -> None:
    """Act in an environment in the terminal, for as many turns as an episode usually has at most.

    An empty line or Ctrl-D leaves it.

    Examples: whet env play textcraft;  whet env play maze --item 3 --expert
    """

    def work() -> None:
        info = _info(name, plugins)
        opened_env = _open_env(info, settings)
        try:
            _play(info, opened_env, item if item is not None else _disjoint(info)["test"][0], seed, expert)
        finally:
            opened_env.close()

    guarded(work, None)


@env_app.command(cls=PluginsCommand)
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Trajectories, as AgentGym publishes them.")],
    env: Annotated[str, typer.Option("--env", metavar="NAME", help="The environment that they were recorded in.")],
    settings: Settings = None,
    recipes: Annotated[Path | None, typer.Option(help="TextCraft's recipe files, or their archive.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Replay the first so many.")] = None,
    seed: Annotated[int, typer.Option(help="Of chance in the environment.")] = 0,
    plugins: PluginsOption = None,
) -> None:
    """Send every recorded action to our environment, and compare its answers with the recorded ones.

    Example: whet env replay lmrlgym_maze_train.json --env maze
    """

    def work() -> None:
        from whet.trajectories.replay import replay_file

        info = _info(env, plugins)
        options = settings_of(settings)
        if recipes is not None:
            # Published numbers name their goals only together with the records: see `envs/textcraft/environment.py`.
            options |= {"recipes": str(recipes), "openings": str(file)}
        replayed = replay_file(file, info, limit=limit, seed=seed, **options)
        for episode in replayed.differing:
            out.print(escape(f"{episode.item_id}: {episode.difference}"), soft_wrap=True, highlight=False)
        out.print(escape(str(replayed)), soft_wrap=True, highlight=False)

    guarded(work, None)


@env_app.command(cls=PluginsCommand)
def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILE ...", help="Trajectories, or logs of episodes.")],
    to: Annotated[Path, typer.Option("--out", help="The page.")] = Path("episodes.html"),
    env: Annotated[
        str,
        typer.Option(
            "--env",
            metavar="NAME",
            help="Replay them in this environment, to draw each turn. Rollouts of AgentGym-RL's trainer, which have "
            "numbers alone, are its items.",
        ),
    ] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value of that environment.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The first so many of each file.")] = 200,
    plugins: PluginsOption = None,
) -> None:
    """Make a page of stored episodes, turn by turn, which opens from disk.

    Example: whet env show lmrlgym_maze_train.json --env maze --out maze.html
    """

    def work() -> None:
        from whet.methods.report_specs import load_report
        from whet.report.page import write_episodes
        from whet.trajectories.files import read_trajectories
        from whet.trajectories.pages import trace_row

        info = _info(env, plugins) if env else None
        opened_env = _open_env(info, settings) if info is not None else None
        try:
            info = _settled(info, settings) if info is not None else None
            rows = [
                trace_row(trajectory, split=file.stem, env=opened_env, info=info)
                for file in files
                for trajectory in read_trajectories(file, info.name if info is not None else "")[:limit]
            ]
        finally:
            if opened_env is not None:
                opened_env.close()
        page = write_episodes(to, rows, load_report("episodes"))
        out.print(escape(f"{len(rows):,} episodes in {page}"), soft_wrap=True, highlight=False)

    guarded(work, None)


def _play(info: EnvironmentInfo, opened_env: Environment, item: int, seed: int, expert: bool) -> None:
    from whet.envs.scripted import answered

    _tell(answered(opened_env.reset(item, seed=seed))[0])
    moves = info.expert(opened_env, seed=seed) if expert and info.expert is not None else None
    if expert and moves is None:
        raise usage(f"{info.name} has no scripted expert; play it yourself, without --expert")
    total = 0.0
    cut = ""
    for turn in range(1, info.max_turns + 1):
        if moves is not None:
            move = next(moves, None)
            if move is None:
                turns = f"{turn - 1} turn{'s' * (turn != 2)}"
                cut = f": the expert stopped after {turns}, and the episode goes on; let it yield until that ends"
                break
            thought, action = move
            out.print(f"[dim]{escape(thought)}[/dim]\n[bold]{turn} > {escape(action)}[/bold]", highlight=False)
        else:
            try:
                action = out.input(f"[bold]{turn} > [/bold]").strip()
            except EOFError:
                out.print()  # ends the prompt's line
                action = ""
            if not action:
                break
        observation, reward, terminated, truncated, _ = answered(opened_env.step(action))
        total += reward
        _tell(observation)
        if terminated or truncated:
            cut = "" if terminated else ", cut by the environment"
            break
    else:
        cut = f", cut after {info.max_turns} turn{'s' * (info.max_turns > 1)}, the limit (max_turns)"
    verdict = "[green]success[/green]" if info.is_success(total) else "[red]no success[/red]"
    out.print(f"{info.name}, item {item}: reward {total:g}, {verdict}{cut}", highlight=False)


def _tell(observation: str) -> None:
    out.print(escape(observation), soft_wrap=True, highlight=False)


def _info(name: str, plugins: list[Path] | None) -> EnvironmentInfo:
    load_own(plugins)
    return environment_named(name)


def environment_named(name: str) -> EnvironmentInfo:
    """The environment of a name, after plug-ins were loaded."""
    from whet.envs import ENVIRONMENTS

    return ENVIRONMENTS.get(name)


def settings_of(arguments: list[str] | None) -> dict[str, Any]:
    """The settings in arguments `key=value`."""
    from whet.config.yaml_text import NotYaml, load

    settings = {}
    for argument in arguments or ():
        key, equals, value = argument.partition("=")
        if not equals:
            raise usage(f"{argument!r} is no setting: write key=value, such as recipes=FOLDER")
        try:
            settings[key] = load(value)
        except NotYaml as error:
            raise usage(f"{argument!r} is not valid YAML{error}: close its brackets and quotes") from error
    return settings


def _open_env(info: EnvironmentInfo, arguments: list[str] | None) -> Environment:
    return made(info, settings_of(arguments))


def _settled(info: EnvironmentInfo, arguments: list[str] | None) -> EnvironmentInfo:
    """An environment's items under settings.

    Raises: ConfigError where it does not take them.
    """
    if arguments:
        _open_env(info, arguments).close()
    return info.settled(settings_of(arguments))


def made(info: EnvironmentInfo, settings: Mapping[str, Any]) -> Environment:
    """An environment with settings.

    Raises: ConfigError where it does not take them.
    """
    from whet.envs.user_environment import refused_settings

    try:
        return info.make(**settings)
    except TypeError as error:
        raise usage(refused_settings(info, error)) from error


def _disjoint(info: EnvironmentInfo) -> dict[str, Any]:
    """The items of train and test, without other published splits."""
    return {name: items for name, items in info.splits().items() if name in ("train", "test")}
