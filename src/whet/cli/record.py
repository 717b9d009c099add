"""`whet env record`: an agent's episodes as files to learn from."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from whet.cli.console import SettingsArgument, SettingsCommand, config_of, guarded, out, progress_bar, usage
from whet.cli.envs import env_app
from whet.cli.measure import agent_settings
from whet.cli.own_files import PluginsOption, with_plugins

if TYPE_CHECKING:
    from whet.run.recording import Recorded, RecordSettings


@env_app.command(cls=SettingsCommand)
def record(
    env: Annotated[str, typer.Argument(metavar="NAME[,NAME...]", help="Of the environments.")],
    settings: SettingsArgument = None,
    policy: Annotated[
        str,
        typer.Option(help="The agent: a model's folder, the URL of an endpoint (with --model), expert, or random."),
    ] = "tiny_agent",
    model: Annotated[str, typer.Option(help="Of the endpoint, the model's name.")] = "",
    to: Annotated[Path | None, typer.Option("--out", help="Episodes: JSON lines, or a list in a .json file.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Pairs of a better and a worse episode.")] = None,
    against: Annotated[
        Literal["expert", "own"],
        typer.Option(help="With --pairs: the expert on the same items, or an item's best episode and its worst."),
    ] = "expert",
    reward_gap: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="With --pairs: the least distance of the two scores.")
    ] = 0.01,
    threshold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="With --pairs: the least score of the better one.")
    ] = 0.7,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Whose items.")] = "train",
    limit: Annotated[int | None, typer.Option(min=1, help="So many items of each, from all parts of its list.")] = None,
    plugins: PluginsOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over files that are there.")] = False,
    successes: Annotated[bool, typer.Option("--successes", help="With --out: keep no other episodes.")] = False,
    samples: Annotated[int, typer.Option(min=1, max=10_000, help="Episodes of an item. 1: one greedy episode.")] = 1,
) -> None:
    r"""Roll out items and save the episodes as training data, in the form of AgentGym's files.

    --out is for `whet train agent_clone trajectories=\[FILE]` and `whet env show FILE`, --pairs for `whet train
    agent_dpo pairs=\[FILE]`. Settings are those of `whet config agent`, such as evaluation.max_turns=10.

    Examples: `whet env record textcraft --policy expert --out experts.jsonl`;
    `whet env record textcraft --policy runs/mine/best --samples 4 --out episodes.jsonl --pairs pairs.jsonl`;
    `whet env record maze --samples 8 --against own --pairs pairs.jsonl`
    """

    def work() -> None:
        from whet.config.environments import AgentRunConfig
        from whet.run.recording import RecordSettings, is_by_rule
        from whet.run.recording import record as record_episodes

        _check_outputs(to, pairs, overwrite=overwrite)  # before any rollout
        agent = agent_settings("" if is_by_rule(policy) else policy, model, env)
        config = config_of("agent", with_plugins([*(settings or []), *agent], plugins))
        assert isinstance(config, AgentRunConfig)
        record_settings = RecordSettings(
            player=policy,
            split=split,
            num_items=limit,
            num_samples=samples,
            against=against if pairs is not None else None,
            reward_gap=reward_gap,
            threshold=threshold,
        )
        with closing(progress_bar()) as progress:
            recorded = record_episodes(config, record_settings, progress)
        if to is not None:
            _write_episodes(to, recorded, only_successes=successes)
        if pairs is not None:
            _write_pairs(pairs, recorded, record_settings)
        if recorded.left_out:
            _print(f"left out: {', '.join(recorded.left_out)}")

    guarded(work, None)


def _check_outputs(to: Path | None, pairs: Path | None, *, overwrite: bool) -> None:
    """Raises: ConfigError where the files cannot be written, or none is named."""
    if to is None and pairs is None:
        raise usage("give an output: --out FILE for the episodes, --pairs FILE for pairs, or both")
    if to is not None and pairs is not None and to.absolute() == pairs.absolute():
        raise usage(f"{to} cannot hold both episodes and pairs: give --out and --pairs different files")
    for file in filter(None, (to, pairs)):
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise usage(f"{file} cannot be written: name a file in an existing folder that can be written")
        if file.exists() and not overwrite:
            raise usage(f"{file} is there already: name another file, or --overwrite writes over it")


def _write_episodes(file: Path, recorded: Recorded, *, only_successes: bool) -> None:
    from whet.trajectories.files import write_trajectories

    episodes = [episode for episode in recorded.episodes if episode.success or not only_successes]
    write_trajectories(file, episodes)
    _print(f"{len(episodes):,} episodes, {recorded.num_successes:,} of them a success, in {file}")


def _write_pairs(file: Path, recorded: Recorded, settings: RecordSettings) -> None:
    from whet.trajectories.preferences import write_pairs

    if recorded.pairs:
        write_pairs(file, recorded.pairs)
        _print(f"{len(recorded.pairs):,} pairs in {file}")
    else:
        _print(
            f"no pairs, so {file} is not written: no two episodes of an item are {settings.reward_gap:g} apart, the "
            f"better one at {settings.threshold:g} or more"
        )


def _print(text: str) -> None:
    out.print(escape(text), soft_wrap=True, highlight=False)
