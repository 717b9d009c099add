"""Cloning of scripted experts in TextCraft by the tiny agent.

`CARELESS` pretrains the agent that RL starts from. `MORE` and `EXPERT` are what RL is compared with.
"""

from __future__ import annotations

from typing import Any

from whet.config import LearningConfig
from whet.config.environment_data import EnvironmentData
from whet.config.environments import AgentEvaluation, ExpertConfig
from whet.config.parts import ModelConfig, SamplingConfig
from whet.methods.agent.agent_clone_config import AgentCloneConfig

NUM_EXPERT_EPISODES = 8
"""Episodes of each training item. The order of the recipes and the mistakes differ."""
CARELESS_EXPERT = ExpertConfig(
    num_episodes=NUM_EXPERT_EPISODES, max_turns=10, wrong_count=0.3, wrong_action=0.15, stuck=0.8, keep_failures=True
)
"""Wrong counts, wrong actions, and refused actions again and again: two thirds of the episodes succeed."""
FAULTLESS_EXPERT = ExpertConfig(num_episodes=NUM_EXPERT_EPISODES, max_turns=10)
"""Episodes of the same items, without mistakes."""
SHALLOW = EnvironmentData(
    env={"textcraft": 1.0},
    settings={"textcraft": {"max_distractors": 4}},
    groups=("depth 1", "depth 2"),
    num_validation=48,
)
"""Goals within two crafts, 238 to train on, 48 to choose the best weights by and 72 to test on."""
ACTION = SamplingConfig(max_new_tokens=24)
"""An action without a thought has eight tokens."""
SAMPLED = AgentEvaluation(num_samples=8, validation_samples=4, max_turns=10)
"""Several episodes an item: one greedy pass over 72 items is uncertain by ten points."""
ROWS = 8
"""Of a minibatch and of a step."""


def _preset(**settings: Any) -> AgentCloneConfig:
    return AgentCloneConfig(data=SHALLOW, format="plain", sampling=ACTION, rows_per_step=ROWS, **settings)


CARELESS = _preset(
    policy=ModelConfig(path="tiny_agent", random_weights=0),
    expert=CARELESS_EXPERT,
    num_steps=2000,
    learning=LearningConfig(learning_rate=2e-3, final_share=0.05, warmup_steps=100, minibatch_rows=ROWS),
    validate_every=250,
    evaluation=SAMPLED,
)
"""From random weights until success rises no more; the result is `tiny_agent_careless`. The agent knows the words and
the game, and is often but not always wrong, so RL can still improve it."""
_FROM_CARELESS = {
    "policy": ModelConfig(path="tiny_agent_careless"),
    "learning": LearningConfig(learning_rate=1e-3, final_share=0.05, warmup_steps=20, minibatch_rows=ROWS),
    "validate_every": 100,
    # A greedy episode suffices: the run of RL measures both again, by many episodes an item.
    "evaluation": AgentEvaluation(num_samples=1, validation_samples=4, max_turns=SAMPLED.max_turns),
}
MORE = _preset(expert=CARELESS_EXPERT, num_steps=300, **_FROM_CARELESS)
"""The control of RL: the same episodes for longer, with the best validated weights."""
EXPERT = _preset(expert=FAULTLESS_EXPERT, num_steps=600, **_FROM_CARELESS)
"""The ceiling of RL: episodes without mistakes, of the same items."""
