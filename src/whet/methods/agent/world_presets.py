"""Four environments for `tiny_agent_worlds`: TextCraft and maze, academia (tools) and cookingworld (a long horizon).

`CLONE` made the agent, and is what the others are compared with. `ACADEMIA` is RL with the tools, `COOKING` RL with a
growing horizon, and `EVOL` AgentEvol in all four environments.
"""

from __future__ import annotations

from typing import Any

from whet.config import LearningConfig, Steps
from whet.config.environment_data import EnvironmentData
from whet.config.environments import AgentEvaluation, ExpertConfig, PoolConfig
from whet.config.parts import ModelConfig, SamplingConfig
from whet.methods.agent.agent_clone_config import AgentCloneConfig
from whet.methods.agent.agent_evol_config import AgentEvolConfig
from whet.methods.agent.agent_gradient_config import AgentGradientConfig

LIMIT = 20
"""Turns. The expert needs 10.5 in cookingworld's smallest level, and 4 in academia."""
TEXTCRAFT = {"textcraft": {"max_distractors": 4}}
GROUPS = ("depth 1", "depth 2", "1 room, 1 ingredient")
"""Of TextCraft and of cookingworld. The other two keep all of their items."""
SIZES: dict[str, Any] = {"num_train": 300, "num_validation": 24, "num_test": 40}
"""Items of each environment, at most."""
WORLDS = EnvironmentData(
    env={"textcraft": 1.0, "maze": 1.0, "academia": 1.0, "cookingworld": 1.0},
    settings=TEXTCRAFT,
    groups=GROUPS,
    **SIZES,
)
CARELESS = ExpertConfig(
    num_episodes=4, max_turns=LIMIT, wrong_count=0.2, wrong_action=0.1, stuck=0.5, keep_failures=True
)
"""72 % of the episodes succeed in academia, 92 % in cookingworld, nearly all in the other two."""
ROWS = 8
"""Of a minibatch and of a step of cloning."""
_SHARED: dict[str, Any] = {
    "policy": ModelConfig(path="tiny_agent_worlds"),
    "format": "plain",
    # A call in academia has 13 tokens on average and 21 at most. Actions elsewhere have three to eight.
    "sampling": SamplingConfig(max_new_tokens=40),
    "evaluation": AgentEvaluation(num_samples=4, validation_samples=1, max_turns=LIMIT),
    # Each cookingworld is a Java process of 0.15 GB.
    "pool": PoolConfig(capacity=12),
}
_CLONING = LearningConfig(learning_rate=1e-3, final_share=0.05, warmup_steps=20, minibatch_rows=ROWS)
_RL = LearningConfig(learning_rate=2e-4, final_share=1.0, warmup_steps=4, minibatch_rows=64)
"""As in `agent_grpo_tiny`."""

CLONE = AgentCloneConfig(
    **_SHARED, data=WORLDS, expert=CARELESS, num_steps=300, rows_per_step=ROWS, learning=_CLONING, validate_every=100
)
"""More of what the agent learnt. docs/agents.md has the settings that made the agent."""
ACADEMIA = AgentGradientConfig(
    **_SHARED,
    data=EnvironmentData(env={"academia": 1.0}, **SIZES),
    num_steps=20,
    prompts_per_step=32,
    max_turns=8,
    aggregation="sequence_mean",
    learning=_RL,
    validate_every=5,
)
COOKING = AgentGradientConfig(
    **_SHARED,
    data=EnvironmentData(env={"cookingworld": 1.0}, groups=GROUPS[-1:], **SIZES),
    num_steps=20,
    prompts_per_step=8,
    aggregation="sequence_mean",
    learning=_RL,
    validate_every=5,
    schedule={"max_turns": Steps(values=(10, 15, LIMIT), every=5)},
)
EVOL = AgentEvolConfig(
    **_SHARED,
    data=WORLDS,
    expert=CARELESS,
    base_share=0.5,
    num_rounds=2,
    num_explored=240,
    group_size=2,
    max_turns=LIMIT,
    merge="cumulative",
    start="last",
    num_epochs=1.0,
    rows_per_step=ROWS,
    learning=_CLONING,
    validate_every=100,
)
