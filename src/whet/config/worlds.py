"""What runs are told that play in environments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whet.config.base import Config, PerStep
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.config.runs import FrozenSeat, RunConfig
from whet.config.world_data import WorldData


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
    policy: FrozenSeat = ModelConfig(path="tiny_agent")
    """Who plays; what is trained is a model. kind=endpoint: a model behind a server, to be measured only."""
    sampling: PerStep[SamplingConfig] = SamplingConfig(max_new_tokens=96)
    """Of one turn."""
    max_turns: PerStep[int | None] = Field(None, ge=1)
    """Turns that a training episode may take: the horizon. None: as each environment is usually played."""
    max_context: int = Field(4096, ge=16)
    """Tokens that a turn may begin with; an episode that has come to more is truncated."""
    max_observation: int = Field(4000, ge=16)
    """Characters that are shown of an observation; the middle of longer ones is left out."""
    rules: bool | None = None
    """Whether an episode begins with the environment's rules, and a promise to keep them. None: yes, unless the model
    has learnt without them, as the tiny agents have (`"reads_rules": false` in its config.json)."""
    format: Literal["react", "function_calling", "plain"] = "react"
    """How the agent writes its actions: a thought and an action (ReAct, each environment's published dialect of it), a
    call of one of the environment's functions as JSON, or nothing but the action. The rules say which."""
    pool: PoolConfig = PoolConfig()
    engine: EngineConfig = EngineConfig(play="free")
    evaluation: AgentEvaluation = AgentEvaluation()
