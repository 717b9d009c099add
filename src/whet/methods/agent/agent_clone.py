"""Behavioural cloning (AgentGym, arXiv:2406.04151, section 4.1): a policy learns an agent's turns from trajectories.

They are those of files (`whet.trajectories.files`), or of the environments' scripted experts. Only what the agent
said trains, as RL and preferences have it; a message whose `loss` is False does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from whet.config import InputFile, LearningConfig, NameOf, PerStep
from whet.config.acts import ActsUnless, NoEffect
from whet.config.environments import MEASURED, AgentRunConfig, ExpertConfig
from whet.config.parts import ModelConfig
from whet.methods.agent.base import BY_SUCCESS_OR_LATER, AgentAlgorithm, agent_spec
from whet.methods.agent.cloning import clone_rows, demonstrated, learnt_and_tested
from whet.methods.agent.evolution import shown_items
from whet.methods.base import RunContext
from whet.methods.report_specs import load_report
from whet.methods.solvers import POLICY
from whet.methods.warm_start import imitation_phase
from whet.seeds import seed_of
from whet.trainer.loop import Phase
from whet.types import Row

GIVEN = "what is learnt is given, and no episode is played to learn from"


class AgentCloneConfig(AgentRunConfig):
    """Cloning: a policy learns an agent's turns from trajectories."""

    method: Literal["agent_clone"] = "agent_clone"
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    trajectories: tuple[InputFile, ...] = ()
    """Files of trajectories, as AgentGym publishes them. (): the environments' scripted experts act on the training
    items, and the policy learns from their successes."""
    expert: Annotated[ExpertConfig, ActsUnless("trajectories")] = ExpertConfig()
    """How the experts act, where no files are given."""
    max_turns: Annotated[PerStep[int | None], NoEffect(GIVEN, MEASURED)] = Field(None, ge=1)
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), NoEffect(GIVEN)] = Field({})
    traces_per_step: Annotated[int, NoEffect(GIVEN)] = Field(4, ge=0)
    num_steps: int = Field(200, ge=1, le=10**9)
    """Batches."""
    rows_per_step: int = Field(16, ge=1)
    """Trajectories in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(50, ge=1)
    """Steps between validations; the best validated weights are kept."""


class AgentClone(AgentAlgorithm[AgentCloneConfig]):
    """Behavioural cloning from trajectories, and how well the policy acts after it (2406.04151)"""

    spec = agent_spec(
        AgentCloneConfig,
        report=load_report("agent_clone"),
    )

    def __init__(self, config: AgentCloneConfig, run: RunContext) -> None:
        super().__init__(config, run)
        if run.trains:
            trajectories, warnings = demonstrated(
                config,
                config.trajectories,
                self.run.tasks["train"],
                self.rollouts.infos,
                config.expert,
                self.run.loop.progress.tell,
            )
            shown = clone_rows(
                trajectories, self.run.loop.policies[POLICY],
                shows_rules=self.rollouts.shows_rules(POLICY), max_context=config.max_context,
                failures_asked=not config.trajectories and config.expert.keep_failures,
            )  # fmt: skip
            self.shown = shown.rows
            self.run.info.append(shown.fact)
            both = learnt_and_tested(shown_items(trajectories), self.run.tasks)
            self.run.warnings.extend(warnings + shown.warnings + both)

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.evaluator.before()
        yield imitation_phase(
            "train", POLICY, config.num_steps, self._drawn, config.learning, config.rows_per_step,
            validate=self.evaluator.validate, validate_every=config.validate_every, select=BY_SUCCESS_OR_LATER,
        )  # fmt: skip
        yield self.evaluator.after()

    def _drawn(self, step: int) -> list[Row]:
        rng = random.Random(seed_of(self.run.loop.seed, "clone", step))
        return rng.choices(self.shown, k=self.config.rows_per_step)
