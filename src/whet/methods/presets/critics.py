"""The RL baselines of Critique-RL's Table 1: a critic paid for refinements alone."""

from __future__ import annotations

from whet.config import KLConfig
from whet.methods.critic_gradient import CriticGradient, CriticGradientConfig
from whet.runs.registry import Preset

_IN_REWARD = KLConfig(coef=0.01, estimator="k1", where="reward")

CTRL = Preset(CriticGradient, CriticGradientConfig())
RETROFORMER = Preset(CriticGradient, CriticGradientConfig(advantage="gae", kl=_IN_REWARD))
