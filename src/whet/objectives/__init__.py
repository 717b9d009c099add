"""Tensors in, tensors out: from rewards to credit, and from credit to a loss.

Pure functions that import torch and nothing of ours: no config, no device, no collective. A loss returns a sum, and
`aggregation_weights` holds the divisors, so that micro-batches add up to the minibatch.

The path from rewards to a gradient begins with `advantages` or `values` (rewards to credit) and `aggregation` (each
row's weight). Then a policy loss turns credit and logprobs into a loss. `policy_losses` holds PPO, clip-higher, dual
clip, GSPO, SAPO, M2PO, DPPO, REINFORCE, CISPO and TOPR; `nft` holds NFT. `balance` finds BAPO's bounds for losses that
have bounds. `ratio` is what all of them share; it also holds the KL to a reference, and the weights of tokens that
another policy wrote. `entropy` is the entropy bonus; with `diagnostics` it also measures. `pairwise` (DPO, IPO) starts
from preferences: no credit, no ratio to an old policy.
"""

from whet.objectives.advantages import group_advantages, leave_one_out, reward_to_go, sequence_credit, whiten
from whet.objectives.aggregation import Aggregation, aggregation_weights
from whet.objectives.balance import (
    CODE_RULE,
    GRADIENT_RULE,
    PAPER_RULE,
    Bounds,
    BoundsRule,
    Range,
    Reach,
    balanced_bounds,
    contributions,
    least_start_share,
    reach,
    search,
    target_share,
)
from whet.objectives.diagnostics import effective_sample_size, ratio_diagnostics, update_diagnostics
from whet.objectives.entropy import entropy_loss, predicted_entropy_change, sampled_entropy_change
from whet.objectives.nft import Omega, nft_loss
from whet.objectives.pairwise import PairKind, pairwise_loss, row_sums
from whet.objectives.policy_losses import (
    Divergence,
    cispo_loss,
    clipped_policy_loss,
    dppo_loss,
    gspo_loss,
    m2po_loss,
    reinforce_loss,
    sapo_loss,
    second_moment_limit,
    topr_loss,
    weighted_nll,
)
from whet.objectives.ratio import importance_weights, k1, k2, k3, kl_loss
from whet.objectives.values import gae, value_loss

__all__ = [
    "CODE_RULE",
    "GRADIENT_RULE",
    "PAPER_RULE",
    "Aggregation",
    "Bounds",
    "BoundsRule",
    "Divergence",
    "Omega",
    "PairKind",
    "Range",
    "Reach",
    "aggregation_weights",
    "balanced_bounds",
    "cispo_loss",
    "clipped_policy_loss",
    "contributions",
    "dppo_loss",
    "effective_sample_size",
    "entropy_loss",
    "gae",
    "group_advantages",
    "gspo_loss",
    "importance_weights",
    "k1",
    "k2",
    "k3",
    "kl_loss",
    "least_start_share",
    "leave_one_out",
    "m2po_loss",
    "nft_loss",
    "pairwise_loss",
    "predicted_entropy_change",
    "ratio_diagnostics",
    "reach",
    "reinforce_loss",
    "reward_to_go",
    "row_sums",
    "sampled_entropy_change",
    "sapo_loss",
    "search",
    "second_moment_limit",
    "sequence_credit",
    "target_share",
    "topr_loss",
    "update_diagnostics",
    "value_loss",
    "weighted_nll",
    "whiten",
]
