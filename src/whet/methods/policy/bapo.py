"""BAPO (arXiv:2510.18927): clip bounds searched before every update, so that good and bad tokens stay balanced.

It is for data older than the weights. As in its published script, there are two epochs of four minibatches. With one
update a batch every ratio is 1, and no bound acts.
"""

from __future__ import annotations

from whet.config import BalancedBounds, BoundRange, ClipLoss, LearningConfig
from whet.methods.policy.policy_gradient import PolicyGradient, PolicyGradientConfig
from whet.methods.registry import Preset

_SEVERAL_UPDATES = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=32)
_CODE_BOUNDS = BalancedBounds(
    target=1.0,
    target_as="odds",
    order="low_first",
    low=BoundRange(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=BoundRange(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)


def _preset(loss: ClipLoss) -> Preset:
    return Preset(PolicyGradient, PolicyGradientConfig(loss=loss, learning=_SEVERAL_UPDATES))


PAPER = _preset(ClipLoss(bounds=BalancedBounds()))
CODE = _preset(ClipLoss(bounds=_CODE_BOUNDS, dual=3.0))
GRADIENT = _preset(ClipLoss(bounds=BalancedBounds(contribution="gradient")))
