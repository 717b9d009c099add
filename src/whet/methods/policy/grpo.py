"""GRPO (arXiv:2402.03300) and its relatives with other losses: rewards compared within a group."""

from __future__ import annotations

from whet.config import CispoLoss, ClipLoss, DppoLoss, FixedBounds, GspoLoss, M2poLoss, SapoLoss, ToprLoss
from whet.methods.policy.policy_gradient import PolicyGradient, PolicyGradientConfig
from whet.methods.registry import Preset


def _preset(config: PolicyGradientConfig) -> Preset:
    return Preset(PolicyGradient, config)


GRPO = _preset(PolicyGradientConfig())
DAPO = _preset(PolicyGradientConfig(loss=ClipLoss(bounds=FixedBounds(high=1.28)), resample=3, overlong=16, signed=True))
DR_GRPO = _preset(PolicyGradientConfig(advantage="dr_grpo", aggregation="constant"))
CISPO = _preset(PolicyGradientConfig(loss=CispoLoss()))
GSPO = _preset(PolicyGradientConfig(loss=GspoLoss(), aggregation="sequence_mean"))
SAPO = _preset(PolicyGradientConfig(loss=SapoLoss(), aggregation="sequence_mean"))
TOPR = _preset(PolicyGradientConfig(loss=ToprLoss(), advantage="dr_grpo"))
DPPO = _preset(PolicyGradientConfig(loss=DppoLoss()))
M2PO = _preset(PolicyGradientConfig(loss=M2poLoss()))
