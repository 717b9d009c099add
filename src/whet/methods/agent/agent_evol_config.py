"""The settings of AgentEvol."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import InputFile, LearningConfig, NameOf, PerStep
from whet.config.acts import ActsUnless, ActsWhen, AnyOf, NoEffect
from whet.config.environments import AgentRunConfig, ExpertConfig
from whet.config.parts import ModelConfig
from whet.config.runs import Keep, Merge, Weighting


class AgentEvolConfig(AgentRunConfig):
    """AgentEvol: clone demonstrations, then explore, keep what was rewarded, and learn from both; again and again."""

    method: Literal["agent_evol"] = "agent_evol"
    rewards: Annotated[
        PerStep[dict[str, float]],
        NameOf("reward term"),
        NoEffect("which episodes are kept goes by the environments' own rewards"),
    ] = Field({})
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    trajectories: tuple[InputFile, ...] = ()
    """Files of demonstrations, as AgentGym publishes them; their items are the base set. (): the environments' scripted
    experts act on a part of the training items (`base_share`), and their successes are the demonstrations."""
    expert: Annotated[ExpertConfig, ActsWhen("base_share")] = ExpertConfig()
    """How the experts act, where no files are given."""
    base_share: Annotated[float, ActsUnless("trajectories")] = Field(0.25, ge=0, le=1)
    """The part of each environment's training items that experts demonstrate. 0: nothing is demonstrated, and the model
    explores as it is."""
    num_rounds: int = Field(4, ge=1, le=100)
    """Of exploring and learning (M)."""
    explore: Annotated[Literal["all", "beyond"], AnyOf(ActsWhen("trajectories"), ActsWhen("base_share"))] = "all"
    """Which training items are explored: all, or those that are not in the base set."""
    num_explored: int | None = Field(None, ge=1)
    """Items explored in a round, drawn anew for each and shared out as `data.env` says. None: all of them, whatever the
    shares."""
    items_per_step: int = Field(32, ge=1)
    """Items rolled out in a step of exploring."""
    group_size: int = Field(1, ge=1)
    """Episodes of each item in a round (K)."""
    weighting: Weighting = "binary"
    """What an explored episode weighs. binary: 1 where its reward is above `kept_above`. reward: its score, from 0 to
    1. self_normalised: its score divided by the sum over its item's episodes, which makes a round the exact step of
    expectation maximisation."""
    kept_above: Annotated[dict[str, float], ActsWhen("weighting", "binary")] = Field({})
    """By environment, the reward that an episode to be kept is more than; equal is not enough. {}: each environment's
    own."""
    keep: Keep = "all"
    """Of an item's episodes that weigh anything in a round: the first one, the one of the highest reward, or all."""
    merge: Merge = "base"
    """What is learnt beside the round's own episodes. base: the demonstrations. previous: what the one before kept, in
    round 1 the demonstrations. cumulative: the demonstrations and what all earlier rounds kept. none: nothing."""
    start: Literal["initial", "last"] = "initial"
    """Where a round's learning starts: at the model that the run began with, or at the agent that explored."""
    num_epochs: float = Field(4.0, gt=0)
    """How often an episode is learnt, on average, of the demonstrations at first and of what is merged in a round."""
    rows_per_step: int = Field(16, ge=1)
    """Episodes in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(50, ge=1)
    """Batches between validations; the best validated weights of all rounds are kept."""
    test_rounds: bool = True
    """Whether the test items are rolled out after every round as well, for a table row each."""

    @model_validator(mode="after")
    def check_weights(self) -> Self:
        sampling = self.__dict__["sampling"]  # looking is no reading
        if self.group_size > 1 and sampling.temperature == 0 and "sampling.temperature" not in self.schedule:
            raise ValueError(
                "group_size > 1 with sampling.temperature = 0 makes all episodes of an item alike; set "
                "the temperature above 0, or group_size = 1"
            )
        if self.weighting == "self_normalised" and (self.keep != "all" or self.group_size < 2):
            raise ValueError(
                "weighting = self_normalised compares the episodes of an item; set keep = all and a "
                "group_size of 2 or more"
            )
        return self
