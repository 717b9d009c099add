"""One environment of AgentEval: an episode of each item by the agent, and by the scripted agents beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from whet.config import of_tree
from whet.config.base import dotted
from whet.config.environments import SCRIPTED_AGENTS, AgentRunConfig, ScriptedAgent
from whet.config.loading import leaves, merged
from whet.errors import WhetError
from whet.evaluation.agenteval import Measured, NotRun, protocol_of
from whet.evaluation.agenteval_rows import agent_row
from whet.evaluation.agents import turns_of
from whet.evaluation.as_published import SETTINGS
from whet.methods.agent.base import AgentAlgorithm
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.environment_tasks import environment_task
from whet.methods.names import POLICY
from whet.methods.registry import preset_of
from whet.models.policy import Policy
from whet.rollout.agent import Agent
from whet.rollout.retries import TooManyFaults
from whet.run.agenteval_items import Part
from whet.run.recording import trajectory_of
from whet.run.session import Session, prepare
from whet.run_folder.folder import RunFolder
from whet.tasks.splits import Problems
from whet.trainer.loop import Progress
from whet.trajectories.records import Trajectory
from whet.types import FAULTS, Episode, Task

AT_A_TIME = 32
"""Items that are rolled out together."""


@dataclass(frozen=True)
class Asked:
    """What to measure."""

    settings: Mapping[str, Any]
    """Of method `agent`, as a tree. It names no environment."""
    num_items: int | None = None
    """Of an environment at most. None: the published counts."""
    temperature: float | None = None
    """None: the paper's. 0: greedy."""

    @property
    def given(self) -> set[str]:
        """Dotted keys."""
        return {dotted(key) for key in leaves(self.settings)}


def config_of_part(asked: Asked, part: Part) -> AgentRunConfig:
    """The settings for one environment, with those of its paper where the user has given none.

    Raises: ConfigError.
    """
    protocol = protocol_of(part.name, part.info.max_turns)
    tree = dict(asked.settings)
    data = {key: value for key, value in tree.get("data", {}).items() if key not in ("settings", "test_items")}
    tree["data"] = {**data, "env": {part.name: 1.0}, "settings": {part.name: dict(part.settings)}}
    if isinstance(rules := tree.get("rules"), Mapping):
        tree["rules"] = {name: rule for name, rule in rules.items() if name == part.name} or None
    paper: dict[str, Any] = {"evaluation": {"max_turns": protocol.max_turns}, "format": protocol.format}
    preset = preset_of("agent")
    config = of_tree(type(preset.config), merged(paper, tree), base=preset.config)
    assert isinstance(config, AgentRunConfig)
    return config


def measure_part(
    asked: Asked, part: Part, policies: Mapping[str, Policy], progress: Progress, title: str
) -> tuple[Measured, list[Trajectory]] | NotRun:
    """An environment's line, and the agent's episodes that did not fail.

    Args:
        policies: the loaded model. Empty: it is behind an endpoint.
        title: for the progress.
    """
    started = time.monotonic()
    tasks = tuple(environment_task(part.info, item) for item in part.items)
    problems = Problems({"train": (), "validation": (), "test": tasks}, f"items of {part.name}")
    try:
        config = config_of_part(asked, part)
        session = prepare(config, progress, RunFolder(Path()), problems, dict(policies))
    except WhetError as error:
        return NotRun(environment=part.name, cause="refused", why=str(error))
    try:
        run = _PartRun(asked, part, session, progress)
        episodes = run.episodes(tasks, title)
        policy = episodes[POLICY]
        if all(episode.outcome in FAULTS for episode in policy):
            why = f"all {len(policy)} episodes failed: {policy[0].outcome}: {policy[0].reason}"
            return NotRun(environment=part.name, cause="failed", why=why)
        return _line(asked, part, config, episodes, time.monotonic() - started), run.trajectories(policy)
    except TooManyFaults as error:
        return NotRun(environment=part.name, cause="failed", why=str(error).partition("\n")[0])
    finally:
        progress.end()
        session.close_services()


