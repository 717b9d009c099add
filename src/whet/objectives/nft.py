"""NFT: supervised learning on right answers that also learns from wrong ones, through the policy that those imply.

The old policy's answers to a task are a mixture: with r the share that is right, `old = r pi+ + (1 - r) pi-`. NFT
trains the policy to be pi+, which fixes the rest, pi-, for the wrong answers. As ratios to the old policy, with
R = pi+ / old:

    q = pi- / old = (1 - r R) / (1 - r)

Right answers are made likelier under pi+ (loss `-log R`) and wrong ones under pi- (loss `-log q`), which pushes R down
with a gradient of `r R / ((1 - r) q)`.

**The floor.** q is 1 on policy, more for a token that grew unlikelier, less for one that grew likelier. It reaches 0 at
R = 1 / r, where the gradient is infinite, and no policy has a q below 0. So the loss is `-log max(q, epsilon)`. The
maximum is straight through: it bounds the value and keeps the gradient, `r R / ((1 - r) max(q, epsilon))`. A wrong
token that grew likelier is thus pushed down harder than in proportion to R, up to `1 / epsilon` times. With r = 0.75
and R = 1.3 that gradient is 3.9 at epsilon = 1, and 39 at 0.1 (it is 3 at R = 1). The default of the published code is
epsilon = 1. There the division acts only on tokens that grew *unlikelier* (q > 1), and weakens their push. The loss of
the others reads 0, though their gradient is not. Small values are reported to hurt.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.ratio import MAX_LOG_RATIO, masked_credit, ratio_metrics, summed, unbounded_log_ratios

MAX_WRONG_LOG_RATIO = 10.0
"""Bound on a wrong token's log ratio, as in the published code: past it (22,026 times as likely) the token has no
gradient. Right tokens need no bound: their loss is the log ratio itself."""

Omega = Literal["dr_grpo", "grpo", "one"]


def nft_loss(
    policy_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    rate_B: Tensor,
    omega: Omega = "dr_grpo",
    negative_weight: float = 1.0,
    epsilon: float = 1.0,
    rate_range: tuple[float, float] = (0.02, 0.98),
) -> tuple[Tensor, dict[str, Tensor]]:
    """NFT (arXiv:2505.18116): `-omega log R` where right, `-omega negative_weight log max(q, epsilon)` where wrong.

    See the top of this file for R, q and the floor. With one update a batch (R = 1) the gradient is that of Dr. GRPO or
    of GRPO, by `omega`. The published code divides by a constant: aggregation `constant`.

    Args:
        advantages: only their sign is read: positive is right, negative wrong, and 0 takes no part. `group_advantages`
            of rewards that are 0 or 1 will do.
        rate_B: [B], r: the share of right answers in the row's group. Not read where a row takes no part. A group that
            is all right or all wrong teaches nothing: its credit has to be 0.
        omega: `dr_grpo` is 1 - r, the default of the published code. `grpo` is sqrt((1 - r) / r), by which hard tasks
            count for more. `one` is 1.
        negative_weight: 0 leaves wrong answers out: rejection sampling, one round a batch.
        epsilon: more than 0. The floor of q.
        rate_range: bounds on r, inside (0, 1). The others are those of `clipped_policy_loss`.
    Returns: as `clipped_policy_loss`; a token counts as clipped (high) where the floor holds its q.
    """
    _check(omega, negative_weight, epsilon, rate_range)
    log_ratio = unbounded_log_ratios(policy_logprobs, old_logprobs, loss_mask)
    credit = masked_credit(advantages, loss_mask)
    takes_part_B1 = (credit != 0).any(-1, keepdim=True)
    rate_B1 = torch.where(takes_part_B1, rate_B.detach()[:, None], 0.5).clamp(*rate_range)
    odds_B1 = rate_B1 / (1 - rate_B1)
    # q = (1 - r R) / (1 - r), in the form that keeps its digits where R is near 1.
    q = 1 - odds_B1 * torch.expm1(log_ratio.clamp(max=MAX_WRONG_LOG_RATIO))
    floored = q.detach().clamp(min=epsilon)
    # The value of log(floored) with the gradient of q / floored. Not `q + (floored - q).detach()`, which rounds to 0 or
    # below where q is far from a small epsilon.
    log_q = floored.log() + (q - q.detach()) / floored
    gain = torch.where(credit > 0, log_ratio, torch.where(credit < 0, negative_weight * log_q, 0.0))
    held = (credit < 0) & (q < epsilon)
    metrics = ratio_metrics(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), loss_mask, held)
    return summed(-_omega(rate_B1, omega) * gain, loss_mask, token_weight), metrics


def _omega(rate: Tensor, omega: Omega) -> Tensor:
    if omega == "dr_grpo":
        return 1 - rate
    return ((1 - rate) / rate).sqrt() if omega == "grpo" else torch.ones_like(rate)


def _check(omega: str, negative_weight: float, epsilon: float, rate_range: tuple[float, float]) -> None:
    if omega not in get_args(Omega):
        raise ValueError(f"unknown omega {omega!r}: choose one of {', '.join(get_args(Omega))}.")
    if negative_weight < 0:
        raise ValueError(f"negative_weight has to be 0 or more, got {negative_weight}: it would praise wrong answers.")
    if epsilon <= 0:
        raise ValueError(f"epsilon has to be more than 0, got {epsilon}: the loss is the log of what it bounds.")
    if not 0 < rate_range[0] <= rate_range[1] < 1:
        raise ValueError(f"rate_range has to be inside (0, 1), got {rate_range}: at 0 or 1 the loss divides by 0.")
