"""Cloning with the tiny agent in TextCraft: of careless episodes, more of them, and of the expert.

The first raises the agent from random weights that RL starts from. The other two are what RL is held against.
"""

from __future__ import annotations

from typing import Any

from whet.config import LearningConfig
from whet.config.environments import AgentEvaluation
from whet.config.parts import ModelConfig
from whet.methods.agent.agent_clone import AgentClone, AgentCloneConfig
from whet.methods.agent.careless import ACTION, CARELESS_PLAY, EXPERT_PLAY, SAMPLED, SHALLOW
from whet.methods.registry import Preset

ROWS = 8


def _preset(**settings: Any) -> Preset:
    config = AgentCloneConfig(data=SHALLOW, format="plain", sampling=ACTION, rows_per_step=ROWS, **settings)
    return Preset(AgentClone, config)


CARELESS = _preset(
    policy=ModelConfig(path="tiny_agent", random_weights=0),
    expert=CARELESS_PLAY,
    num_steps=2000,
    learning=LearningConfig(learning_rate=2e-3, final_share=0.05, warmup_steps=100, minibatch_rows=ROWS),
    validate_every=250,
    evaluation=SAMPLED,
)
"""From random weights until success rises no more: `tiny_agent_careless` is what it makes. The agent knows the words
and the game, and is wrong often and not always, so RL has something to teach it."""
_FROM_CARELESS = {
    "policy": ModelConfig(path="tiny_agent_careless"),
    "learning": LearningConfig(learning_rate=1e-3, final_share=0.05, warmup_steps=20, minibatch_rows=ROWS),
    "validate_every": 100,
    # Neither is read for its own table: the run of RL measures it beside its own weights, by many episodes an item.
    "evaluation": AgentEvaluation(num_samples=1, validation_samples=4, max_turns=SAMPLED.max_turns),
}
MORE = _preset(expert=CARELESS_PLAY, num_steps=300, **_FROM_CARELESS)
"""The control of RL: the same episodes for longer, with the best validated weights."""
EXPERT = _preset(expert=EXPERT_PLAY, num_steps=600, **_FROM_CARELESS)
"""The ceiling of RL: episodes without mistakes, of the same items."""
