"""Settings that methods with a critic share: how the seats sample, the warm start, and how critics are measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whet.config.base import Config
from whet.config.inputs import InputFile
from whet.config.parts import LearningConfig, SamplingConfig


class RolesConfig(Config):
    """How each role samples while training. Evaluation is greedy, with the same limits."""

    answer: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=48)
    """The actor's answers that are critiqued."""
    critique: SamplingConfig = SamplingConfig(temperature=1.0, max_new_tokens=80)
    """The critic, trained on what it samples here."""
    refinement: SamplingConfig = SamplingConfig(temperature=0.0, max_new_tokens=48)
    """The actor's refinements inside the reward; greedy in the authors' code of Critique-RL."""

    @property
    def written(self) -> int:
        """Tokens that all of them may write in a round."""
        return self.answer.max_new_tokens + self.critique.max_new_tokens + self.refinement.max_new_tokens


class WarmStartConfig(Config):
    """Supervised fine-tuning of actor and critic before any reinforcement learning."""

    actor_steps: int = Field(40, ge=0)
    """Batches of answers and refinements. 0: the actor is used as it is."""
    critic_steps: int = Field(100, ge=0)
    """Batches of critiques. 0: the critic is used as it is."""
    rows_per_step: int = Field(64, ge=1)
    """Examples in a batch (one optimiser update)."""
    refine_share: float = Field(0.4, ge=0, le=1)
    """Of the actor's examples, those that refine; the others answer. In the paper 12,000 of 33,973."""
    file: InputFile | None = None
    """JSON lines with question, answer, and critique, refinement, correct as they are there. None: made from the
    tiny world's author, or from the set's worked solutions."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)


class CriticEvaluation(Config):
    """What is measured at the end, greedily, on test problems."""

    num_rounds: int = Field(1, ge=1, le=1000)
    """Rounds of critique and refinement."""
    history: Literal["full", "last"] = "full"
    """What later rounds see: everything so far (paper), or the last answer only (authors' code)."""
    oracle_verifier: bool = False
    """True: answers that the verifier finds right are kept and go to no critic."""
    num_validation: int | None = Field(None, ge=1)
    """Validation problems in use. None: all."""
    num_test: int | None = Field(None, ge=1)
    """Test problems in use. None: all."""
