"""Settings of AutoMathCritique: the roles, how wrong solutions are made, and which critiques are kept."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config.acts import ActsWhen, AnyOf, Inside, NoEffect
from whet.config.base import Config, NameOf, PerStep
from whet.config.inputs import InputFile
from whet.config.parts import BasicsData, ChainData, EndpointConfig, FileData, ModelConfig, SamplingConfig, WatchConfig
from whet.config.runs import NO_TEXTBOOK, FrozenRole, RunConfig


class RuleConfig(Config):
    """A rule, in a model's place."""

    kind: Literal["rule"] = "rule"
    name: Annotated[str, Field(min_length=1)] = "oracle"
    """Of annotators: oracle; in the tiny world also judge, alarmist, empty, false. Of corrupters: catalogue."""


AnyRole = Annotated[ModelConfig | EndpointConfig | RuleConfig, Field(discriminator="kind")]
"""A role that a rule can fill too."""
Mistakes = Annotated[tuple[str, ...], Field(min_length=1)]


class AnnotationRoles(Config):
    """How each role samples."""

    answer: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=64)
    """The actor's solutions; its temperature is RG1's, and RG2's before the actor is pushed off."""
    mistake: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=64)
    """A model as corrupter."""
    critique: SamplingConfig = SamplingConfig(temperature=0.0, max_new_tokens=192)
    """A model as annotator."""
    refinement: SamplingConfig = SamplingConfig(temperature=0.7, max_new_tokens=64)
    """The actor's refinements, which the soft filter counts."""

    @model_validator(mode="after")
    def check_draws(self) -> Self:
        if self.refinement.temperature == 0:
            raise ValueError(
                "refinement.temperature = 0 makes all refinements of a critique equal, so the soft filter "
                "would count one of them N times; set it above 0"
            )
        return self


class RG1Config(Config):
    """Solutions sampled from scratch."""

    num_samples: int = Field(10, ge=0)
    """Of each question. 0: none."""


class RG2Config(Config):
    """Solutions that are pushed off at a step: from there on they are sampled hotter."""

    num_samples: int = Field(4, ge=0)
    """Of each question. 0: none."""
    temperature: Annotated[float, ActsWhen("num_samples")] = Field(1.0, gt=0)
    """From the step on, to the end."""


class RG3Config(Config):
    """Solutions with a mistake of the catalogue planted into a step."""

    num_samples: int = Field(4, ge=0)
    """Of each question. 0: none."""
    mistakes: Annotated[Mistakes, ActsWhen("num_samples")] = (
        "arithmetic",
        "operator",
        "sign",
        "quantity",
        "off_by_one",
        "conversion",
    )
    """Of the catalogue (`mistakes.py` beside this). Those that no rule makes (condition, formula, case, unjustified)
    need a model as the corrupter."""
    prefix: Annotated[Literal["actor", "reference"], ActsWhen("num_samples")] = "actor"
    """Whose steps come before the mistake: those of a right solution of the actor's, or of the worked solution."""
    rest: Annotated[Literal["actor", "recomputed"], ActsWhen("num_samples")] = "actor"
    """What comes after it: the actor goes on, or the worked solution's steps with the wrong value carried through."""


class LocateConfig(Config):
    """First-error labels by Monte Carlo: completions from after each step."""

    num_completions: int = Field(0, ge=0)
    """From after each step of a wrong solution without a known place. 0: none is located."""
    threshold: Annotated[float, ActsWhen("num_completions")] = Field(0.0, ge=0, lt=1)
    """The first step after which at most this share of completions is right is where a solution goes wrong."""


class FiltersConfig(Config):
    """Which critiques are kept."""

    format: bool = True
    """Exactly one verdict, and the response's steps repeated in order with a label each."""
    verdict: bool = True
    """The verdict is the grader's; of a right response every step is called right too."""
    location: bool = True
    """The first step called wrong is the hint's; with RG2 and Monte Carlo it may be a later one, which is flagged."""
    hint_leak: bool = True
    """No word of a reference or a hint."""
    answer_leak: Literal["measure", "mask", "drop"] = "measure"
    """Critiques that hold the reference answer: they are flagged and counted; or refiners read a placeholder in its
    place; or they are dropped. The tiny world has no token for a placeholder."""
    num_refinements: int = Field(10, ge=0)
    """Refinements of each critique (N). 0: no soft filter."""
    threshold: Annotated[float, ActsWhen("num_refinements")] = Field(0.3, ge=0, le=1)
    """Kept where at least ceil(threshold N) refinements are right."""
    barrier: Annotated[bool, ActsWhen("num_refinements")] = True
    """The refinement that is written down must calculate about as much as the worked solution or the response does."""


