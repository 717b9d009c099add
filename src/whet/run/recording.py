"""What an agent plays, kept as trajectories (AgentGym's files) and as pairs of a better and a worse episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from whet.config import ConfigError
from whet.config.environments import AgentRunConfig
from whet.envs import EnvironmentInfo
from whet.errors import RunError
from whet.evaluation.agents import OBSERVATION, reward_of, turns_of
from whet.methods.agent.base import AgentAlgorithm
from whet.methods.agent.cloning import experts_of
from whet.methods.agent.evolution import by_environment
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.environment_tasks import ENVIRONMENT, rules_of
from whet.methods.solvers import POLICY
from whet.rollout.agent import ITEM
from whet.rollout.scripted import PLAYERS, Player
from whet.run.evaluate import measuring
from whet.trainer.loop import Progress
from whet.trajectories.format_detection import FORMAT
from whet.trajectories.preferences import EXPERT_THRESHOLD, REWARD_GAP, Pair, preference_pairs
from whet.trajectories.records import ENV_SEED, FIRST_REPLY, Trajectory, conversation
from whet.types import FAULTS, Episode, Task

AT_A_TIME = 32
"""Items that are played together."""
Against = Literal["expert", "own"]


@dataclass
class Recorded:
    """What was played."""

    episodes: list[Trajectory] = field(default_factory=list)
    """In the order of the items, those of an item next to each other."""
    pairs: list[Pair] = field(default_factory=list)
    num_failed: int = 0
    """Episodes that a world or an endpoint has lost; they are nowhere else."""
    reason: str = ""
    """Of the last of these."""
    num_silent: int = 0
    """Episodes in which the agent never came to its turn."""
    num_unled: int = 0
    """Items of which the expert's worlds have failed, so that they make no pairs."""
    num_unlike: int = 0
    """Episodes that begin with another observation than the better one's, so that they make no pairs."""

    @property
    def left_out(self) -> list[str]:
        """What is nowhere in the files, a clause each."""
        counts = {
            f"episodes that failed ({self.reason})": self.num_failed,
            "in which the agent had no turn": self.num_silent,
            "items whose expert's world failed": self.num_unled,
            "episodes that begin with another observation": self.num_unlike,
        }
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    @property
    def num_won(self) -> int:
        return sum(bool(each.success) for each in self.episodes)


def is_by_rule(player: str) -> TypeGuard[Player]:
    return player in PLAYERS


def trajectory_of(
    episode: Episode, info: EnvironmentInfo, rules: str, *, source: str, env_seed: int, format: str = "react"
) -> Trajectory:  # fmt: skip
    """An agent's episode as a conversation. Control tokens that the model wrote are in none of its texts.

    Args:
        rules: the first message; it stands there whether or not the agent was told them.
        world_seed: is kept, so that the episode can be replayed.
        format: of its replies; is kept where it is not the one that files have.
    """
    reward = reward_of(episode)
    return Trajectory(
        item_id=f"{info.name}_{episode.task.info[ITEM]}",
        messages=conversation(
            rules,
            [each.text for each in episode.segments if each.role == OBSERVATION],
            [turn.text for turn in turns_of(episode)],
        ),
        reward=reward,
        success=info.is_success(reward),
        source=source,
        info={ENV_SEED: env_seed} | ({} if format == "react" else {FORMAT: format}),
    )


@dataclass(frozen=True)
class Wanted:
    """What is to be recorded."""

    player: str
    """expert, random, constant; any other name is that of the config's policy."""
    split: str = "train"
    num_items: int | None = None
    """Of each environment, from all parts of its list. None: all."""
    num_samples: int = 1
    """Episodes of each item, in one world. 1: greedy."""
    against: Against | None = None
    """What makes pairs of them: the scripted expert's episodes of the same worlds, or of an item's own episodes the
    worst beside the best. None: no pairs."""
    reward_gap: float = REWARD_GAP
    """The least distance of a pair's scores."""
    threshold: float = EXPERT_THRESHOLD
    """The least score of the better one."""

    def __post_init__(self) -> None:
        if self.against is not None and is_by_rule(self.player):
            raise ConfigError(f"pairs are made of a policy's episodes, and {self.player} plays by rule: give a policy")
        if self.against == "own" and self.num_samples < 2:
            raise ConfigError("against = own compares the episodes of an item: ask for 2 samples or more")


