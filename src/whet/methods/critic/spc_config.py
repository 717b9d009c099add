"""The settings of SPC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whet.config import LearningConfig, ModelConfig, RolesConfig, RunConfig, SamplingConfig


class SPCConfig(RunConfig):
    """SPC: a sneaky generator against a step critic, in rounds."""

    method: Literal["spc"] = "spc"
    generator: ModelConfig = ModelConfig()
    """Plants errors. Its warm start also continues from steps, to see which are errors."""
    critic: ModelConfig = ModelConfig()
    """Judges steps."""
    roles: RolesConfig = RolesConfig(refinement=SamplingConfig(max_new_tokens=16))
    """answer: continuations from a step; critique: judgments; refinement: planted steps."""
    sft_steps: int = Field(60, ge=1)
    """Batches of demonstrations for either side, before round 1."""
    num_rounds: int = Field(2, ge=1, le=100)
    """Of games and training."""
    games: int = Field(512, ge=2)
    """Games of a round, each on another training problem. In every other one the right step stands."""
    num_epochs: float = Field(2.0, gt=0)
    """How often a game is trained on in a round, on average."""
    sft_weight: float = Field(0.15, ge=0)
    """Of the likelihood of demonstrations. A batch has as many of them as of games."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=128)
