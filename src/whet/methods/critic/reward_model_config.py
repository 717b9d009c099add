"""The settings of the reward model."""

from __future__ import annotations

from pydantic import Field

from whet.config import Config, LearningConfig


class RewardModelConfig(Config):
    """How the reward model learns."""

    num_steps: int = Field(40, ge=1)
    """Batches of pairs."""
    rows_per_step: int = Field(128, ge=2, multiple_of=2)
    """Answers in a batch; two make a pair."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3, minibatch_rows=128)
