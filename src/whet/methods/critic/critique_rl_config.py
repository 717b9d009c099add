"""The settings of Critique-RL."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import InputFile, NameOf, PerStep
from whet.config.acts import ActsUnless, ActsWhen, AnyOf, Inside
from whet.config.critics import CriticEvaluation
from whet.config.runs import CriticRunConfig
from whet.methods.stages_config import Stage1, Stage2

MAX_ITERATIONS = 9


STAGED = AnyOf(ActsWhen("stage1.num_steps"), ActsWhen("stage2.num_steps"))
"""The critic is trained by reinforcement learning."""


class CritiqueRLConfig(CriticRunConfig):
    """Critique-RL: an actor answers, a critic critiques, the actor refines; the critic is trained in two stages."""

    method: Literal["critique_rl"] = "critique_rl"
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), STAGED] = Field({})
    traces_per_step: Annotated[int, STAGED] = Field(4, ge=0)
    evaluation: Annotated[CriticEvaluation, Inside("num_validation", STAGED)] = CriticEvaluation()
    answers: Annotated[Literal["online", "cached"], STAGED] = "online"
    """Where training answers come from: sampled anew each step (paper), or once before stage I (authors' code)."""
    answers_file: Annotated[InputFile | None, ActsWhen("answers", "cached")] = None
    """With answers = cached: JSON lines with question and answer to use instead of sampling."""
    cached_per_task: Annotated[int, ActsWhen("answers", "cached"), ActsUnless("answers_file")] = Field(1, ge=1)
    """With answers = cached and no file: answers sampled of each training problem."""
    stage1: Stage1 = Stage1()
    stage2: Stage2 = Stage2()
    iterations: Annotated[int, STAGED] = Field(1, ge=1, le=MAX_ITERATIONS)
    """How often both stages run (Table 2). Every stage starts from, and is held to, the best critic of the one before.
    So a later stage I goes on from the stage II before it. What the authors did is not published."""

    @model_validator(mode="after")
    def check_critiques(self) -> Self:
        if self.roles.critique.temperature == 0 and (self.stage1.num_steps or self.stage2.num_steps):
            raise ValueError(
                "roles.critique.temperature = 0 makes all critiques of an answer equal, so none is better than the "
                "others and nothing is learnt; use 0.7 or 1.0"
            )
        return self
