"""The settings of behavioural cloning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import InputFile, LearningConfig, NameOf, PerStep
from whet.config.acts import ActsUnless, NoEffect
from whet.config.environments import MEASURED, AgentRunConfig, ExpertConfig
from whet.config.parts import ModelConfig

NO_ROLLOUTS = "what is learnt is given, and no episode is rolled out to learn from"


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
    max_turns: Annotated[PerStep[int | None], NoEffect(NO_ROLLOUTS, MEASURED)] = Field(None, ge=1)
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), NoEffect(NO_ROLLOUTS)] = Field({})
    traces_per_step: Annotated[int, NoEffect(NO_ROLLOUTS)] = Field(4, ge=0)
    num_steps: int = Field(200, ge=1, le=10**9)
    """Batches."""
    rows_per_step: int = Field(16, ge=1)
    """Trajectories in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(50, ge=1)
    """Steps between validations; the best validated weights are kept."""
