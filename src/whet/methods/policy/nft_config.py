"""The settings of NFT."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import Aggregation, Config, LearningConfig, NameOf, PerStep, PolicyRunConfig, TrainingConfig
from whet.config.acts import ActsWhen, NoEffect


class NFTLoss(Config):
    """Settings of NFT's loss."""

    omega: Literal["dr_grpo", "grpo", "one"] = "dr_grpo"
    """How a problem weighs by its success rate r: 1 - r, sqrt((1 - r) / r), or 1."""
    negative_weight: float = Field(1.0, ge=0)
    """Of wrong answers. 1: NFT; 0: they are left out."""
    epsilon: Annotated[float, ActsWhen("negative_weight")] = Field(1.0, gt=0)
    """Floor of the negative policy's ratio. Small values let single tokens push hard."""


class NFTConfig(TrainingConfig, PolicyRunConfig):
    """NFT: right answers are imitated, wrong ones push their implicit negative policy."""

    method: Literal["nft"] = "nft"
    rewards: Annotated[
        PerStep[dict[str, float]],
        NameOf("reward term"),
        NoEffect("NFT learns from right and wrong alone, whatever other rewards a reply has"),
    ] = Field({})
    resample: PerStep[int] = Field(3, ge=0)
    """At most so many more batches, until prompts_per_step problems have both right and wrong replies."""
    loss: PerStep[NFTLoss] = NFTLoss()
    aggregation: Aggregation = "constant"
    """How token losses are averaged; the authors sum over tokens with a constant divisor."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=32)
