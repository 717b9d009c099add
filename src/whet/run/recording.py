"""Records an agent's episodes as trajectories (AgentGym's files), and as pairs of a better and a worse one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeGuard

from whet.config import ConfigError
from whet.config.environments import SCRIPTED_AGENTS, AgentRunConfig, ScriptedAgent
from whet.envs import EnvironmentInfo
from whet.errors import RunError
from whet.evaluation.agents import OBSERVATION, reward_of, turns_of
from whet.methods.agent.base import AgentAlgorithm
from whet.methods.agent.cloning import experts_of
from whet.methods.agent.evolution import by_environment
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.environment_tasks import ENVIRONMENT, evenly
from whet.methods.names import POLICY
from whet.rollout.agent import ITEM
from whet.run.evaluate import measuring
from whet.trainer.loop import Progress
from whet.trajectories.format_detection import FORMAT
from whet.trajectories.preferences import EXPERT_THRESHOLD, REWARD_GAP, Pair, preference_pairs
from whet.trajectories.records import ENV_SEED, FIRST_REPLY, Trajectory, conversation
from whet.types import FAULTS, Episode, Task

AT_A_TIME = 32
"""Items that are rolled out together."""
Against = Literal["expert", "own"]


@dataclass
class Recorded:
    """Recorded episodes and pairs, and counts of what is left out."""

    episodes: list[Trajectory] = field(default_factory=list)
    """In the order of the items, those of an item next to each other."""
    pairs: list[Pair] = field(default_factory=list)
    num_failed: int = 0
    """Episodes lost to a failed environment or endpoint. They are in no file."""
    reason: str = ""
    """Why the last of these failed."""
    num_silent: int = 0
    """Episodes in which the agent had no turn."""
    num_expert_failed: int = 0
    """Items whose expert's environment failed, so that they make no pairs."""
    num_other_starts: int = 0
    """Episodes that start with another observation than the better one, so that they make no pairs."""

    @property
    def left_out(self) -> list[str]:
        """What is in no file, a clause each."""
        counts = {
            f"episodes that failed ({self.reason})": self.num_failed,
            "in which the agent had no turn": self.num_silent,
            "items whose expert's world failed": self.num_expert_failed,
            "episodes that begin with another observation": self.num_other_starts,
        }
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    @property
    def num_successes(self) -> int:
        return sum(bool(episode.success) for episode in self.episodes)


def is_by_rule(player: str) -> TypeGuard[ScriptedAgent]:
    """Whether an agent acts by a rule, without a policy."""
    return player in SCRIPTED_AGENTS


def trajectory_of(
    episode: Episode, info: EnvironmentInfo, rules: str, *, env_seed: int, format: str = "react"
) -> Trajectory:
    """An agent's episode as a conversation, without the control tokens that a model wrote.

    Args:
        rules: the first message, whether or not the agent read it.
        env_seed: the environment's seed. It is recorded, so that the episode can be replayed.
        format: of the replies. It is recorded where it is not that of AgentGym's files.
    """
    reward = reward_of(episode)
    return Trajectory(
        item_id=f"{info.name}_{episode.task.info[ITEM]}",
        messages=conversation(
            rules,
            [segment.text for segment in episode.segments if segment.role == OBSERVATION],
            [turn.text for turn in turns_of(episode)],
        ),
        reward=reward,
        success=info.is_success(reward),
        info={ENV_SEED: env_seed} | ({} if format == "react" else {FORMAT: format}),
    )


