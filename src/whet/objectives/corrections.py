"""Weights for tokens that another policy wrote than the one the clip is centred on.

There are three logprobs. The behaviour policy sampled, from another engine or with older weights. The proximal policy
is the trainer's weights before this update, the centre of the clip. The third is the policy. A clipped loss sees
policy / proximal; the weights here are proximal / behaviour and multiply its `token_weight`. A loss that takes the
behaviour policy's logprobs as old ones needs no such weight: it would count the difference twice.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from whet.objectives.kl import MAX_LOG_RATIO
from whet.objectives.ratio import sequence_log_ratios, unbounded_log_ratios

Outside = Literal["clamp", "drop"]
Scope = Literal["token", "sequence", "geometric"]


@torch.no_grad()
def importance_weights(
    proximal_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    loss_mask: Tensor,
    *,
    low: float = 0.0,
    high: float = 2.0,
    outside: Outside = "clamp",
    scope: Scope = "token",
) -> Tensor:
    """`proximal / behaviour` per token, held to [low, high]. All inputs are [B, T].

    `clamp` to [0, 2]: truncated importance sampling (TIS). `drop` outside [0.5, 2]: IcePop, masked importance sampling.
    `high=inf`: decoupled PPO (AReaL, arXiv:2505.24298) as it stands in the paper.

    Args:
        outside: `clamp` moves a weight past a bound to the bound. `drop` drops the token (weight 0).
        scope: `token`; `sequence` (the product over the row's trained tokens); `geometric` (its mean per token).
    Returns: [B, T], numbers; 0 where masked.
    """
    for name, value, allowed in (("outside", outside, get_args(Outside)), ("scope", scope, get_args(Scope))):
        if value not in allowed:
            raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(allowed)}.")
    log_weight = unbounded_log_ratios(proximal_logprobs, behaviour_logprobs, loss_mask)
    if scope != "token":
        log_weight = sequence_log_ratios(log_weight, loss_mask, mean=scope == "geometric").expand_as(log_weight)
    weight = log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if outside == "clamp":
        weight = weight.clamp(low, high if math.isfinite(high) else None)
    else:
        weight = torch.where((weight < low) | (weight > high), 0.0, weight)
    return torch.where(loss_mask, weight, 0.0)