def record(config: AgentRunConfig, wanted: Wanted, progress: Progress) -> Recorded:
    """Play items and keep the episodes.

    Args:
        config: of method `agent`: the policy, the environments, `evaluation.max_turns`.
    Raises: ConfigError, DataError, EnvError, RunError.
    """
    found = Recorded()
    with measuring(config, None, wanted.split, (), progress) as (session, _):
        algorithm = session.algorithm
        assert isinstance(algorithm, AgentAlgorithm)
        rollouts = algorithm.rollouts
        lacking = [name for name, info in rollouts.infos.items() if info.expert is None]
        if "expert" in (wanted.player, wanted.against) and lacking:
            raise ConfigError(f"{', '.join(lacking)} has no scripted expert: let a policy play, against = own")
        tasks = [
            task
            for own in by_environment(rollouts.run.tasks[wanted.split]).values()
            for task in _some(own, wanted.num_items)
        ]
        progress.begin("recording", 0, len(tasks))
        for start in range(0, len(tasks), AT_A_TIME):
            now = tasks[start : start + AT_A_TIME]
            _play(rollouts, now, wanted, found)
            progress.step(start + len(now), {"success": found.num_won / max(1, len(found.episodes))})
        progress.end()
    if not found.episodes:
        why = f": {found.reason}" if found.reason else ""
        raise RunError(f"no episode of {len(tasks)} items came to an end, and nothing was written{why}")
    return found


def _some(tasks: Sequence[Task], count: int | None) -> Sequence[Task]:
    if count is None or count >= len(tasks):
        return tasks
    return [tasks[i * len(tasks) // count] for i in range(count)]


def _play(rollouts: AgentRollouts, tasks: Sequence[Task], wanted: Wanted, found: Recorded) -> None:
    rules = {name: rules_of(info, rollouts.config.format).text for name, info in rollouts.infos.items()}
    groups, seeds = _groups(rollouts, tasks, wanted)
    experts = {}
    if wanted.against == "expert":
        lost: list[int] = []
        shown = experts_of(rollouts.config, tasks, rollouts.infos, seeds, lambda item, _: lost.append(item))
        experts = {task.id: each for task, each in shown}
        found.num_unled += len(lost)
    for task, group in zip(tasks, groups, strict=True):
        info = rollouts.infos[str(task.info[ENVIRONMENT])]
        whole = [each for each in group if each.outcome not in FAULTS]
        said = [each for each in whole if turns_of(each)]
        found.num_failed += len(group) - len(whole)
        found.reason = next((each.reason for each in group if each.outcome in FAULTS), found.reason)
        found.num_silent += len(whole) - len(said)
        episodes = [
            trajectory_of(
                each,
                info,
                rules[info.name],
                source=wanted.player,
                env_seed=seeds[task.id],
                format=rollouts.config.format,
            )
            for each in said
        ]
        found.episodes += episodes
        ranked = sorted(episodes, key=lambda each: each.reward or 0.0, reverse=True)  # of equals the first comes first
        better = experts.get(task.id) if wanted.against == "expert" else next(iter(ranked), None)
        if wanted.against is None or better is None:
            continue
        others = episodes if wanted.against == "expert" else ranked[-1:]
        alike = [each for each in others if each.messages[:FIRST_REPLY] == better.messages[:FIRST_REPLY]]
        found.num_unlike += len(others) - len(alike)
        found.pairs += preference_pairs(
            [better], alike, reward_gap=wanted.reward_gap, expert_threshold=wanted.threshold, scale=info.scale
        )


def _groups(
    rollouts: AgentRollouts, tasks: Sequence[Task], wanted: Wanted
) -> tuple[list[list[Episode]], Mapping[str, int]]:
    """The episodes of each task, and the seed of its world, which is the same for every player: what two of them did
    makes pairs."""
    most, is_greedy = rollouts.config.evaluation.max_turns, wanted.num_samples == 1
    agents = rollouts.agents(POLICY, "recording", max_turns=most, greedy=is_greedy)
    seeds = {task.id: agents[str(task.info[ENVIRONMENT])].env_seed(task, 0) for task in tasks}
    if is_by_rule(wanted.player):
        return rollouts.scripted_episodes(wanted.player, tasks, wanted.num_samples, seeds), seeds
    groups = rollouts.run.runtime.by_task(
        lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample), tasks,
        num_samples=wanted.num_samples,
    )  # fmt: skip
    return groups, seeds
