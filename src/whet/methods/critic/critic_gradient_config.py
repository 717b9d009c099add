"""The settings of RL of a critic by its refinements."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from whet.config import CriticRunConfig, NameOf, PerStep, TrainingConfig
from whet.config.acts import ActsWhen
from whet.config.critics import IndirectName
from whet.config.losses import Aggregation, ClipLoss, KLConfig, PolicyLoss, ValueConfig
from whet.config.parts import LearningConfig


class CriticGradientConfig(TrainingConfig, CriticRunConfig):
    """RL of a critic by the refinements alone: CTRL and Retroformer are presets of it."""

    method: Literal["critic_gradient"] = "critic_gradient"
    compared: ClassVar[str] = "roles.critique"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Steps: critique, refine, update."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer."""
    indirect: PerStep[IndirectName] = "refine"
    """What the refinement is worth: eq. 4, 5 or 6 of Critique-RL."""
    requires_verdict: PerStep[bool] = False
    """True (CTRL's code): a critique without a readable verdict is rewarded 0. False: the refinement alone counts."""
    advantage: Annotated[str, NameOf("advantage")] = "grpo"
    """From rewards to credit: grpo (CTRL), gae (Retroformer's PPO), or any other name that policy_gradient takes."""
    value: Annotated[ValueConfig, ActsWhen("advantage", "gae")] = ValueConfig()
    loss: PerStep[PolicyLoss] = ClipLoss()
    """Of the critic."""
    aggregation: Aggregation = "sequence_mean"
    """How token losses are averaged."""
    kl: PerStep[KLConfig] = KLConfig(coef=0.01)
    """To the critic of the warm start."""
    entropy_coef: PerStep[float] = Field(0.0, ge=0, le=1e6)
    """Weight of a bonus for the critic's entropy, nats a token, averaged as the loss is. 0: none."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)

    @model_validator(mode="after")
    def check_warmup(self) -> Self:
        rows = self.prompts_per_step * self.group_size
        if self.advantage == "gae" and (problem := self.value.warmup_problem(rows, self.num_steps)):
            raise ValueError(problem)
        return self
