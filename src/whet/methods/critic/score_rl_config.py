"""The settings of SCoRe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config import ClipLoss, PerStep, PolicyRunConfig, TrainingConfig
from whet.config.acts import ActsIf, ActsWhen


class ScoreConfig(TrainingConfig, PolicyRunConfig):
    """SCoRe: reinforcement learning of self-correction in two stages."""

    method: Literal["score_rl"] = "score_rl"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Of both stages."""
    first_stage: int = Field(40, ge=0)
    """Of these, steps of stage I."""
    group_size: int = Field(4, ge=2)
    """Pairs of attempts at each problem."""
    bonus: Annotated[
        PerStep[float],
        ActsIf(
            lambda settings: settings["first_stage"] < settings["num_steps"],
            when="first_stage is below num_steps",
            fact="first_stage takes all of num_steps, so there is no stage II",
        ),
    ] = Field(10.0, ge=0)
    """Alpha: weight of the second attempt's gain over the first, in stage II."""
    hold: Annotated[PerStep[float], ActsWhen("first_stage")] = Field(10.0, ge=0)
    """Beta_2: weight of the KL that keeps the first attempt in stage I; of a real model 0.1 may do."""
    kl: PerStep[float] = Field(0.01, ge=0)
    """Beta_1: weight of every other KL."""
    loss: PerStep[ClipLoss] = ClipLoss()
