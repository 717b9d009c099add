"""The settings of RLTF-SD."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import Linear, PerStep, Schedule
from whet.config.acts import ActsWhen
from whet.config.parts import LearningConfig, ModelConfig, SamplingConfig
from whet.config.runs import FrozenRole, PolicyRunConfig, TrainingConfig


class RLTFConfig(TrainingConfig, PolicyRunConfig):
    """RLTF-SD: a critic's feedback while training; the policy learns to do without it."""

    method: Literal["rltf_sd"] = "rltf_sd"
    feedback: Literal["critic", "oracle", "judge"] = "critic"
    """Who comments on wrong answers: a frozen model; or, in the tiny world, a rule that knows the solution."""
    critic: Annotated[FrozenRole, ActsWhen("feedback", "critic")] = ModelConfig()
    """The model that comments."""
    critique: Annotated[SamplingConfig, ActsWhen("feedback", "critic")] = SamplingConfig(
        temperature=0.7, max_new_tokens=80
    )
    """How it does."""
    discount: PerStep[float] = Field(0.1, ge=0, le=1)
    """Gamma: what the second attempt's reward counts for the first."""
    distil: PerStep[float] = Field(0.1, ge=0)
    """Weight of the distilled rows. 0: none."""
    floor: Annotated[float, ActsWhen("distil")] = Field(-5.0, le=0)
    """Nats. Distilled tokens less likely than this under the plain question have advantage 0."""
    schedule: dict[str, Schedule] = Field({"distil": Linear(start=0.0, end=0.1, over=20)})
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=1024)
