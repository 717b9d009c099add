"""Plain RL by its usual names: settings of `policy_gradient`. Their papers stand in `methods/__init__.py`."""

from __future__ import annotations

from whet.config import (
    BalancedBounds,
    BoundRange,
    CispoLoss,
    ClipLoss,
    DppoLoss,
    FixedBounds,
    GspoLoss,
    LearningConfig,
    M2poLoss,
    ReinforceLoss,
    SapoLoss,
    ToprLoss,
)
from whet.methods.policy.policy_gradient_config import PolicyGradientConfig

GRPO = PolicyGradientConfig()
DAPO = PolicyGradientConfig(loss=ClipLoss(bounds=FixedBounds(high=1.28)), resample=3, overlong=16, signed=True)
DR_GRPO = PolicyGradientConfig(advantage="dr_grpo", aggregation="constant")
CISPO = PolicyGradientConfig(loss=CispoLoss())
GSPO = PolicyGradientConfig(loss=GspoLoss(), aggregation="sequence_mean")
SAPO = PolicyGradientConfig(loss=SapoLoss(), aggregation="sequence_mean")
TOPR = PolicyGradientConfig(loss=ToprLoss(), advantage="dr_grpo")
DPPO = PolicyGradientConfig(loss=DppoLoss())
M2PO = PolicyGradientConfig(loss=M2poLoss())

_SEVERAL_UPDATES = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=32)
"""BAPO is for data older than the weights. As in its published script, there are two epochs of four minibatches. With
one update a batch every ratio is 1, and no bound acts."""
_CODE_BOUNDS = BalancedBounds(
    target=1.0,
    target_as="odds",
    order="low_first",
    low=BoundRange(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=BoundRange(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)
BAPO = PolicyGradientConfig(loss=ClipLoss(bounds=BalancedBounds()), learning=_SEVERAL_UPDATES)
BAPO_CODE = PolicyGradientConfig(loss=ClipLoss(bounds=_CODE_BOUNDS, dual=3.0), learning=_SEVERAL_UPDATES)
BAPO_GRADIENT = PolicyGradientConfig(
    loss=ClipLoss(bounds=BalancedBounds(contribution="gradient")), learning=_SEVERAL_UPDATES
)

RLOO = PolicyGradientConfig(advantage="rloo", loss=ReinforceLoss(), aggregation="sequence_mean")
REINFORCE_PP = PolicyGradientConfig(advantage="reinforce_pp", signed=True)
REINFORCE_PP_BASELINE = PolicyGradientConfig(advantage="reinforce_pp_baseline")
REINFORCE = PolicyGradientConfig(advantage="reward", signed=True, loss=ReinforceLoss())
PPO = PolicyGradientConfig(advantage="gae")