@dataclass(frozen=True)
class RecordSettings:
    """What to record."""

    player: str
    """`expert`, `random` or `constant`. Any other name stands for the config's policy."""
    split: str = "train"
    num_items: int | None = None
    """Items of each environment, evenly from its list. None: all."""
    num_samples: int = 1
    """Episodes of each item, under one environment seed. 1: greedy."""
    against: Against | None = None
    """expert: pairs with the scripted expert's episodes of the same items. own: an item's best and worst episode. None:
    no pairs."""
    reward_gap: float = REWARD_GAP
    """The least difference of a pair's scores, in [0, 1]."""
    threshold: float = EXPERT_THRESHOLD
    """The least score of the better one, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.against is not None and is_by_rule(self.player):
            raise ConfigError(f"pairs are made of a policy's episodes, and {self.player} acts by rule: give a policy")
        if self.against == "own" and self.num_samples < 2:
            raise ConfigError("against = own compares the episodes of an item: ask for 2 samples or more")


def record(config: AgentRunConfig, settings: RecordSettings, progress: Progress) -> Recorded:
    """Rolls out items and records the episodes.

    Args:
        config: of method `agent`: policy, environments and `evaluation.max_turns`.
    Raises: ConfigError, DataError, EnvError, RunError.
    """
    recorded = Recorded()
    with measuring(config, None, settings.split, (), progress) as (session, _):
        algorithm = session.algorithm
        assert isinstance(algorithm, AgentAlgorithm)
        rollouts = algorithm.rollouts
        lacking = [name for name, info in rollouts.infos.items() if info.expert is None]
        if "expert" in (settings.player, settings.against) and lacking:
            raise ConfigError(f"{', '.join(lacking)} has no scripted expert: let a policy act, against = own")
        tasks = [
            task
            for env_tasks in by_environment(rollouts.run.tasks[settings.split]).values()
            for task in evenly(env_tasks, settings.num_items)
        ]
        progress.begin("recording", 0, len(tasks))
        for start in range(0, len(tasks), AT_A_TIME):
            chunk = tasks[start : start + AT_A_TIME]
            _record_chunk(rollouts, chunk, settings, recorded)
            progress.step(start + len(chunk), {"success": recorded.num_successes / max(1, len(recorded.episodes))})
        progress.end()
    if not recorded.episodes:
        why = f": {recorded.reason}" if recorded.reason else ""
        raise RunError(f"no episode of {len(tasks)} items came to an end, and nothing was written{why}")
    return recorded


def _record_chunk(rollouts: AgentRollouts, tasks: Sequence[Task], settings: RecordSettings, recorded: Recorded) -> None:
    """Rolls out some tasks and adds to `recorded`."""
    as_shown = partial(rollouts.openings.as_shown, is_given=False)
    groups, seeds = _roll_out_groups(rollouts, tasks, settings)
    experts = {}
    if settings.against == "expert":
        lost: list[int] = []
        pairs = experts_of(rollouts.config, tasks, rollouts.infos, seeds, lambda item, _: lost.append(item))
        experts = {task.id: as_shown(trajectory) for task, trajectory in pairs}
        recorded.num_expert_failed += len(lost)
    for task, group in zip(tasks, groups, strict=True):
        info = rollouts.infos[str(task.info[ENVIRONMENT])]
        whole = [episode for episode in group if episode.outcome not in FAULTS]
        with_turns = [episode for episode in whole if turns_of(episode)]
        recorded.num_failed += len(group) - len(whole)
        recorded.reason = next((episode.reason for episode in group if episode.outcome in FAULTS), recorded.reason)
        recorded.num_silent += len(whole) - len(with_turns)
        trajectories = [
            as_shown(
                trajectory_of(
                    episode,
                    info,
                    rollouts.openings.rules(info.name).rules,
                    env_seed=seeds[task.id],
                    format=rollouts.config.format,
                )
            )
            for episode in with_turns
        ]
        recorded.episodes += trajectories
        # A stable sort: of equal rewards the first comes first.
        ranked = sorted(trajectories, key=lambda trajectory: trajectory.reward or 0.0, reverse=True)
        better = experts.get(task.id) if settings.against == "expert" else next(iter(ranked), None)
        if settings.against is None or better is None:
            continue
        others = trajectories if settings.against == "expert" else ranked[-1:]
        start = better.messages[:FIRST_REPLY]
        comparable = [other for other in others if other.messages[:FIRST_REPLY] == start]
        recorded.num_other_starts += len(others) - len(comparable)
        recorded.pairs += preference_pairs(
            [better],
            comparable,
            reward_gap=settings.reward_gap,
            expert_threshold=settings.threshold,
            scale=info.scale,
        )


def _roll_out_groups(
    rollouts: AgentRollouts, tasks: Sequence[Task], settings: RecordSettings
) -> tuple[list[list[Episode]], Mapping[str, int]]:
    """The episodes of each task, and its environment's seed.

    The seed is the same for every agent, so that episodes of two agents make pairs.
    """
    max_turns, is_greedy = rollouts.config.evaluation.max_turns, settings.num_samples == 1
    agents = rollouts.agents(POLICY, "recording", max_turns=max_turns, greedy=is_greedy)
    seeds = {task.id: agents[str(task.info[ENVIRONMENT])].env_seed(task, 0) for task in tasks}
    if is_by_rule(settings.player):
        return rollouts.scripted_episodes(settings.player, tasks, settings.num_samples, seeds), seeds
    groups = rollouts.run.runtime.by_task(
        lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample),
        tasks,
        num_samples=settings.num_samples,
    )
    return groups, seeds
