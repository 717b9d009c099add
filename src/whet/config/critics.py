"""Settings that methods with a critic share: how the roles sample, the warm start, and how critics are measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config.acts import ActsAbove, ActsWhen, AnyOf
from whet.config.base import Config
from whet.config.inputs import InputFile
from whet.config.parts import ColumnName, LearningConfig, Misconceptions, SamplingConfig

IndirectName = Literal["refine", "delta", "correction"]
"""What a refinement is worth: eq. 4, 5 or 6 of Critique-RL (arXiv:2510.24320)."""


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
        """Tokens that all roles together may write in a round."""
        return self.answer.max_new_tokens + self.critique.max_new_tokens + self.refinement.max_new_tokens


class ActorRule(Config):
    """An actor by rule, for the tiny world: it refines by the critique's verdict alone, with chances that are set."""

    kind: Literal["rule"] = "rule"
    mend: float = Field(0.5, ge=0, le=1)
    """The chance that a wrong answer becomes right when a critique calls it wrong."""
    spoil: float = Field(0.08, ge=0, le=1)
    """The chance that a right answer becomes wrong when a critique calls it wrong. Low: a false alarm is cheap.
    High: it is dear."""
    misconceptions: Misconceptions | None = None
    """How often its misconceptions are written: the lowest and the highest share of the times, one for each fact
    between them. null: as `data.misconceptions` says."""


class ExampleColumns(Config):
    """Your names of the columns of a file of examples, as in `data.columns`: a column, a path into one, or a template
    of several. Columns that neither these nor the usual names name are not read."""

    prompt: ColumnName | None = None
    """The question. None: question."""
    answer: ColumnName | None = None
    """The answer. None: answer."""
    critique: ColumnName | None = None
    """The critique of it. None: critique, where there is one."""
    refinement: ColumnName | None = None
    """The answer written anew. None: refinement, where there is one."""
    correct: ColumnName | None = None
    """true where the answer is to be imitated. None: correct, where there is one."""

    def given(self) -> dict[str, str]:
        """Those that have a name of yours, by the field of a row."""
        names = {
            "question": self.prompt,
            "answer": self.answer,
            "critique": self.critique,
            "refinement": self.refinement,
            "correct": self.correct,
        }
        return {field: name for field, name in names.items() if name is not None}


class WarmStartConfig(Config):
    """Supervised fine-tuning of actor and critic before any reinforcement learning."""

    actor_steps: int = Field(40, ge=0)
    """Batches of answers and refinements. 0: the actor is used as it is."""
    critic_steps: int = Field(100, ge=0)
    """Batches of critiques. 0: the critic is used as it is."""
    rows_per_step: Annotated[int, AnyOf(ActsWhen("actor_steps"), ActsWhen("critic_steps"))] = Field(64, ge=1)
    """Examples in a batch (one optimiser update)."""
    refine_share: float = Field(0.4, ge=0, le=1)
    """Share of the actor's examples that refine; the others answer. In the paper 12,000 of 33,973."""
    file: InputFile | None = None
    """JSON lines, a JSON list or Parquet with question, answer, and, where they exist, critique, refinement, correct.
    None: written by the tiny world's author, or made from the set's worked solutions."""
    columns: Annotated[ExampleColumns, ActsWhen("file")] = ExampleColumns()
    learning: Annotated[LearningConfig, AnyOf(ActsWhen("actor_steps"), ActsWhen("critic_steps"))] = LearningConfig(
        learning_rate=1e-3
    )


class CriticEvaluation(Config):
    """What is measured at the end, greedily, on test problems."""

    num_rounds: int = Field(1, ge=1, le=1000)
    """Rounds of critique and refinement."""
    history: Annotated[Literal["full", "last"], ActsAbove("num_rounds", 1)] = "full"
    """What later rounds see: everything so far (paper), or the last answer only (authors' code)."""
    oracle_verifier: bool = False
    """True: answers that the verifier finds right stay as they are and go to no critic."""
    num_validation: int | None = Field(None, ge=1)
    """Validation problems in use. None: all."""
    num_test: int | None = Field(None, ge=1)
    """Test problems in use. None: all."""
