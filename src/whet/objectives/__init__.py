"""Tensors in, tensors out: what credit a token gets, and what loss that credit makes.

Pure functions that import torch and nothing of ours: no config, no device, no collective. A loss returns a sum, and
`aggregation_weights` holds what it would be divided by, so that micro-batches add up to the minibatch.

The path from rewards to a gradient: `advantages` (rewards and KL to credit), `aggregation` (what a row counts for),
`policy_losses` (credit and logprobs to a loss). `kl` serves the first and the last of them.
"""

from whet.objectives.advantages import leave_one_out, reward_to_go, sequence_credit, whiten
from whet.objectives.aggregation import Aggregation, aggregation_weights
from whet.objectives.kl import k1, k2, k3
from whet.objectives.policy_losses import clipped_policy_loss, weighted_nll

__all__ = [
    "Aggregation",
    "aggregation_weights",
    "clipped_policy_loss",
    "k1",
    "k2",
    "k3",
    "leave_one_out",
    "reward_to_go",
    "sequence_credit",
    "weighted_nll",
    "whiten",
]
