"""DPPO: the trust region is a bound on how far a token's probability moves, and not on its ratio."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.ratio import log_ratios, masked_credit, ratio_metrics, summed

Divergence = Literal["tv", "kl"]


def dppo_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    divergence: Divergence = "tv",
    low: float = 0.2,
    high: float = 0.2,
    max_ratio: float = 20.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """DPPO (arXiv:2602.04879, eq. 12 and 14): `-sg(min(r, max_ratio)) A log pi`, on the tokens that are kept.

    A token is dropped if it has moved past the bound and its credit pushes it further. It is taken as a coin: the
    sampled token, or any other. With p its probability now and q its old one, the distance is `|p - q|` (`tv`, total
    variation) or `q log(q / p) + (1 - q) log((1 - q) / (1 - p))` (`kl`). So a rare token may change by a large ratio,
    and a likely one may not.

    Args:
        old_logprobs: of the policy that sampled. The paper anchors the trust region there.
        low: at least 0, and at most 1 for `tv`. Bounds the distance of bad tokens (A < 0) that became less likely.
        high: the same range. Bounds the distance of good tokens (A > 0) that became more likely.
        max_ratio: at least 1. The ratio weighs the gradient by no more than this. The others are those of
            `clipped_policy_loss`.
    Raises: ValueError where `divergence` is neither.
    """
    if divergence not in get_args(Divergence):
        raise ValueError(f"unknown divergence {divergence!r}: choose one of {', '.join(get_args(Divergence))}.")
    log_ratio = log_ratios(policy_logprobs.detach(), old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    distance = _distance(divergence, policy_logprobs.detach(), old_logprobs.detach(), loss_mask)
    dropped = ((credit > 0) & (log_ratio > 0) & (distance > high)) | ((credit < 0) & (log_ratio < 0) & (distance > low))
    weight = log_ratio.exp().clamp(max=max_ratio)
    token_loss = -weight * credit * torch.where(loss_mask, policy_logprobs, 0.0)
    loss = torch.where(dropped, 0.0, token_loss)
    return summed(loss, loss_mask, token_weight), ratio_metrics(log_ratio, loss_mask, dropped)


@torch.no_grad()
def _distance(divergence: Divergence, policy_logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """How far each sampled token's probability has moved: [0, 1] for `tv`, nats for `kl`; 0 where masked."""
    log_p = torch.where(loss_mask, policy_logprobs, -1.0).double()
    log_q = torch.where(loss_mask, old_logprobs, -1.0).double()
    # Logprobs of different kernels may be a rounding error above 0.
    p, q = log_p.exp().clamp(max=1.0), log_q.exp().clamp(max=1.0)
    if divergence == "tv":
        return torch.where(loss_mask, (p - q).abs(), 0.0)
    tiny = torch.finfo(torch.float64).tiny  # a side that is impossible now and was not before: far, not infinitely far
    sampled = torch.xlogy(q, q) - torch.xlogy(q, p.clamp(min=tiny))
    other = torch.xlogy(1 - q, 1 - q) - torch.xlogy(1 - q, (1 - p).clamp(min=tiny))
    return torch.where(loss_mask, (sampled + other).clamp(min=0.0), 0.0)
