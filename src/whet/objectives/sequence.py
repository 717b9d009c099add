"""A ratio for the whole sequence: GSPO."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.objectives.kl import MAX_LOG_RATIO
from whet.objectives.ratio import masked_credit, ratio_metrics, sequence_log_ratios, summed, unbounded_log_ratios


def gspo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    low: float = 1 - 3e-4,
    high: float = 1 + 4e-4,
) -> tuple[Tensor, dict[str, Tensor]]:
    """GSPO (arXiv:2507.18071): PPO's surrogate on `s = exp(mean_t log r_t)` of the row, shared by its tokens.

    Written per token, `s_t = sg(s) * pi_t / sg(pi_t)`, so that credit may differ from token to token. With one credit
    a row and aggregation `sequence_mean` the gradient is the paper's. Sequence ratios stay close to 1, so the bounds
    are narrow: PPO's 0.8 and 1.2 would hardly ever act.

    Args:
        low, high: bounds on s. The others are those of `clipped_policy_loss`; a row has to come whole.
    """
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask)
    log_s = sequence_log_ratios(log_ratio, loss_mask, mean=True) + (log_ratio - log_ratio.detach())
    s = log_s.exp()
    credit = masked_credit(advantages, loss_mask)
    plain, clipped = s * credit, s.clamp(low, high) * credit
    of_tokens = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    metrics = ratio_metrics(of_tokens, loss_mask, clipped < plain, bounded=log_s)
    return summed(-torch.minimum(plain, clipped), loss_mask, token_weight), metrics
