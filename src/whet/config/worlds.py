"""What runs are told that play in environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from whet.config.base import Config, NameOf, PerStep
from whet.config.parts import EndpointConfig, EngineConfig, ModelConfig, SamplingConfig
from whet.config.runs import RunConfig


class WorldData(Config):
    """Items of environments, in place of problems."""

    kind: Literal["worlds"] = "worlds"
    env: Annotated[dict[str, float], NameOf("environment")] = Field({"textcraft": 1.0}, min_length=1)
    """Environments by name, each with its share of the training items that are drawn; one name alone may stand as it
    is (`data.env=babyai`). `whet env list` has them."""
    settings: dict[str, dict[str, Any]] = Field({})
    """By environment, its own settings, such as {textcraft: {recipes: FOLDER}}."""
    num_train: int | None = Field(None, ge=1)
    """Training items of each environment, in its own order. None: all but those of validation."""
    num_validation: int = Field(24, ge=1)
    """Items of each environment on which checkpoints are chosen, drawn from its training items and not trained on."""
    num_test: int | None = Field(None, ge=1)
    """Test items of each environment, spread evenly over its list. None: all."""

    @model_validator(mode="before")
    @classmethod
    def take_one_name(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not isinstance(given.get("env"), str | list | tuple):
            return given
        names = [given["env"]] if isinstance(given["env"], str) else given["env"]
        return {**given, "env": dict.fromkeys(names, 1.0)}


class PoolConfig(Config):
    """How many worlds there are, and how long one is waited for."""

    capacity: int = Field(256, ge=1)
    """Worlds at one time, of all kinds."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds of one step or reset; after that the world is thrown away, and the episode is a `timeout`."""
    retries: int = Field(1, ge=0)
    """How often an item is begun again, in a new world, where that fails."""


class AgentEvaluation(Config):
    """How an agent is measured."""

    num_samples: int = Field(1, ge=1, le=10_000)
    """Episodes an item: 1 is greedy; more are sampled, with pass@k."""
    max_turns: int | None = Field(None, ge=1)
    """Turns that an episode may take. None: as each environment is usually played."""


class AgentRunConfig(RunConfig):
    """Base of methods in which a policy acts in environments."""

    data: WorldData = WorldData()
    """The environments and their items."""
    policy: ModelConfig = ModelConfig(path="tiny-agent")
    """The model that is trained."""
    sampling: PerStep[SamplingConfig] = SamplingConfig(max_new_tokens=96)
    """Of one turn."""
    max_turns: PerStep[int | None] = Field(None, ge=1)
    """Turns that a training episode may take: the horizon. None: as each environment is usually played."""
    max_context: int = Field(4096, ge=16)
    """Tokens that a turn may begin with; an episode that has come to more is truncated."""
    max_observation: int = Field(4000, ge=16)
    """Characters that are shown of an observation; the middle of longer ones is left out."""
    rules: bool = True
    """Whether an episode begins with the environment's rules, and a promise to keep them."""
    pool: PoolConfig = PoolConfig()
    engine: EngineConfig = EngineConfig(play="free")
    evaluation: AgentEvaluation = AgentEvaluation()


class AgentMeasureConfig(AgentRunConfig):
    """An agent that is measured and not trained: a model, or an endpoint."""

    method: Literal["agent"] = "agent"
    policy: Annotated[ModelConfig | EndpointConfig, Field(discriminator="kind")] = ModelConfig(path="tiny-agent")
    """Who plays. kind=endpoint: a model behind a server."""
