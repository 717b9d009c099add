"""Settings of Critique-RL (arXiv:2510.24320). Where paper and authors' code differ, the default is named."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config.base import Config
from whet.config.parts import (
    ChainData,
    EngineConfig,
    FileData,
    LearningConfig,
    ModelConfig,
    SamplingConfig,
    WatchConfig,
)


class RolesConfig(Config):
    """How each role samples while training. Evaluation is greedy, with the same limits."""

    answer: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=48)
    """The actor's answers that are critiqued."""
    critique: SamplingConfig = SamplingConfig(temperature=1.0, max_new_tokens=80)
    """The critic, trained on what it samples here."""
    refinement: SamplingConfig = SamplingConfig(temperature=0.0, max_new_tokens=48)
    """The actor's refinements inside the reward; greedy in the authors' code."""


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
    file: str | None = None
    """JSON lines with question, answer, and critique, refinement, correct as they are there. None: made from the
    tiny world's author, or from the set's worked solutions."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)


class RLConfig(Config):
    """What the two stages share: the update of section 3.1 in the spec."""

    num_steps: int = Field(40, ge=0, le=10**9)
    """Steps of the stage. 0: the stage is left out."""
    prompts_per_step: int = Field(32, ge=1)
    """Answers critiqued in a step."""
    group_size: int = Field(4, ge=2)
    """Critiques of each answer; the others of the group are each one's baseline."""
    kl_coef: float = Field(0.01, ge=0, le=1e6)
    """Weight of the KL to the stage's reference in the reward. 0: no reference is scored."""
    sequence_level: bool = False
    """False (authors' code): leave-one-out on the bare reward, KL per token as reward-to-go, whitening over tokens.
    True (textbook RLOO): KL summed into the reward before the baseline, one credit a sequence, no whitening."""
    clip: float = Field(0.2, gt=0)
    """PPO's clip of the ratio, on both sides."""
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the stage's result is the best validated checkpoint."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=64)


class Stage1Config(RLConfig):
    """Stage I: the critic learns to judge."""

    scale: Literal["signed", "unit"] = "signed"
    """Pay of the verdict: signed is +1 right, -1 wrong or unparsed (authors' code); unit is 1 and 0 (paper, eq. 7)."""


class Stage2Config(RLConfig):
    """Stage II: the critic learns to help, held to its judgment."""

    indirect: Literal["refine", "delta", "correction"] = "refine"
    """What the refinement is worth: eq. 4, 5 or 6."""
    discrimination: bool = True
    """Pay for the verdict too. False: the indirect reward alone."""
    combine: Literal["gated", "additive"] = "gated"
    """gated (authors' code): a wrong verdict costs -1 whatever the refinement; additive (paper, eq. 9): a bonus."""
    weight: float = Field(0.2, ge=0)
    """Of the verdict's bonus: beta_1."""


class EvaluationConfig(Config):
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


class CritiqueRLConfig(Config):
    """Critique-RL: an actor answers, a critic critiques, the actor refines; the critic is trained in two stages."""

    recipe: Literal["critique_rl"] = "critique_rl"
    """Which recipe these are the settings of."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything that is random in the run."""
    num_threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads. Same bits need the same number. None: torch's choice."""
    data: Annotated[ChainData | FileData, Field(discriminator="kind")] = ChainData()
    """The problems."""
    dialect: Literal["chains", "english"] = "chains"
    """Wording of the prompts: the tiny world's, or plain English for real models."""
    actor: ModelConfig = ModelConfig()
    """Answers and refines; frozen after its warm start."""
    critic: ModelConfig = ModelConfig()
    """The model that reinforcement learning trains."""
    engine: EngineConfig = EngineConfig()
    roles: RolesConfig = RolesConfig()
    answers: Literal["online", "cached"] = "online"
    """Where training answers come from: sampled anew each step (paper), or once before stage I (authors' code)."""
    answers_file: str | None = None
    """With answers = cached: JSON lines with question and answer to use instead of sampling."""
    cached_per_task: int = Field(1, ge=1)
    """With answers = cached and no file: answers sampled of each training problem."""
    warm_start: WarmStartConfig = WarmStartConfig()
    stage1: Stage1Config = Stage1Config()
    stage2: Stage2Config = Stage2Config()
    evaluation: EvaluationConfig = EvaluationConfig()
    watch: WatchConfig = WatchConfig()
    checkpoint_every: int = Field(20, ge=0)
    """Steps between checkpoints. 0: at the end of each phase only."""
    traces_per_step: int = Field(4, ge=0)
    """Training answers a step whose critiques are kept for the report."""

    @model_validator(mode="after")
    def check_dialect(self) -> Self:
        if (self.data.kind == "chains") != (self.dialect == "chains"):
            raise ValueError(
                f"dialect = {self.dialect!r} does not fit data.kind = {self.data.kind!r}: the tiny world speaks "
                "'chains', files are put to the model in 'english'"
            )
        if self.roles.critique.temperature == 0 and (self.stage1.num_steps or self.stage2.num_steps):
            raise ValueError(
                "roles.critique.temperature = 0 makes all critiques of an answer equal, so none is better than the "
                "others and nothing is learnt; use 0.7 or 1.0"
            )
        return self
