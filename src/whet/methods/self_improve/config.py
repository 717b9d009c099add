"""Settings of self-improvement with a critic in the loop (`methods/self_improve/critique_loop.py`)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config.acts import ActsUnless, ActsWhen, AnyOf, Inside, NoEffect
from whet.config.base import Config, NameOf, PerStep
from whet.config.critics import WarmStartConfig
from whet.config.parts import BasicsData, ChainData, FileData, LearningConfig, ModelConfig, SamplingConfig
from whet.config.runs import FrozenRole, Merge, PolicyRunConfig


class AllocationConfig(Config):
    """How attempts at refining are shared out to questions."""

    kind: Literal["implicit", "explicit"] = "implicit"
    """`implicit` (published): `num_refinements` after every critique, so in proportion to a question's wrong answers.
    `explicit`: a budget is shared out in that proportion; a question is left once it has `keep`."""
    budget: Annotated[int, ActsWhen("kind", "explicit")] = Field(1000, ge=1)
    """Attempts in a round; its steps have them by their number of questions. Every question with a wrong answer gets
    one at least."""
    cap: Annotated[int | None, ActsWhen("kind", "explicit")] = Field(10, ge=1)
    """Of one question's attempts. None: none."""


class DifficultyConfig(Config):
    """How hard questions are, for the policy before its first round."""

    num_samples: int = Field(10, ge=0)
    """Answers to each explored and each tested question, which serve for nothing else. 0: levels are not measured."""


_HELPED = ActsUnless("feedback", "none")
"""Wrong answers are critiqued and refined."""


class CritiqueLoopConfig(PolicyRunConfig):
    """Self-improvement with a critic: explore, critique what is wrong, refine, keep what is right, learn."""

    method: Literal["critique_loop"] = "critique_loop"
    data: Annotated[
        ChainData | FileData | BasicsData,
        Field(discriminator="kind"),
        Inside(
            "misconceptions",
            ActsUnless("warm_start.file"),
            AnyOf(ActsWhen("warm_start.actor_steps"), ActsWhen("num_originals")),
        ),
    ] = ChainData(num_test=300)
    """The problems."""
    rewards: Annotated[
        PerStep[dict[str, float]], NameOf("reward term"), NoEffect("which solutions are kept goes by the grade alone")
    ] = Field({})
    sampling: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=96)
    """Of answers."""
    feedback: Literal["critic", "none", "binary", "hint", "oracle"] = "critic"
    """The feedback on a wrong answer. `critic`: the critic's critique. `none`: no feedback (vanilla). `binary`: that
    it is wrong. `hint`: that, and the reference answer. `oracle`: by a rule that knows the solution."""
    critic: Annotated[FrozenRole, ActsWhen("feedback", "critic")] = ModelConfig()
    """Who critiques; it is never shown a reference, and not trained after its warm start."""
    critique: Annotated[SamplingConfig, ActsWhen("feedback", "critic")] = SamplingConfig(
        temperature=0.0, max_new_tokens=96
    )
    """How the critic samples; one critique a wrong answer."""
    refinement: Annotated[SamplingConfig, _HELPED] = SamplingConfig(temperature=0.7, max_new_tokens=96)
    """Of refinements."""
    warm_start: Annotated[
        WarmStartConfig,
        Inside("critic_steps", ActsWhen("critic.kind", "model")),
        Inside("refine_share", AnyOf(ActsWhen("warm_start.actor_steps"), ActsWhen("num_originals"))),
        Inside(
            "file",
            AnyOf(ActsWhen("warm_start.actor_steps"), ActsWhen("warm_start.critic_steps"), ActsWhen("num_originals")),
        ),
    ] = WarmStartConfig(critic_steps=60)
    """Of the policy, on answers and refinements, and of the critic."""
    num_originals: Annotated[int, ActsUnless("merge", "none")] = Field(1000, ge=0)
    """Demonstrations that are learnt beside what a round kept (`merge`); answers and refinements as in the warm
    start."""
    gold_share: Annotated[
        float, ActsWhen("num_originals"), ActsWhen("data.kind", "chains"), ActsUnless("warm_start.file")
    ] = Field(1.0, ge=0, le=1)
    """Share of these demonstrations that are right, drawn one by one. 1: all, as in published base data. The others
    are the careless author's of the tiny world, and about half of those are wrong. A file's rows and worked solutions
    are taken as they are."""
    num_rounds: int = Field(3, ge=1, le=100)
    """Of exploring and learning (T)."""
    num_explored: int | None = Field(200, ge=1)
    """The first so many training questions in the run's order, the same in every round. None: all."""
    prompts_per_step: int = Field(40, ge=1)
    """Questions in a step of exploring."""
    num_samples: int = Field(5, ge=1)
    """Answers to each question in a round (N)."""
    token_budget: Annotated[tuple[Annotated[int, Field(ge=1)], ...], ActsWhen("feedback", "none")] = ()
    """Tokens that are to be written in each round; the last number counts for later rounds too. After `num_samples`
    each question is answered again and again until they are spent. The `tokens` of a run are in its rounds.json. (): no
    such budget."""
    num_refinements: Annotated[int | None, _HELPED, ActsWhen("allocation.kind", "implicit")] = Field(None, ge=1)
    """After each critique. None: as many as `num_samples` (published)."""
    allocation: Annotated[AllocationConfig, _HELPED] = AllocationConfig()
    keep: Annotated[int, _HELPED] = Field(1, ge=1)
    """Right refinements that are kept after each critique, equal ones as often as they come (published); with an
    explicit allocation, of each question."""
    barrier: Annotated[bool, _HELPED] = True
    """Leave out right refinements with far fewer numbers than the solution and the answer have (published)."""
    conditional: Annotated[bool, _HELPED] = False
    """Learn each kept refinement also after its question, answer and critique."""
    per_question: int | None = Field(None, ge=1)
    """Solutions of one question that are learnt, at most, answers before refinements. None: all (published)."""
    distinct: bool = False
    """Of a question's solutions with the same equations learn one (RFT)."""
    merge: Merge = "base"
    """What is learnt beside a round's solutions. `base`: the demonstrations. `previous`: what the round before kept, in
    round 1 the demonstrations. `cumulative`: the demonstrations and all earlier rounds. `none`: nothing."""
    start: Literal["base", "warm_start", "last"] = "base"
    """Where a round's learning starts: at the model as it was loaded (published), at that after its warm start, or at
    the one that explored."""
    num_epochs: float = Field(1.0, gt=0)
    """How often an example is learnt in a round, on average."""
    rows_per_step: int = Field(64, ge=1)
    """Examples in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(20, ge=1)
    """Batches between validations; the best validated weights of all rounds are kept."""
    test_rounds: bool = True
    """Whether the test questions are answered after every round as well, for a row of the table each."""
    difficulty: DifficultyConfig = DifficultyConfig()

    @model_validator(mode="after")
    def check_loop(self) -> Self:
        settings = self.__dict__  # looking is no reading
        if settings["token_budget"] and settings["feedback"] != "none":
            raise ValueError("token_budget is spent on answers alone: set feedback = none, or leave it out")
        if settings["num_samples"] > 1 and settings["sampling"].temperature == 0:
            raise ValueError(
                "num_samples > 1 with sampling.temperature = 0 gives the same answer every time; set the "
                "temperature above 0, or num_samples = 1"
            )
        if settings["token_budget"] and settings["sampling"].temperature == 0:
            raise ValueError(
                "token_budget with sampling.temperature = 0 spends it on the same answer again and again; set "
                "the temperature above 0"
            )
        return self

    @property
    def has_critic(self) -> bool:
        return self.feedback == "critic"
