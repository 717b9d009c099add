"""Behavioural cloning (AgentGym, arXiv:2406.04151, section 4.1): a policy learns an agent's turns from trajectories.

They are those of files (`whet.envs.trajectory_files`), or of the environments' scripted experts. Only what the agent
said trains, as RL and preferences have it; a message whose `loss` is False does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from whet.config import InputFile, LearningConfig
from whet.config.parts import ModelConfig
from whet.config.worlds import AgentRunConfig
from whet.envs import EnvironmentInfo
from whet.envs.conversion import convert
from whet.envs.experts import expert_trajectories
from whet.envs.trajectories import Trajectory
from whet.envs.trajectory_files import read_trajectories
from whet.models.policy import Policy
from whet.play.agent import ITEM
from whet.runs.agents import BY_SUCCESS, AgentMethod
from whet.runs.cloning import clone_row
from whet.runs.loop import Phase
from whet.runs.method import Bench
from whet.runs.panels import ENTROPY, LOSS, NORM, TIME
from whet.runs.sheet import Sheet
from whet.runs.sheets import AGENT, SUCCEEDED
from whet.runs.solvers import POLICY
from whet.runs.warm_start import imitation_phase
from whet.runs.worlds import ENVIRONMENT, format_of, rules_of
from whet.seeds import seed_of
from whet.tasks.files import DataError
from whet.types import Row


class AgentCloneConfig(AgentRunConfig):
    """Cloning: a policy learns an agent's turns from trajectories."""

    method: Literal["agent_clone"] = "agent_clone"
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    trajectories: tuple[InputFile, ...] = ()
    """Files of trajectories, as AgentGym publishes them. (): the environments' scripted experts play the training
    items, and their successes are learnt from."""
    num_steps: int = Field(200, ge=1, le=10**9)
    """Batches."""
    rows_per_step: int = Field(16, ge=1)
    """Trajectories in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(50, ge=1)
    """Steps between validations; the best validated weights are kept."""

    def idle(self) -> set[str]:
        return super().idle() | {"rewards", "traces_per_step", "max_turns"}  # no training episode is played


class AgentClone(AgentMethod[AgentCloneConfig]):
    """Behavioural cloning from trajectories, and how well the policy acts after it (2406.04151)"""

    config_class = AgentCloneConfig
    sheet: ClassVar[Sheet] = replace(
        AGENT, training=("validation/success",), panels=(SUCCEEDED, LOSS, ENTROPY, NORM, TIME)
    )

    def __init__(self, config: AgentCloneConfig, bench: Bench) -> None:
        super().__init__(config, bench)
        if bench.trains:
            self.shown = self._all_rows(self.loop.policies[POLICY])

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.before()
        yield imitation_phase(
            "train", POLICY, config.num_steps, self._drawn, config.learning, config.rows_per_step,
            validate=self.validate, validate_every=config.validate_every, select=BY_SUCCESS,
        )  # fmt: skip
        yield self.after()

    def _drawn(self, step: int) -> list[Row]:
        rng = random.Random(seed_of(self.loop.seed, "clone", step))
        return rng.choices(self.shown, k=self.config.rows_per_step)

    def _all_rows(self, policy: Policy) -> list[Row]:
        """Raises: DataError where there is nothing to learn from."""
        rows, num_long = [], 0
        for trajectory in self._trajectories():
            row = clone_row(trajectory, policy.name, policy.tokenizer, shows_rules=self.shows_rules(policy.name))
            if len(row.tokens) > self.config.max_context:
                num_long += 1
            else:
                rows.append(row)
        if not rows:
            raise DataError(
                f"no trajectory of at most max_context = {self.config.max_context} tokens to learn from: raise it"
            )
        if num_long:
            self.remarks.append(
                f"{num_long} trajectories of more than max_context = {self.config.max_context} tokens are left out"
            )
        self.remarks.append(f"{len(rows)} trajectories to learn from")
        return rows

    def _trajectories(self) -> Iterator[Trajectory]:
        config = self.config
        for file in config.trajectories:
            for each in read_trajectories(file):
                info = self.infos.get(each.environment)
                yield each if config.format == "react" or info is None else self._converted(each, info)
        for name, info in self.infos.items() if not config.trajectories else ():
            items = [task.info[ITEM] for task in self.tasks["train"] if task.info[ENVIRONMENT] == name]
            settings = config.data.settings.get(name, {})
            yield from expert_trajectories(
                info, items, rules=rules_of(info, config.format).text, seed=config.seed, settings=settings,
                format=format_of(info, config.format),
            )  # fmt: skip

    def _converted(self, trajectory: Trajectory, info: EnvironmentInfo) -> Trajectory:
        format = self.config.format
        return convert(trajectory, format_of(info, format), source=info.parser, rules=rules_of(info, format).text)
