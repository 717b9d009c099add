"""The settings of DPO on critiques."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from whet.config import CriticRunConfig, LearningConfig, PerStep, TrainingConfig


class CritiqueDPOConfig(TrainingConfig, CriticRunConfig):
    """DPO on critique pairs: the critique that helped most is preferred to the one that helped least."""

    method: Literal["critique_dpo"] = "critique_dpo"
    compared: ClassVar[str] = "roles.critique"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Steps: sample critiques, pair them, update."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step; each gives one pair at most."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer."""
    verdict_weight: PerStep[float] = Field(0.5, ge=0)
    """What a right verdict is worth beside a right refinement."""
    margin: PerStep[float] = Field(0.0, ge=0)
    """Smallest difference in reward between the two of a pair."""
    kind: Literal["logistic", "ipo"] = "logistic"
    """Of the loss: DPO's, or IPO's (arXiv:2310.12036) squared distance."""
    beta: PerStep[float] = Field(0.1, gt=0)
    """How closely the critic is held to the reference."""
    iterated: int = Field(0, ge=0)
    """Steps after which the reference becomes the critic as it is. 0: never."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-4, minibatch_rows=64)

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        if self.learning.minibatch_rows % 2:
            raise ValueError("learning.minibatch_rows has to be an even number: a pair is two rows")
        return self
