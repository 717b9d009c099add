"""From rewards to credit: baselines of groups and batches, with KL per token or per sequence.

    GRPO                          group_advantages(divide_by_std=True)
    Dr. GRPO                      group_advantages
    RLOO                          sequence_credit, or leave_one_out without a KL
    REINFORCE++                   reward_to_go of the bare reward, then whiten
    REINFORCE++ with baseline     group_advantages, then reward_to_go, then whiten
    the Critique-RL code          leave_one_out, then reward_to_go, then whiten (arXiv:2510.24320)

Credit is a plain number: nothing here carries a gradient. With a value model: `whet.objectives.values`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def leave_one_out(rewards_PG: Tensor) -> Tensor:
    """RLOO: each reward minus the mean of the others in its group, `A_i = R_i - sum_{j != i} R_j / (G - 1)`.

    The same as `G / (G - 1) * (R_i - mean)`. A group whose rewards are all equal gets exactly 0: it teaches nothing.

    Args:
        rewards_PG: [P, G] floats, the rewards of G attempts at each of P tasks. Groups of different sizes (an attempt
            that failed through our fault is left out) go in one at a time, as [1, G].
    Returns: [P, G]. Each group sums to 0, up to rounding.
    """
    group_size = rewards_PG.shape[-1]
    return _centred(rewards_PG, "leave-one-out") * (group_size / (group_size - 1))


def group_advantages(
    rewards_PG: Tensor, *, divide_by_std: bool = False, correction: int = 1, eps: float = 1e-6
) -> Tensor:
    """Reward minus the mean of its group (Dr. GRPO, arXiv:2503.20783); GRPO (arXiv:2402.03300) also divides by the
    group's standard deviation: `A_i = (R_i - mean) / (std + eps)`.

    Args:
        rewards_PG: [P, G], as in `leave_one_out`.
        divide_by_std: favours groups that nearly all pass or fail.
        correction: 1 for the unbiased std (verl, TRL, OpenRLHF). 0: the population's.
        eps: 1e-6 in verl, 1e-4 in TRL, 1e-9 in OpenRLHF.
    Returns: [P, G]. A group whose rewards are all equal gets exactly 0: it teaches nothing.
    """
    centred_PG = _centred(rewards_PG, "a group's mean")
    if not divide_by_std:
        return centred_PG
    return centred_PG / (rewards_PG.std(dim=-1, correction=correction, keepdim=True) + eps)


def _centred(rewards_PG: Tensor, subject: str) -> Tensor:
    group_size = rewards_PG.shape[-1]
    if group_size < 2:
        raise ValueError(
            f"{subject} needs groups of at least 2 rewards, got {group_size}: a lone attempt has no others to be "
            "compared with. Sample more attempts per task (group_size >= 2), or drop groups that shrank to one."
        )
    if not bool(rewards_PG.isfinite().all()):
        num_bad = int((~rewards_PG.isfinite()).sum())
        raise ValueError(
            f"{subject} needs finite rewards, but {num_bad} of {rewards_PG.numel()} are NaN or infinite. An "
            "attempt whose grading failed has no reward: leave it out of its group instead."
        )
    mean_P1 = rewards_PG.mean(dim=-1, keepdim=True)
    equal_P1 = rewards_PG.amax(dim=-1, keepdim=True) == rewards_PG.amin(dim=-1, keepdim=True)
    # Zeroed by hand: rounding of the mean leaves dust, which whitening and small deviations would blow up.
    return torch.where(equal_P1, 0.0, rewards_PG - mean_P1)


def reward_to_go(
    advantages_B: Tensor, kl_BT: Tensor, loss_mask_BT: Tensor, *, kl_coef: float, clamp: float = 10.0
) -> Tensor:
    """A sequence's advantage at its last trained token, a KL penalty at each: summed from each token to the end.

    `G_t = clamp(A) - kl_coef * sum_{s >= t} kl_s` over trained tokens, undiscounted. The Critique-RL code trains on it
    (its advantage is the return). With `kl_coef` 0 every trained token gets `clamp(A)`.

    Args:
        advantages_B: [B], one number a sequence, from `leave_one_out`. A row with no trained token may hold NaN.
        kl_BT: [B, T], an estimate of KL(policy || ref) at each token, such as `k1`. Ignored where masked, even if NaN.
        loss_mask_BT: [B, T] bool, True where the token trains; gaps are fine.
        clamp: bound on |A|, before the KL is added. `math.inf`: none.
    Returns: [B, T], 0 where masked. A row with no trained token is 0 throughout.
    """
    clamped_B1 = advantages_B.detach().clamp(-clamp, clamp).unsqueeze(-1)
    is_last_BT = loss_mask_BT & (_sum_to_end(loss_mask_BT.long()) == 1)
    reward_BT = torch.where(loss_mask_BT, -kl_coef * kl_BT.detach(), 0.0) + torch.where(is_last_BT, clamped_B1, 0.0)
    return torch.where(loss_mask_BT, _sum_to_end(reward_BT), 0.0)


def _sum_to_end(values_BT: Tensor) -> Tensor:
    return values_BT.flip(-1).cumsum(-1).flip(-1)


def sequence_credit(rewards_PG: Tensor, kl_sum_PG: Tensor, kl_coef: float) -> Tensor:
    """Textbook RLOO (arXiv:2402.14740): the sequence is one action, and the KL is part of its reward.

    `leave_one_out(R - kl_coef * KL)`: unlike in `reward_to_go`, the KL enters *before* the baseline. So a group is
    compared on it too, and every token of a sequence shares one credit.

    Args:
        rewards_PG: [P, G], as in `leave_one_out`.
        kl_sum_PG: [P, G], the KL estimate summed over each sequence's trained tokens.
    Returns: [P, G], one credit a sequence, to be broadcast over its trained tokens.
    """
    return leave_one_out(rewards_PG - kl_coef * kl_sum_PG.detach())


def whiten(values_BT: Tensor, loss_mask_BT: Tensor, *, correction: int = 0) -> Tensor:
    """Mean 0 and variance 1 over all trained *tokens*, so that longer sequences weigh more in both.

    Population variance as in OpenRLHF and the Critique-RL code, unbiased with `correction=1` (verl); floored at 1e-8.
    The statistics are those of the tokens given. The Critique-RL code takes them over the whole rollout batch of all
    ranks. A run on several ranks has to gather the values before this call: one rank's shard, or a micro-batch, has
    other statistics.

    Args:
        values_BT: [B, T], ignored where masked, even if NaN.
        loss_mask_BT: [B, T] bool.
    Returns: [B, T], 0 where masked. Values that are all equal give exactly 0; so does a batch with no trained token.
    """
    num_tokens = loss_mask_BT.sum().clamp(min=1)
    masked_BT = torch.where(loss_mask_BT, values_BT, 0.0)
    highest = torch.where(loss_mask_BT, values_BT, -math.inf).amax()
    lowest = torch.where(loss_mask_BT, values_BT, math.inf).amin()
    # Zeroed by hand, as in `leave_one_out`: the floored std would multiply the dust by 1e4.
    moves_BT = loss_mask_BT & (highest != lowest)
    centred_BT = torch.where(moves_BT, masked_BT - masked_BT.sum() / num_tokens, 0.0)
    variance = centred_BT.square().sum() / (num_tokens - correction).clamp(min=1)
    return centred_BT * variance.clamp(min=1e-8).rsqrt()
