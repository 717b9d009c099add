"""The settings of DPO of an agent."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import InputFile, LearningConfig, NameOf, PerStep
from whet.config.acts import ActsUnless, NoEffect
from whet.config.environments import MEASURED, AgentRunConfig
from whet.config.parts import ModelConfig
from whet.trajectories.preferences import EXPERT_THRESHOLD, REWARD_GAP

ROLLED_OUT = ActsUnless("pairs", because="pairs are read from files, and none is rolled out")


class AgentDPOConfig(AgentRunConfig):
    """DPO of an agent: the better of two episodes of an item is preferred to the worse."""

    method: Literal["agent_dpo"] = "agent_dpo"
    rewards: Annotated[
        PerStep[dict[str, float]],
        NameOf("reward term"),
        NoEffect("which episode is better goes by the environments' own rewards"),
    ] = Field({})
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained, and the reference."""
    pairs: tuple[InputFile, ...] = ()
    """Files of pairs (`id`, `prompt`, `chosen`, `rejected`), as AgentGym has them. (): pairs are made from rollouts."""
    max_turns: Annotated[
        PerStep[int | None],
        ActsUnless("pairs", because="pairs are read from files, and none is rolled out", hint=MEASURED),
    ] = Field(None, ge=1)
    traces_per_step: Annotated[int, ROLLED_OUT] = Field(4, ge=0)
    against: Annotated[Literal["expert", "own"], ROLLED_OUT] = "expert"
    """What the policy's episodes are compared with. expert: each with the scripted expert's in the same environment.
    own: the policy's worst episode with its best."""
    num_rounds: Annotated[int, ROLLED_OUT] = Field(1, ge=1, le=100)
    """Of exploring and learning. Each takes the model that explores for its reference."""
    num_explored: Annotated[int | None, ROLLED_OUT] = Field(None, ge=1)
    """Items explored in a round, drawn anew for each and shared out as `data.env` says. None: all of them, whatever the
    shares."""
    items_per_step: Annotated[int, ROLLED_OUT] = Field(32, ge=1)
    """Items rolled out in a step of exploring."""
    group_size: Annotated[int, ROLLED_OUT] = Field(2, ge=1)
    """Episodes of each item in a round (K)."""
    reward_gap: Annotated[float, ROLLED_OUT] = Field(REWARD_GAP, ge=0, le=1)
    """The least distance of a pair's scores."""
    threshold: Annotated[float, ROLLED_OUT] = Field(EXPERT_THRESHOLD, ge=0, le=1)
    """The least score of the better one."""
    kind: Literal["logistic", "ipo"] = "logistic"
    """Of the loss: DPO's, or IPO's (arXiv:2310.12036) squared distance."""
    beta: float = Field(0.5, gt=0)
    """How closely the policy is held to the reference."""
    likelihood: float = Field(0.0, ge=0)
    """Weight of the better episodes' own likelihood beside the preference (arXiv:2404.19733). A preference alone may be
    met by both growing less likely, and the better one's likelihood keeps it from that. 0: none, as published."""
    num_epochs: float = Field(3.0, gt=0)
    """How often a pair is learnt in a round, on average."""
    pairs_per_step: int = Field(16, ge=1)
    """Pairs in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-5, minibatch_rows=32)
    """minibatch_rows: a pair is two."""
    validate_every: int = Field(10, ge=1)
    """Batches between validations; the best validated weights of all rounds are kept."""

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        seen = self.__dict__  # looking is no reading
        if seen["learning"].__dict__["minibatch_rows"] % 2:
            raise ValueError("learning.minibatch_rows has to be an even number: a pair is two rows")
        if not seen["pairs"] and seen["against"] == "own" and seen["group_size"] < 2:
            raise ValueError("against = own compares the episodes of an item: set group_size to 2 or more")
        if not seen["pairs"] and seen["group_size"] > 1 and seen["sampling"].__dict__["temperature"] == 0:
            raise ValueError(
                "group_size > 1 with sampling.temperature = 0 makes all episodes of an item alike; set "
                "the temperature above 0, or group_size = 1"
            )
        return self
