"""Draws a token a row from logits, by one uniform number each.

A token is drawn by inverting the cumulative distribution. That is a sum in float64 over the whole vocabulary, and most
of it lies far from the number that is looked for. So blocks of tokens are summed in float32 first, and one block a row
in float64. Where the rounding of those sums could change the token, the row is summed in float64 as a whole.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
"""Tokens of a block."""
SLACK = 2.0 * BLOCK * 2.0**-24
"""Share of the whole mass. A float32 sum of n numbers of at least 0 is off by less than n times 2^-24 of itself, in any
order (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Two such sums are compared."""
FEW = 16 * BLOCK
"""Vocabularies up to this size are summed in float64 as a whole: there calls cost more than arithmetic."""
LIKELIEST = 512
"""Tokens that a cut distribution is looked for among, before all are sorted."""
AT_ONCE = 1 << 20
"""Logits that a CPU works on at one time (4 MiB of float32), so that a cache holds them from one pass to the next."""


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
    num_rows, num_tokens = logits_BV.shape
    step = max(1, AT_ONCE // num_tokens) if logits_BV.device.type == "cpu" else num_rows
    tokens_B = torch.empty(num_rows, dtype=torch.long, device=logits_BV.device)
    logprobs_B = torch.empty(num_rows, device=logits_BV.device)
    for at in range(0, num_rows, step):
        part = slice(at, at + step)
        tokens_B[part], logprobs_B[part] = _sample_rows(
            logits_BV[part],
            None if temperature_B is None else temperature_B[part],
            None if top_p_B is None else top_p_B[part],
            uniform_B[part],
        )
    return tokens_B, logprobs_B


def log_distribution(logits_BV: Tensor, temperature_B: Tensor | None) -> Tensor:
    """[B, V] float32, `log softmax(logits / temperature)`. Arguments as in `sample`."""
    logits_BV = logits_BV.float()
    if temperature_B is not None:
        logits_BV = logits_BV / torch.where(temperature_B == 0, 1.0, temperature_B)[:, None]
    return torch.log_softmax(logits_BV, dim=-1)


def _sample_rows(
    logits_BV: Tensor, temperature_B: Tensor | None, top_p_B: Tensor | None, uniform_B: Tensor
) -> tuple[Tensor, Tensor]:
    """As `sample`, of all rows at once."""
    logprobs_BV = log_distribution(logits_BV, temperature_B)
    greedy = [] if temperature_B is None else (temperature_B == 0).nonzero().flatten().tolist()
    if len(greedy) == len(logits_BV):
        tokens_B = logits_BV.float().argmax(-1)
    else:
        tokens_B = _draw(logprobs_BV, top_p_B, uniform_B)
        if greedy:
            tokens_B[greedy] = logits_BV[greedy].float().argmax(-1)
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1)


def _draw(logprobs_BV: Tensor, top_p_B: Tensor | None, uniform_B: Tensor) -> Tensor:
    """[B] token ids."""
    num_rows, num_tokens = logprobs_BV.shape
    if num_tokens <= FEW:
        return _draw_whole(logprobs_BV.exp(), top_p_B, uniform_B)
    # Whole blocks, so that they can be summed in place: the last one is filled up with tokens of no mass.
    weights_BW = logprobs_BV.new_empty(num_rows, -(-num_tokens // BLOCK) * BLOCK)
    weights_BW[:, num_tokens:] = 0.0
    weights_BV = torch.exp(logprobs_BV, out=weights_BW[:, :num_tokens])
    tokens_B, is_sure_B = _draw_by_blocks(weights_BW, uniform_B)
    if top_p_B is not None and (cut := (top_p_B < 1).nonzero().flatten().tolist()):
        tokens_B[cut], is_sure_B[cut] = _draw_likeliest(weights_BV[cut], top_p_B[cut], uniform_B[cut])
    if unsure := (~is_sure_B).nonzero().flatten().tolist():
        of_unsure = None if top_p_B is None else top_p_B[unsure]
        tokens_B[unsure] = _draw_whole(weights_BV[unsure], of_unsure, uniform_B[unsure])
    return tokens_B


def _draw_whole(weights_BV: Tensor, top_p_B: Tensor | None, uniform_B: Tensor) -> Tensor:
    """[B] token ids, with all sums in float64.

    Args:
        weights_BV: at least 0; they need not add up to 1.
    """
    if top_p_B is not None:
        sorted_BV, order_BV = weights_BV.sort(dim=-1, descending=True)
        before_BV = sorted_BV.cumsum(-1, dtype=torch.float64) - sorted_BV
        cut_BV = torch.where(before_BV < top_p_B[:, None], sorted_BV, 0.0)
        weights_BV = torch.zeros_like(weights_BV).scatter_(-1, order_BV, cut_BV)
    cumulative_BV = weights_BV.cumsum(-1, dtype=torch.float64)
    drawn_B1 = torch.searchsorted(cumulative_BV, uniform_B[:, None] * cumulative_BV[:, -1:], right=True)
    return drawn_B1.squeeze(-1).clamp(max=weights_BV.shape[-1] - 1)


def _draw_by_blocks(weights_BW: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """[B] token ids without a cut; and whether `_draw_whole` surely gives the same one.

    Args:
        weights_BW: whole blocks.
    """
    blocks_BNK = weights_BW.unflatten(-1, (-1, BLOCK))
    sums_BN = blocks_BNK.sum(-1)
    ends_BN = sums_BN.cumsum(-1, dtype=torch.float64)
    goal_B1 = uniform_B[:, None] * ends_BN[:, -1:]
    block_B1 = torch.searchsorted(ends_BN, goal_B1, right=True).clamp(max=ends_BN.shape[-1] - 1)
    start_B1 = ends_BN.gather(-1, block_B1) - sums_BN.gather(-1, block_B1)
    rows_B = torch.arange(len(weights_BW), device=weights_BW.device)
    ends_BK = start_B1 + blocks_BNK[rows_B, block_B1.squeeze(-1)].cumsum(-1, dtype=torch.float64)
    place_B1 = torch.searchsorted(ends_BK, goal_B1, right=True).clamp(max=BLOCK - 1)
    upper_B1 = ends_BK.gather(-1, place_B1)
    lower_B1 = torch.where(place_B1 > 0, ends_BK.gather(-1, (place_B1 - 1).clamp(min=0)), start_B1)
    slack_B1 = SLACK * ends_BN[:, -1:]
    is_sure_B1 = (goal_B1 - lower_B1 > slack_B1) & (upper_B1 - goal_B1 > slack_B1)  # False of NaN
    return (block_B1 * BLOCK + place_B1).squeeze(-1), is_sure_B1.squeeze(-1)


def _draw_likeliest(weights_BV: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """[B] token ids from distributions that are cut; and whether `_draw_whole` surely gives the same one.

    It does where the kept tokens are among the likeliest ones, and weigh more than those that are cut. Of equal weights
    it depends on the sorting which of them stay.
    """
    sorted_BK, order_BK = weights_BV.topk(LIKELIEST + 1)
    before_BK = sorted_BK.cumsum(-1, dtype=torch.float64) - sorted_BK
    is_kept_BK = before_BK < top_p_B[:, None]
    count_B1 = is_kept_BK.sum(-1, keepdim=True)
    last_B1 = sorted_BK.gather(-1, (count_B1 - 1).clamp(min=0))
    next_B1 = sorted_BK.gather(-1, count_B1.clamp(max=LIKELIEST))
    is_sure_B1 = (count_B1 <= LIKELIEST) & (last_B1 > next_B1)
    ids_BK, by_id_BK = order_BK.sort(dim=-1)
    cut_BK = torch.where(is_kept_BK, sorted_BK, 0.0).gather(-1, by_id_BK)
    drawn_B = _draw_whole(cut_BK, None, uniform_B)
    return ids_BK.gather(-1, drawn_B[:, None]).squeeze(-1), is_sure_B1.squeeze(-1)


# --- uniform numbers --------------------------------------------------------------------------------------------------


FOR_ZERO = -0x2E4AB5CD2E6D12FD  # 0xD1B54A32D192ED03 as a signed number: like any other, and no small multiple of gamma


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """Uniform numbers, float64 in (0, 1), in the shape of both broadcast.

    Each is splitmix64's finaliser (Steele et al., 2014) over seed + position * golden gamma."""
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
