"""The settings of the two stages of Critique-RL (arXiv:2510.24320)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import Config, LearningConfig, PerStep
from whet.config.acts import ActsWhen
from whet.config.critics import IndirectName


class Stage(Config):
    """What the two stages share: the update of section 3.1 in the spec.

    The sizes of a stage that is left out may be set without effect, as they are often set for both stages at once.
    """

    num_steps: int = Field(40, ge=0, le=10**9)
    """Steps of the stage. 0: the stage is left out."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: PerStep[int] = Field(4, ge=2)
    """Critiques of each answer; the others of the group are each one's baseline."""
    kl_coef: Annotated[PerStep[float], ActsWhen("num_steps")] = Field(0.01, ge=0, le=1e6)
    """Weight of the KL to the stage's reference in the reward. 0: no reference is scored."""
    sequence_level: Annotated[bool, ActsWhen("num_steps")] = False
    """False (authors' code): leave-one-out on the bare reward, KL per token as reward-to-go, whitening over tokens.
    True (textbook RLOO): KL summed into the reward before the baseline, one credit a sequence, no whitening."""
    clip: Annotated[PerStep[float], ActsWhen("num_steps")] = Field(0.2, gt=0)
    """PPO's clip of the ratio, on both sides."""
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the stage's result is the best validated checkpoint."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)


class Stage1(Stage):
    """Stage I: the critic learns to judge."""

    scale: Annotated[PerStep[Literal["signed", "unit"]], ActsWhen("num_steps")] = "signed"
    """Reward of the verdict: signed is +1 right, -1 wrong or unparsed (authors' code); unit: 1 and 0 (paper, eq. 7)."""


class Stage2(Stage):
    """Stage II: the critic learns to help, held to its judgment."""

    indirect: Annotated[PerStep[IndirectName], ActsWhen("num_steps")] = "refine"
    """What the refinement is worth: eq. 4, 5 or 6."""
    discrimination: Annotated[PerStep[bool], ActsWhen("num_steps")] = True
    """True: the verdict is rewarded too. False: the indirect reward alone."""
    combine: Annotated[PerStep[Literal["gated", "additive"]], ActsWhen("discrimination")] = "gated"
    """gated (authors' code): a wrong verdict is rewarded -1, whatever the refinement.
    additive (paper, eq. 9): a bonus."""
    weight: Annotated[PerStep[float], ActsWhen("discrimination")] = Field(0.2, ge=0)
    """Of the verdict's bonus: beta_1."""
