"""REINFORCE and its descendants, PPO among them."""

from __future__ import annotations

from whet.config import ReinforceLoss
from whet.methods.policy.policy_gradient import PolicyGradient, PolicyGradientConfig
from whet.methods.registry import Preset


def _preset(config: PolicyGradientConfig) -> Preset:
    return Preset(PolicyGradient, config)


RLOO = _preset(PolicyGradientConfig(advantage="rloo", loss=ReinforceLoss(), aggregation="sequence_mean"))
REINFORCE_PP = _preset(PolicyGradientConfig(advantage="reinforce_pp", signed=True))
REINFORCE_PP_BASELINE = _preset(PolicyGradientConfig(advantage="reinforce_pp_baseline"))
REINFORCE = _preset(PolicyGradientConfig(advantage="reward", signed=True, loss=ReinforceLoss()))
PPO = _preset(PolicyGradientConfig(advantage="gae"))
