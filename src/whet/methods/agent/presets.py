"""Multi-turn RL by its usual names, and with the settings of AgentGym-RL's scripts for each environment.

The scripts (arXiv:2509.08755) train Qwen2.5-7B-Instruct by GRPO with a KL of 0.001 in the loss and learning rate 1e-6.
An update takes `mini` items of n episodes. Their micro-batches are of one episode each, so an episode's tokens are
averaged first and then the episodes. Their optimiser is torch's AdamW as it comes. Their `ppo_inner_epochs` changes
nothing in the published code; here it is what it says, so it is 1. docs/fidelity.md holds what differs on purpose.
"""

from __future__ import annotations

from typing import Any

from whet.config import ClipLoss, FixedBounds, KLConfig, LearningConfig, ReinforceLoss, Steps, ValueConfig
from whet.config.environment_data import EnvironmentData
from whet.config.environments import AgentEvaluation
from whet.config.losses import BalancedBounds
from whet.config.parts import ModelConfig, SamplingConfig
from whet.methods.agent.agent_gradient_config import AgentGradientConfig, TurnCreditConfig
from whet.methods.agent.clone_presets import ACTION, SAMPLED, SHALLOW

DR_GRPO = AgentGradientConfig(advantage="dr_grpo", aggregation="constant")
RLOO = AgentGradientConfig(advantage="rloo", loss=ReinforceLoss(), aggregation="sequence_mean")
REINFORCE_PP = AgentGradientConfig(advantage="reinforce_pp")
PPO = AgentGradientConfig(advantage="gae", value=ValueConfig(gae_lambda=1.0))
BAPO = AgentGradientConfig(
    loss=ClipLoss(bounds=BalancedBounds()),
    learning=LearningConfig(learning_rate=1e-4, num_epochs=2, minibatch_rows=32),
)
GIGPO = AgentGradientConfig(credit=TurnCreditConfig(per="gigpo", gamma=0.95))
SCALING_INTER = AgentGradientConfig(
    num_steps=24,
    prompts_per_step=32,
    aggregation="sequence_mean",
    learning=LearningConfig(learning_rate=1e-4, final_share=1.0, warmup_steps=4, minibatch_rows=64),
    schedule={"max_turns": Steps(values=(5, 10), every=16)},
)
"""For the tiny agent: its failures are long, and by tokens they would drown what succeeds. The rate is constant, as
published: under a cosine the last horizon would have none left. The paper's horizons are in the presets of its
environments."""

GRPO_TINY = AgentGradientConfig(
    policy=ModelConfig(path="tiny_agent_careless"),
    data=SHALLOW,
    format="plain",
    sampling=ACTION,
    num_steps=40,
    prompts_per_step=32,
    max_turns=10,
    aggregation="sequence_mean",
    learning=LearningConfig(learning_rate=2e-4, final_share=1.0, warmup_steps=4, minibatch_rows=64),
    validate_every=10,
    evaluation=SAMPLED,
)
"""From the agent that cloned careless episodes (`agent_clone.CARELESS`). The rate is constant after a warm-up; each
step has 32 items of 8 episodes in four updates."""


def _published(
    env: str, items: int, samples: int, mini: int, steps: int, written: int, response: int, horizons: tuple[int, ...],
    every: int,
) -> AgentGradientConfig:  # fmt: skip
    """The settings of a published script. It measures at the longest horizon of training.

    Args:
        mini: items of an update.
        written: tokens of a turn.
        response: tokens of an episode.
        horizons: turns of an episode. Several follow one another.
        every: steps for which a horizon stays.
    """
    horizon: dict[str, Any] = (
        {"schedule": {"max_turns": Steps(values=horizons, every=every)}}
        if len(horizons) > 1
        else {"max_turns": horizons[0]}
    )
    return AgentGradientConfig(
        data=EnvironmentData(env={env: 1.0}),
        prompts_per_step=items,
        group_size=samples,
        num_steps=steps,
        sampling=SamplingConfig(max_new_tokens=written),
        max_context=response,
        kl=KLConfig(coef=0.001),
        entropy_coef=0.001,
        loss=ClipLoss(bounds=FixedBounds()),
        aggregation="sequence_mean",
        learning=LearningConfig(
            learning_rate=1e-6, final_share=1.0, betas=(0.9, 0.999), weight_decay=0.01, minibatch_rows=mini * samples
        ),
        checkpoint_every=25,
        evaluation=AgentEvaluation(max_turns=max(horizons)),
        **horizon,
    )


TEXTCRAFT = _published("textcraft", 32, 8, 8, 330, 512, 10240, (30,), 100)
TEXTCRAFT_SCALING = _published("textcraft", 32, 8, 8, 330, 512, 10240, (10, 20, 30), 100)
BABYAI = _published("babyai", 16, 8, 8, 500, 200, 4096, (20,), 100)
BABYAI_SCALING = _published("babyai", 32, 4, 8, 500, 512, 8192, (6, 13, 20), 100)
SCIWORLD = _published("sciworld", 16, 8, 8, 1320, 200, 4096, (20,), 100)
SCIWORLD_SCALING = _published("sciworld", 16, 8, 8, 1320, 200, 8192, (10, 20, 30), 100)