MAKING = ("rg1", "rg2", "rg3")
"""What makes solutions; each has settings of its name."""
_MAKES = AnyOf(*(ActsWhen(f"{name}.num_samples") for name in MAKING))
"""Something makes solutions."""


class CritiqueDataConfig(RunConfig):
    """Base of methods that make critiques: the roles, which solutions, and which critiques are kept."""

    data: Annotated[ChainData | FileData | BasicsData, Field(discriminator="kind"), NO_TEXTBOOK] = ChainData()
    """The problems; those for training, and never others."""
    rewards: Annotated[
        PerStep[dict[str, float]], NameOf("reward term"), NoEffect("critiques are made, and nothing is rewarded")
    ] = Field({})
    watch: Annotated[WatchConfig, NoEffect("critiques are made, and nothing is learnt")] = WatchConfig()
    traces_per_step: int = Field(200, ge=0)
    """Critiques of each source, kept or dropped by each filter, that the page shows; the files hold all."""
    actor: FrozenRole = ModelConfig()
    """Solves, goes on and refines."""
    annotator: AnyRole = RuleConfig()
    """Critiques, with hints. A rule has them from its data; a model gets them in words."""
    corrupter: Annotated[AnyRole, ActsWhen("rg3.num_samples")] = RuleConfig(name="catalogue")
    """Writes the steps with mistakes, for RG3."""
    roles: Annotated[
        AnnotationRoles,
        Inside(("answer.temperature", "answer.top_p"), AnyOf(_MAKES, ActsWhen("locate.num_completions"))),
        Inside("mistake", ActsWhen("corrupter.kind", "model", "endpoint")),
        Inside("critique", ActsWhen("annotator.kind", "model", "endpoint")),
        Inside("refinement", ActsWhen("filters.num_refinements")),
    ] = AnnotationRoles()
    rg1: RG1Config = RG1Config()
    rg2: RG2Config = RG2Config()
    rg3: RG3Config = RG3Config()
    given: InputFile | None = None
    """Answers of your own: JSON lines with question, answer and, as they are known, correct, reference, error_step
    (from 0; -1: none) and mistake."""
    trajectories: tuple[InputFile, ...] = ()
    """Files of an agent's episodes: the question is the first observation, the answer its turns, right where it
    succeeded. They cannot be refined without their environment, so the soft filter skips them."""
    steps: Literal["lines", "sentences"] = "lines"
    """What a step of a solution is: a line (GSM8K), or a sentence (MATH)."""
    num_questions: Annotated[int | None, _MAKES] = Field(60, ge=1)
    """Training problems in use, the first ones in the run's order. None: all."""
    ratio: Annotated[dict[str, Annotated[float, Field(ge=0)]], _MAKES] = Field({"rg1": 1.0, "rg2": 1.0, "rg3": 1.0})
    """Of wrong solutions that are critiqued, by source; where one has too few, the others give fewer too. {}: all."""
    right_share: Annotated[float, _MAKES] = Field(0.5, ge=0)
    """Right solutions for each wrong one that are critiqued too. Who never sees one learns to call everything wrong."""
    locate: LocateConfig = LocateConfig()
    filters: FiltersConfig = FiltersConfig()
    questions_per_step: Annotated[int, _MAKES] = Field(16, ge=1)
    """Problems solved in a step."""
    records_per_step: int = Field(32, ge=1)
    """Solutions critiqued, or refined, in a step."""

    @model_validator(mode="after")
    def check_sources(self) -> Self:
        settings = self.__dict__  # looking is no reading
        counts = {name: settings[name].__dict__["num_samples"] for name in MAKING}
        if not any(counts.values()) and settings["given"] is None and not settings["trajectories"]:
            raise ValueError(
                "nothing is to be critiqued: set rg1.num_samples, rg2.num_samples or rg3.num_samples "
                "above 0, or give answers (given) or episodes (trajectories)"
            )
        if strangers := sorted(set(settings["ratio"]) - set(MAKING)):
            raise ValueError(f"ratio names {strangers[0]!r}; it is of rg1, rg2 and rg3")
        return self
