"""PPO's value model: generalised advantage estimation, and the loss that fits values to returns."""

from __future__ import annotations

import torch
from torch import Tensor

from whet.objectives.ratio import masked_credit, summed


@torch.no_grad()
def gae(
    rewards_BT: Tensor, values_BT: Tensor, loss_mask_BT: Tensor, *, gamma: float = 1.0, gae_lambda: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv:1506.02438, eq. 16), over each row's trained tokens in order.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lambda A_{t+1}

    Masked tokens are skipped: the next state of a token is the row's next trained token. A row ends in a terminal state
    (value 0), also where it was cut: running out of tokens is the model's own doing.

    Args:
        rewards_BT: [B, T]. Usually a task's reward at the last trained token, and KL penalties at each.
        values_BT: [B, T]. V of the state in which the token was sampled.
        loss_mask_BT: [B, T] bool. True where the token trains; other positions are ignored, even if NaN.
    Returns: advantages and returns (`A + V`, the value model's targets), both [B, T] and 0 where masked.
    """
    advantages_BT = torch.zeros_like(values_BT)
    running_B = torch.zeros_like(values_BT[:, 0])
    next_value_B = torch.zeros_like(running_B)
    for t in range(values_BT.shape[1] - 1, -1, -1):
        trains_B = loss_mask_BT[:, t]
        value_B = torch.where(trains_B, values_BT[:, t], 0.0)
        delta_B = torch.where(trains_B, rewards_BT[:, t], 0.0) + gamma * next_value_B - value_B
        running_B = torch.where(trains_B, delta_B + gamma * gae_lambda * running_B, running_B)
        next_value_B = torch.where(trains_B, value_B, next_value_B)
        advantages_BT[:, t] = torch.where(trains_B, running_B, 0.0)
    return advantages_BT, torch.where(loss_mask_BT, advantages_BT + values_BT, 0.0)


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    loss_mask: Tensor,
    token_weight: Tensor,
    *,
    clip: float | None = 0.5,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Half the squared error of a value model, clipped as PPO's published code does. All inputs are [B, T].

    `max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2`: a value past the clip has no gradient where
    it is closer to its return than the clipped one.

    Args:
        values: V under the model being trained. Carries the gradient.
        old_values: V before this update.
        returns: the targets of V, from `gae`.
        clip: in units of the reward. None: the plain squared error.
    Returns: the loss (a weighted sum) and detached metrics over trained tokens: `num_tokens`, `value_error_sum`
        (squared errors, without the half), `value_sum`, `return_sum`, `num_value_clipped`.
    """
    target = masked_credit(returns, loss_mask)
    value = torch.where(loss_mask, values, 0.0)
    error = (value - target).square()
    worst = error
    if clip is not None:
        old = masked_credit(old_values, loss_mask)
        worst = torch.maximum(error, (value.clamp(old - clip, old + clip) - target).square())
    metrics = {
        "num_tokens": loss_mask.sum(),
        "value_error_sum": error.detach().sum(),
        "value_sum": value.detach().sum(),
        "return_sum": target.sum(),
        "num_value_clipped": (loss_mask & (worst > error)).sum(),
    }
    return summed(worst / 2, loss_mask, token_weight), metrics
