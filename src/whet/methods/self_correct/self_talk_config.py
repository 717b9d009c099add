"""The settings of self-correction (`self_talk`)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import Config, InputFile, LearningConfig, NameOf, PerStep, RolesConfig, SamplingConfig
from whet.config.acts import ActsWhen, Inside, NoEffect
from whet.config.critics import ExampleColumns
from whet.config.parts import ModelConfig, PolicyEvaluation
from whet.config.runs import FrozenRole, PolicyRunConfig

Arm = Literal["plain", "response", "self_talk"]


ARMS: tuple[Arm, ...] = ("plain", "response", "self_talk")
"""The forms in which an actor can learn the same chains."""


class CriticStart(Config):
    """SFT of the critic, before it comments."""

    critic_steps: int = Field(100, ge=0)
    """Batches of critiques. 0: the critic is used as it is."""
    rows_per_step: Annotated[int, ActsWhen("critic_steps")] = Field(64, ge=1)
    """Critiques in a batch (one optimiser update)."""
    file: Annotated[InputFile | None, ActsWhen("critic_steps")] = None
    """JSON lines, a JSON list or Parquet with question, answer and critique. None: made from the tiny world's author,
    or from the set's worked solutions."""
    columns: Annotated[ExampleColumns, ActsWhen("file")] = ExampleColumns()
    learning: Annotated[LearningConfig, ActsWhen("critic_steps")] = LearningConfig(learning_rate=1e-3)


class SelfTalkConfig(PolicyRunConfig):
    """Self-talk: an actor learns to comment on its own steps and to mend them."""

    method: Literal["self_talk"] = "self_talk"
    rewards: Annotated[
        PerStep[dict[str, float]], NameOf("reward term"), NoEffect("which texts are learnt goes by the grade alone")
    ] = Field({})
    feedback: Literal["critic", "oracle", "judge"] = "critic"
    """Who comments: a model; or, in the tiny world, a rule that knows the solution, with corrections (oracle) or
    without (judge)."""
    critic: Annotated[FrozenRole, ActsWhen("feedback", "critic")] = ModelConfig()
    """The model that comments; frozen after its warm start. kind=endpoint: a model behind a server, which has none."""
    warm_start: Annotated[CriticStart, ActsWhen("critic.kind", "model")] = CriticStart()
    roles: Annotated[RolesConfig, Inside("critique", ActsWhen("feedback", "critic"))] = RolesConfig(
        answer=SamplingConfig(max_new_tokens=48),
        critique=SamplingConfig(temperature=0.0, max_new_tokens=80),
        refinement=SamplingConfig(max_new_tokens=48),
    )
    """answer, critique: as they are asked for; refinement: how the actor goes on from a step found wrong."""
    smoother: FrozenRole | None = None
    """A model that smooths further what the rule has made of the comments. None: the rule alone."""
    smoothing: Annotated[SamplingConfig, ActsWhen("smoother")] = SamplingConfig(temperature=0.0, max_new_tokens=1024)
    """How the smoother samples."""
    num_steps: int = Field(40, ge=1, le=10**9)
    """Steps of building the data."""
    prompts_per_step: int = Field(128, ge=1)
    """Problems in a step of building."""
    group_size: int = Field(1, ge=1)
    """Chains of each problem."""
    max_rounds: int = Field(4, ge=1, le=100)
    """Times that the actor may write on from a step found wrong, in a chain."""
    clean_share: float = Field(0.3, ge=0, lt=1)
    """Of the texts learnt, at most so many without a repair, so that checking does not imply changing."""
    mistakes: bool = True
    """Whether the steps found wrong are learnt too. False: they are read, and only what is around them is learnt."""
    forms: tuple[Arm, ...] = ARMS
    """What is learnt, each anew from the actor as it was: self_talk, response (whole-response self-correction), plain
    (the right answers alone)."""
    num_epochs: float = Field(6.0, gt=0)
    """How often a text is learnt, on average."""
    rows_per_step: int = Field(32, ge=1)
    """Texts in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3, minibatch_rows=32)
    sampling: SamplingConfig = SamplingConfig(max_new_tokens=192)
    """Of the replies measured. Self-talk is long: a text that would not fit is not learnt."""
    evaluation: PolicyEvaluation = PolicyEvaluation(num_samples=0)
    validate_every: int = Field(40, ge=1)
    """Batches between validations; of each form the best validated weights are kept."""

    @model_validator(mode="after")
    def check_forms(self) -> Self:
        forms = self.__dict__["forms"]  # looking is no reading
        if not forms or len(set(forms)) < len(forms):
            raise ValueError(f"forms = {list(forms)}: name some of {', '.join(ARMS)}, each once")
        return self
