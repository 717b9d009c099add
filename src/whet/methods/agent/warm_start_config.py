"""The settings of the warm start of an agent and its critic."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from whet.config import Config, LearningConfig
from whet.config.acts import ActsWhen, AnyOf


class AgentWarmStart(Config):
    """Supervised learning of agent and critic before any reinforcement learning."""

    policy_steps: int = Field(120, ge=0)
    """Batches of the experts' episodes for the agent. 0: it is used as it is."""
    attempts: Annotated[int, ActsWhen("critic_steps")] = Field(192, ge=1)
    """Attempts by the agent, whose critiques by the oracle the critic imitates."""
    critic_steps: int = Field(100, ge=0)
    """Batches of such critiques for the critic. 0: it is used as it is."""
    rows_per_step: Annotated[int, AnyOf(ActsWhen("policy_steps"), ActsWhen("critic_steps"))] = Field(8, ge=1)
    """Episodes, or critiques, in a batch."""
    critiqued: Annotated[float, ActsWhen("policy_steps")] = Field(0.8, ge=0, le=1)
    """Of the agent's episodes, those that begin with a critique. The others keep its first attempts what they are."""
    drilled: Annotated[float, ActsWhen("critiqued")] = Field(0.6, ge=0, le=1)
    """Of those, the share that has another item's plan, and ends with a first reply that goes by it. Reading is learnt
    sooner where nothing can be guessed."""
    misled: Annotated[float, ActsWhen("critiqued")] = Field(0.0, ge=0, le=1)
    """Of the rest, the share that has another item's plan, and goes on as if it had none: the agent learns to doubt."""
    learning: Annotated[LearningConfig, AnyOf(ActsWhen("policy_steps"), ActsWhen("critic_steps"))] = LearningConfig(
        learning_rate=1e-3
    )