def temperature_of(asked: Asked, part: Part) -> float:
    """The paper's, where the user has given none."""
    return protocol_of(part.name, part.info.max_turns).temperature if asked.temperature is None else asked.temperature


class _PartRun:
    """The agents of one environment, in a session that measures."""

    def __init__(self, asked: Asked, part: Part, session: Session, progress: Progress) -> None:
        algorithm = session.algorithm
        assert isinstance(algorithm, AgentAlgorithm)
        self._part, self._progress, self._config = part, progress, algorithm.config
        self._rollouts: AgentRollouts = algorithm.rollouts
        temperature = temperature_of(asked, part)
        self._agent: Agent = self._rollouts.agents(
            POLICY,
            "evaluation",
            max_turns=algorithm.config.evaluation.max_turns,
            greedy=not temperature,
            sampling=algorithm.config.sampling.model_copy(update={"temperature": temperature}),
        )[part.name]

    def episodes(self, tasks: Sequence[Task], title: str) -> dict[str, list[Episode]]:
        """By agent, an episode of each item. All agents get an item under the same seed of the environment."""
        info = self._part.info
        players: dict[str, Callable[[Sequence[Task]], list[list[Episode]]]] = {POLICY: self._by_policy}
        for name in SCRIPTED_AGENTS:
            if name != "expert" or info.expert is not None:
                players[name] = partial(self._by_rule, name)
        episodes: dict[str, list[Episode]] = {}
        self._progress.begin(title, 0, len(players) * len(tasks))
        for number, (agent, act) in enumerate(players.items()):
            episodes[agent] = []
            for start in range(0, len(tasks), AT_A_TIME):
                episodes[agent] += [group[0] for group in act(tasks[start : start + AT_A_TIME])]
                row = agent_row(episodes[agent], info.score, info.success_above)
                done = number * len(tasks) + len(episodes[agent])
                self._progress.step(done, {f"score of {agent}": row["score"]})
        return episodes

    def _by_policy(self, tasks: Sequence[Task]) -> list[list[Episode]]:
        return self._rollouts.run.runtime.by_task(self._agent, tasks)

    def _by_rule(self, name: ScriptedAgent, tasks: Sequence[Task]) -> list[list[Episode]]:
        seeds = {task.id: self._agent.env_seed(task, 0) for task in tasks}
        return self._rollouts.scripted_episodes(name, tasks, 1, seeds)

    def trajectories(self, episodes: Sequence[Episode]) -> list[Trajectory]:
        """The agent's episodes as AgentGym's files have them, without those that failed or have no turn."""
        openings, name = self._rollouts.openings, self._part.name
        rules, format = openings.rules(name).rules, self._config.format
        return [
            openings.as_shown(
                trajectory_of(
                    episode,
                    self._part.info,
                    rules,
                    env_seed=self._agent.env_seed(episode.task, 0),
                    format=format,
                ),
                is_given=False,
            )
            for episode in episodes
            if episode.outcome not in FAULTS and turns_of(episode)
        ]


def _line(
    asked: Asked, part: Part, config: AgentRunConfig, episodes: Mapping[str, Sequence[Episode]], seconds: float
) -> Measured:
    protocol = protocol_of(part.name, part.info.max_turns)
    overridden = [key for key in SETTINGS if key in asked.given]
    overridden += [] if asked.temperature is None else ["--temperature"]
    rows = {name: agent_row(episodes[name], part.info.score, part.info.success_above) for name in episodes}
    return Measured(
        environment=part.name,
        table=part.table,
        items=part.items,
        choice=part.choice,
        paper=protocol.paper,
        temperature=temperature_of(asked, part),
        max_turns=config.evaluation.max_turns or part.info.max_turns,
        format=config.format,
        overridden=tuple(overridden),
        rows={"policy": rows[POLICY], **{name: rows.get(name) for name in SCRIPTED_AGENTS}},
        seconds=round(seconds, 1),
    )
