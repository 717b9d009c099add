"""Episodes of a user's files, in the action format of the run that learns from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.config.environments import AgentRunConfig
from whet.envs import EnvironmentInfo
from whet.methods.environment_tasks import rules_of
from whet.tasks.files import DataError
from whet.trajectories.conversion import convert
from whet.trajectories.files import read_trajectories
from whet.trajectories.format_detection import FORMAT, Written, format_named, how_written
from whet.trajectories.records import Trajectory

Kind = tuple[str, str]
"""An environment, and the format that records say; empty where they say none."""


def given_episodes(
    file: str, config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]
) -> tuple[list[Trajectory], list[str]]:
    """The trajectories of a file, those of the run's environments in the run's action format; and what there is to say.

    Raises: DataError, also where the run's format reads no action in them, nor any format that they say or show.
    """
    trajectories, notes = read_trajectories(file), list[str]()
    written: dict[Kind, Written] = {}
    for kind, group in _groups(trajectories).items():
        detected = written[kind] = _how(group, file, kind[0], config, infos)
        target = _target(kind[0], config, infos)
        is_rewritten = kind[0] in infos and detected.format != target
        if is_rewritten and detected.format != infos[kind[0]].parser:
            notes.append(f"{len(group)} trajectories of {file} are {detected.format}, and are rewritten as {target}")
        if detected.num_unread:
            consequence = "they are not learnt" if is_rewritten else "they are learnt as they are"
            notes.append(
                f"{detected.counts} of {kind[0]} in {file} have no action that {detected.format} reads; {consequence} "
                f"(the first in {detected.example})"
            )
    return [
        _formatted(trajectory, written[_kind(trajectory)].format, config, infos) for trajectory in trajectories
    ], notes


def check_pairs(chosen: Sequence[Trajectory], config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]) -> None:
    """Of given pairs the better episodes, whose replies have to be in the run's format: pairs are learnt as they are.

    Raises: DataError.
    """
    for (environment, _), group in _groups(chosen).items():
        detected, target = _how(group, "pairs", environment, config, infos), _target(environment, config, infos)
        if environment in infos and detected.format != target:
            raise DataError(
                f"pairs: the better episodes of {environment} are written as {detected.format}, and the run's format "
                f"reads {target}; give the format that they have, or pairs of the run's"
            )


def _groups(trajectories: Sequence[Trajectory]) -> dict[Kind, list[Trajectory]]:
    groups: dict[Kind, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(_kind(trajectory), []).append(trajectory)
    return groups


def _kind(trajectory: Trajectory) -> Kind:
    return trajectory.environment, str(trajectory.info.get(FORMAT) or "")


def _how(
    group: Sequence[Trajectory],
    place: str,
    environment: str,
    config: AgentRunConfig,
    infos: Mapping[str, EnvironmentInfo],
) -> Written:
    target = _target(environment, config, infos)
    return how_written(group, place, target, environment=environment, parser=_parser(environment, infos))


def _target(environment: str, config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]) -> str:
    return format_named(environment, _parser(environment, infos), config.format)


def _parser(environment: str, infos: Mapping[str, EnvironmentInfo]) -> str:
    """Environments that the run does not have are read as most publish their episodes."""
    return infos[environment].parser if environment in infos else "react"


def _formatted(
    trajectory: Trajectory, source: str, config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]
) -> Trajectory:
    info = infos.get(trajectory.environment)
    target = _target(trajectory.environment, config, infos)
    if info is None or source == target:
        return trajectory
    return convert(trajectory, target, source=source, rules=rules_of(info, config.format).text)
