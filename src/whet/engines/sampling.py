"""From logits to tokens, for rows that each have a seed of their own.

A token is drawn by inverting the cumulative distribution at one uniform number, and that number is a hash of the
request's seed and the token's position: no generator state, so nothing to keep or restore, and no request sees
which others run beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

FOR_ZERO = -0x2E4AB5CD2E6D12FD  # 0xD1B54A32D192ED03 as a signed number: like any other, and no small multiple of gamma


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """Float64 in (0, 1), in the shape of both broadcast: splitmix64's finaliser (Steele et al., 2014) over seed +
    position * golden gamma."""
    x = seeds + positions * -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number; wraps, as it should
    # The finaliser leaves 0 as it is, so seed 0 would always begin with the lowest id (as would any seed, where its sum
    # with the position is 0). All other numbers keep their bits.
    x = torch.where(x == 0, FOR_ZERO, x)
    x = (x ^ _shift(x, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift(x, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    x = x ^ _shift(x, 31)
    return (_shift(x, 11).double() + 0.5) * 2.0**-53


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right (torch's is arithmetic for int64)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def sample(
    logits_BV: Tensor, temperature_B: Tensor | None, top_p_B: Tensor | None, uniform_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw one token a row.

    Args:
        temperature_B: 0 means greedy. None where it is 1 for all.
        top_p_B: None where no row cuts its distribution. The smallest set of likeliest tokens with at least this
            mass stays.
        uniform_B: float64 in (0, 1).
    Returns: token ids [B] and their logprobs [B] under `softmax(logits / temperature)` before the cut (temperature 1
        where greedy).
    """
    logits_BV = logits_BV.float()
    if temperature_B is not None:
        logits_BV = logits_BV / torch.where(temperature_B == 0, 1.0, temperature_B)[:, None]
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    weights_BV = logprobs_BV.exp()
    if top_p_B is not None:
        sorted_BV, order_BV = weights_BV.sort(dim=-1, descending=True)
        before_BV = sorted_BV.cumsum(-1, dtype=torch.float64) - sorted_BV
        cut_BV = torch.where(before_BV < top_p_B[:, None], sorted_BV, 0.0)
        weights_BV = torch.zeros_like(weights_BV).scatter_(-1, order_BV, cut_BV)
    cumulative_BV = weights_BV.cumsum(-1, dtype=torch.float64)
    drawn_B1 = torch.searchsorted(cumulative_BV, uniform_B[:, None] * cumulative_BV[:, -1:], right=True)
    tokens_B1 = drawn_B1.clamp(max=logits_BV.shape[-1] - 1)
    if temperature_B is not None:
        tokens_B1 = torch.where(temperature_B[:, None] == 0, logits_BV.argmax(-1, keepdim=True), tokens_B1)
    return tokens_B1.squeeze(-1), logprobs_BV.gather(-1, tokens_B1).squeeze(-1)
