"""The settings of Critique-Coder."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import ClipLoss, FixedBounds, PerStep, PolicyRunConfig, SamplingConfig, TrainingConfig
from whet.config.acts import ActsWhen


class CritiqueCoderConfig(TrainingConfig, PolicyRunConfig):
    """Critique-Coder's mix: solving and judging in one policy."""

    method: Literal["critique_coder"] = "critique_coder"
    judge_share: PerStep[float] = Field(0.2, ge=0, le=1)
    """The share of a step's problems of which a solution is judged. 0: plain GRPO with these settings."""
    judge_reward: Annotated[PerStep[float], ActsWhen("judge_share")] = Field(1.0, ge=0)
    """Of a right verdict. The paper takes 0.8 in its first phase, its code 1."""
    right_above: float = Field(0.8, ge=0, le=1)
    """A solution counts as right above this score."""
    critique: SamplingConfig = SamplingConfig(max_new_tokens=80)
    """How critiques are sampled."""
    kept_steps: Annotated[int, ActsWhen("judge_share")] = Field(10, ge=1)
    """Steps whose solutions may be judged."""
    loss: PerStep[ClipLoss] = ClipLoss(bounds=FixedBounds(high=1.3))

    @model_validator(mode="after")
    def check_judging(self) -> Self:
        settings = self.__dict__  # looking is no reading
        if settings["judge_share"] and settings["critique"].__dict__["temperature"] == 0:
            raise ValueError(
                "critique.temperature = 0 makes all judgments of a solution equal, so judging is not learnt; use 0.6 "
                "to 1.0, or set judge_share = 0"
            )
        return self
