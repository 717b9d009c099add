"""The settings of a critic that gives scores."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from whet.config import CriticRunConfig, LearningConfig, PerStep, TrainingConfig
from whet.config.acts import ActsWhen, Inside
from whet.config.critics import WarmStartConfig
from whet.methods.critic.reward_model_config import RewardModelConfig


class OpenEndedConfig(TrainingConfig, CriticRunConfig):
    """A critic that gives scores, rewarded by a reward model in two stages."""

    method: Literal["open_ended"] = "open_ended"
    compared: ClassVar[str] = "roles.critique"
    warm_start: Annotated[
        WarmStartConfig,
        Inside("actor_steps", ActsWhen("actor.kind", "model")),
        Inside(("refine_share", "file"), ActsWhen("warm_start.actor_steps")),
    ] = WarmStartConfig()
    """`file` is for the actor alone: the critic imitates critiques of the tiny world that close with a score."""
    reward_model: RewardModelConfig = RewardModelConfig()
    num_steps: int = Field(80, ge=2, le=10**9, multiple_of=2)
    """Steps of both stages together; each takes half."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer."""
    tolerance: PerStep[float] = Field(3.0, gt=0)
    """Delta: a score that is so far off, or further, is rewarded 0."""
    weight: PerStep[float] = Field(2.0, ge=0)
    """Beta_1: of r_dis in stage II, beside the refinement's score of 1 to 10."""
    kl_coef: PerStep[float] = Field(0.01, ge=0)
    """Of the KL to the critic that the stage starts from, in the reward."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)
