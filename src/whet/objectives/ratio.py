"""The ratio policy / old of each sampled token, and the metrics of every ratio loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whet.objectives.kl import MAX_LOG_RATIO, k3

IMPOSSIBLE = 1e9
"""Stands for the log ratio of a token that one of the two policies holds impossible. It is finite, so that sums stay
numbers, and past every bound."""


def unbounded_log_ratios(policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`log(policy / old)` per token, as it is; 0 where masked, whatever stands there. Not to be exponentiated.

    Args:
        policy_logprobs: any shape; carries the gradient.
        old_logprobs: the same tokens under the policy that they are compared with. Taken as numbers.
        loss_mask: bool, True where the token trains.
    """
    log_ratio = torch.where(loss_mask, policy_logprobs - old_logprobs.detach(), 0.0)
    return torch.nan_to_num(log_ratio, nan=math.nan, posinf=IMPOSSIBLE, neginf=-IMPOSSIBLE)


def log_ratios(policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`unbounded_log_ratios` within `MAX_LOG_RATIO`: ratios of tokens, to be exponentiated one by one."""
    return unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


@torch.no_grad()
def sequence_log_ratios(log_ratio: Tensor, loss_mask: Tensor, *, mean: bool = False) -> Tensor:
    """The log of the product of each row's ratios, or of their geometric mean (`mean`), within `MAX_LOG_RATIO`.

    The bound is on the whole: a token far off takes its full part in its row's ratio.

    Args:
        log_ratio: [B, T], from `unbounded_log_ratios`; 0 where masked.
    Returns: [B, 1], numbers.
    """
    total_B1 = log_ratio.sum(-1, keepdim=True)
    if mean:
        total_B1 = total_B1 / loss_mask.sum(-1, keepdim=True).clamp(min=1)
    return total_B1.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def masked_credit(advantages: Tensor, loss_mask: Tensor) -> Tensor:
    """Advantages as numbers; 0 where masked, whatever stands there."""
    return torch.where(loss_mask, advantages.detach(), 0.0)


def summed(loss: Tensor, loss_mask: Tensor, token_weight: Tensor) -> Tensor:
    """The weighted sum of token losses over trained tokens."""
    return torch.where(loss_mask, loss * token_weight, 0.0).sum()


@torch.no_grad()
def ratio_metrics(
    log_ratio: Tensor, loss_mask: Tensor, stopped: Tensor, *, bounded: Tensor | None = None
) -> dict[str, Tensor]:
    """The metrics of a ratio loss: unweighted sums over trained tokens (`_max`: the largest).

    Args:
        log_ratio: from `log_ratios`.
        stopped: bool, True where a bound of the loss takes the place of the token's ratio, or takes its push away.
            Counted apart on both sides of a ratio of 1.
        bounded: the bounded log ratio, where it is the sequence's. None: the token's.
    Returns: `num_tokens`, `num_clipped_low`, `num_clipped_high`, `approx_kl_sum` (KL(old || policy) by k3),
        `ratio_sum`, `ratio_max`.
    """
    stopped = loss_mask & stopped
    bounded = log_ratio if bounded is None else bounded
    ratio = torch.where(loss_mask, log_ratio.exp(), 0.0)
    return {
        "num_tokens": loss_mask.sum(),
        "num_clipped_low": (stopped & (bounded < 0)).sum(),
        "num_clipped_high": (stopped & (bounded > 0)).sum(),
        "approx_kl_sum": k3(torch.zeros_like(log_ratio), log_ratio).sum(),  # 0 where masked: log_ratio is 0 there
        "ratio_sum": ratio.sum(),
        "ratio_max": ratio.amax(),
    }
