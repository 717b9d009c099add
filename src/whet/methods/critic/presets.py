"""The RL baselines of Critique-RL's Table 1: a critic rewarded for refinements alone.

`CTRL` and `RETROFORMER` have the tiny world's sizes and rates, with the published rewards. The published presets have
the settings of their repositories' scripts (HKUNLP/critic-rl, `examples/train_rl.sh`; weirayao/Retroformer,
`trainer/args.py`). docs/fidelity.md lists what differs on purpose.
"""

from __future__ import annotations

from whet.config import KLConfig, LearningConfig, RolesConfig, SamplingConfig, ValueConfig
from whet.methods.critic.critic_gradient_config import CriticGradientConfig

_IN_REWARD = KLConfig(coef=0.01, estimator="k1", where="reward")

CTRL = CriticGradientConfig(requires_verdict=True)
RETROFORMER = CriticGradientConfig(advantage="gae", indirect="delta", kl=_IN_REWARD)

_CTRL_LEARNING = LearningConfig(
    learning_rate=1e-5, final_share=1.0, betas=(0.9, 0.999), weight_decay=0.01, minibatch_rows=256 * 8
)
CTRL_PUBLISHED = CriticGradientConfig(
    requires_verdict=True,
    prompts_per_step=1024,
    group_size=8,
    roles=RolesConfig(critique=SamplingConfig(temperature=1.0, max_new_tokens=768)),
    kl=KLConfig(coef=0.001),
    entropy_coef=0.001,
    learning=_CTRL_LEARNING,
)
"""1024 answers, 8 critiques each; four updates a step of 256 answers' critiques, in one pass."""

_TRL_LEARNING = LearningConfig(learning_rate=1e-5, final_share=1.0, betas=(0.9, 0.999), num_epochs=50, minibatch_rows=2)
RETROFORMER_PUBLISHED = CriticGradientConfig(
    advantage="gae",
    indirect="delta",
    prompts_per_step=4,
    group_size=2,
    roles=RolesConfig(critique=SamplingConfig(temperature=1.0, top_p=0.9, max_new_tokens=256)),
    kl=KLConfig(coef=0.2, estimator="k1", where="reward"),
    value=ValueConfig(gae_lambda=0.95, clip=0.2, warmup_updates=0, learning=_TRL_LEARNING),
    learning=_TRL_LEARNING,
)
"""Eight critiques a step, and fifty passes over them in updates of two. The optimiser is TRL's plain Adam."""
