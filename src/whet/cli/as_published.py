"""`whet eval --as-published`: the settings by which a paper measures agents in an environment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whet.cli.console import file_and_settings, usage

if TYPE_CHECKING:
    from whet.config.runs import RunConfig


@dataclass(frozen=True)
class AsPublished:
    """What `--as-published` comes to on a command line."""

    settings: list[str]
    """To be added to the user's."""
    env: str
    """The environment to measure in."""
    temperature: float
    sentence: str
    """What is set, for the console."""


def as_published(name: str, settings: Sequence[str], *, env: str, temperature: float | None) -> AsPublished:
    """The settings of a published evaluation, but for those that the user has given. These hold, and are named.

    Args:
        settings: the user's own, with a file's name among them.
        env, temperature: the options.
    Raises: UnknownName, ConfigError; usage errors where the options are of another environment.
    """
    from whet.config.base import dotted
    from whet.config.loading import leaves, parse_override
    from whet.config.yaml_text import read_file
    from whet.evaluation.as_published import AS_PUBLISHED, SETTINGS

    protocol = AS_PUBLISHED.get(name)
    if env not in ("", protocol.environment):
        raise usage(f"--as-published {name} is of {protocol.environment}, and --env says {env}: leave one of them out")
    file, singles = file_and_settings(list(settings))
    trees = [*([read_file(file)] if file is not None else []), *map(parse_override, singles)]
    given = {dotted(key) for tree in trees for key in leaves(tree)}
    overridden = [key for key in SETTINGS if key in given]
    overridden += [] if temperature is None else ["--temperature"]
    return AsPublished(
        protocol.settings(given),
        protocol.environment,
        protocol.temperature if temperature is None else temperature,
        protocol.sentence(overridden),
    )


def check_published(
    name: str, protocol: AsPublished, config: RunConfig, given: Collection[str], *, samples: int
) -> None:
    """Refuses what a published evaluation cannot measure.

    Args:
        given: the options on the command line.
        samples: episodes an item.
    """
    from whet.config.environments import AgentRunConfig

    if not isinstance(config, AgentRunConfig):
        raise usage("--as-published is of agents, and no agent is measured here: leave it out")
    if (names := list(config.data.shares)) != [protocol.env]:
        raise usage(
            f"--as-published {name} is of {protocol.env}, and {', '.join(names)} is measured: add --env "
            f"{protocol.env}, or data.env={protocol.env}"
        )
    if strange := sorted({"--strategy", "--refinements", "--rounds", "--oracle-verifier"}.intersection(given)):
        raise usage(f"{', '.join(strange)} is not of agents: leave it out")
    if samples > 1 and protocol.temperature == 0:
        raise usage(
            f"--as-published {name} measures a greedy episode, and --samples {samples} would all be alike: "
            "give --temperature as well, or leave --samples out"
        )
