"""The settings of RefCritic."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from whet.config import (
    ClipLoss,
    CriticRunConfig,
    KLConfig,
    LearningConfig,
    PerStep,
    RolesConfig,
    SamplingConfig,
    Schedule,
    Steps,
    TrainingConfig,
)
from whet.config.acts import ActsWhen


class RefCriticConfig(TrainingConfig, CriticRunConfig):
    """RefCritic: a critic trained with GRPO on its verdict and on refinements after its critique."""

    method: Literal["ref_critic"] = "ref_critic"
    roles: RolesConfig = RolesConfig(refinement=SamplingConfig(temperature=0.7, max_new_tokens=48))
    compared: ClassVar[str] = "roles.critique"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Steps of reinforcement learning."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer, which are compared."""
    num_refinements: Annotated[PerStep[int], ActsWhen("refine_weight")] = Field(4, ge=1)
    """Refinements after each critique (m). Only sampled where they count."""
    refine_weight: PerStep[float] = Field(1.0, ge=0)
    """Lambda. 0: the verdict alone is rewarded."""
    schedule: dict[str, Schedule] = Field({"refine_weight": Steps(values=(0.0, 1.0), at=(41,))})
    loss: PerStep[ClipLoss] = ClipLoss()
    """Of the critic."""
    kl: PerStep[KLConfig] = KLConfig()
    """To the critic of the warm start."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)
