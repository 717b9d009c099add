"""The settings of STaR of a critic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import CriticRunConfig, LearningConfig, NameOf, PerStep
from whet.config.acts import NoEffect


class StarConfig(CriticRunConfig):
    """STaR for critics: iterated imitation of one's own critiques that helped."""

    method: Literal["star_critic"] = "star_critic"
    rewards: Annotated[
        PerStep[dict[str, float]],
        NameOf("reward term"),
        NoEffect("which critiques are kept goes by the refinement alone"),
    ] = Field({})
    num_rounds: int = Field(4, ge=1, le=100)
    """Of sampling and imitation."""
    num_steps: int = Field(20, ge=1, le=10**9)
    """Steps in which a round samples."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=1)
    """Critiques of each answer; every one that a right refinement follows is kept."""
    balanced: bool = False
    """True: the class of answers, right or wrong, with more kept critiques loses the excess."""
    anew: bool = True
    """True: every round starts from the warm start's critic (STaR). False: from the critic of the round before."""
    num_epochs: float = Field(2.0, gt=0)
    """How often a kept critique is imitated in its round, on average."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(10, ge=1)
    """Batches between validations; the best validated critic of all rounds is the result."""
