"""What the presets of the careless tiny agent share: its environment, its turns, its rollouts, and how it is
measured."""

from __future__ import annotations

from whet.config.environment_data import EnvironmentData
from whet.config.environments import AgentEvaluation, ExpertConfig
from whet.config.parts import SamplingConfig

NUM_PLAYS = 8
"""Episodes of each training item: the order of the recipes and the mistakes differ."""
CARELESS_PLAY = ExpertConfig(
    num_plays=NUM_PLAYS, max_turns=10, wrong_count=0.3, wrong_action=0.15, stuck=0.8, keep_failures=True
)
"""Wrong counts, wrong actions, and refused actions again and again: two thirds of the episodes succeed."""
EXPERT_PLAY = ExpertConfig(num_plays=NUM_PLAYS, max_turns=10)
"""The same items without mistakes."""
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
