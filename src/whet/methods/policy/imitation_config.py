"""The settings of imitation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import InputFile, LearningConfig, NameOf, PerStep, PolicyRunConfig, SamplingConfig
from whet.config.acts import ActsUnless, ActsWhen, AnyOf, Inside, NoEffect
from whet.config.critics import ExampleColumns
from whet.config.parts import BasicsData, ChainData, FileData, GymData, WatchConfig

GIVEN = "the texts to imitate are given, and nothing is sampled to learn from"


class ImitationConfig(PolicyRunConfig):
    """Imitation: a policy learns to write given texts."""

    method: Literal["imitation"] = "imitation"
    data: Annotated[
        ChainData | FileData | GymData | BasicsData,
        Field(discriminator="kind"),
        Inside("misconceptions", ActsUnless("file"), AnyOf(ActsWhen("solve"), ActsWhen("refine"))),
    ] = ChainData()
    """The problems."""
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), NoEffect(GIVEN)] = Field({})
    watch: Annotated[WatchConfig, Inside(("flat_share", "kl_warn", "kl_stop", "same_start"), NoEffect(GIVEN))] = (
        WatchConfig()
    )
    traces_per_step: Annotated[int, NoEffect(GIVEN)] = Field(2, ge=0)
    sampling: SamplingConfig = SamplingConfig(max_new_tokens=96)
    """How the measured samples are drawn."""
    file: InputFile | None = None
    """JSON lines, a JSON list or Parquet with question and answer; and critique, refinement and correct, if there.
    None: the texts of the tiny world's author, or the set's worked solutions."""
    columns: Annotated[ExampleColumns, ActsWhen("file")] = ExampleColumns()
    solve: float = Field(1.0, ge=0)
    """How often a text is an answer, as a weight beside the other kinds."""
    critique: float = Field(0.0, ge=0)
    """How often a text is a critique of an answer, likewise."""
    refine: float = Field(0.0, ge=0)
    """How often a text is a refinement after a critique, likewise."""
    ramble: Annotated[int, ActsUnless("file"), ActsWhen("data.kind", "chains"), ActsWhen("solve")] = Field(
        0, ge=0, le=20
    )
    """How many more times the tiny world's author writes each wrong step of an answer, so that wrong replies grow long.
    0: its wrong replies are as long as its right ones."""
    num_steps: int = Field(60, ge=1, le=10**9)
    """Batches."""
    rows_per_step: int = Field(64, ge=1)
    """Texts in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(20, ge=1)
    """Steps between validations; the best validated weights are kept."""

    @model_validator(mode="after")
    def check_kinds(self) -> Self:
        if not self.solve + self.critique + self.refine:
            raise ValueError("solve, critique and refine are all 0: give one of them a weight, or there is no text")
        return self
