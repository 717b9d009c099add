"""A decoder of the Llama shape with fused matrix products, for small models on a CPU.

There a token costs as much in calls as in arithmetic. Here queries, keys and values come from one product, gate and up
projection from another. The norms' weights are multiplied into them. Products add their results to the residuals. The
pairs that a rotary embedding turns lie side by side, so that turning is one complex multiplication.
Attention sees the dimensions of queries and keys in that order, on which their products do not depend. The result is
`LeanDecoder`'s up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whet.models.lean import LeanDecoder

WIDEST = 512
"""Hidden size up to which it is faster: past it only the products count, and a copy of the weights is not small."""
ROPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that are the same for rows of any length."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer, [inputs, outputs]."""

    to_heads: Tensor
    heads_bias: Tensor
    from_heads: Tensor
    to_inner: Tensor
    from_inner: Tensor
    floors: tuple[Tensor, Tensor]
    """See `unit`; of the norms before attention and MLP."""


Attend = Callable[[int, Tensor], Tensor]
"""(layer, heads [N, query heads + 2 * kv heads, D]: queries, keys, values) to [N, query heads * D]; N tokens."""


class FusedDecoder:
    """See the module's docstring. Holds a copy of the weights as they are now: make a new one when they have changed.

    Args:
        lean: one for which `fits` is true.
        longest: positions of the longest row.
    """

    def __init__(self, lean: LeanDecoder, longest: int) -> None:
        self.layers = [_fused(layer) for layer in lean.decoder.layers]
        self._measure(lean, longest)

    def _measure(self, lean: LeanDecoder, longest: int) -> None:
        """Everything but the layers' weights."""
        self.decoder = decoder = lean.decoder
        attention = decoder.layers[0].self_attn
        self.head_size: int = attention.head_dim
        self.heads = [p.out_features // self.head_size for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
        """Of queries, keys and values."""
        cos, sin = decoder.rotary_emb(decoder.embed_tokens.weight, torch.arange(longest)[None])
        half = self.head_size // 2
        self.turns_TD = torch.complex(cos[0, :, :half], sin[0, :, :half])
        self.norm_weight = decoder.norm.weight * decoder.norm.weight.numel() ** 0.5
        self.norm_floor = floor_of(decoder.norm)

    @staticmethod
    def fits(lean: LeanDecoder) -> bool:
        """Whether the model is small, in float32 on a CPU, and of plain linear layers (no adapters). Its rotary
        embedding must be the same for rows of any length."""
        return lean.decoder.embed_tokens.weight.shape[1] <= WIDEST and is_plain(lean)

    def __call__(self, tokens_N: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """[N, H] last hidden states of N tokens at their positions."""
        hidden_NH = self.decoder.embed_tokens(tokens_N)
        turns_N1D = self.turns_TD[positions_N][:, None]
        shape = (len(tokens_N), sum(self.heads), self.head_size // 2, 2)
        turned = self.heads[0] + self.heads[1]
        for index, layer in enumerate(self.layers):
            pairs = torch.addmm(layer.heads_bias, unit(hidden_NH, layer.floors[0]), layer.to_heads).view(shape)
            torch.view_as_complex(pairs[:, :turned]).mul_(turns_N1D)
            mixed_NH = attend(index, pairs.flatten(2))
            hidden_NH = torch.addmm(hidden_NH, mixed_NH, layer.from_heads)
            gate, up = torch.mm(unit(hidden_NH, layer.floors[1]), layer.to_inner).chunk(2, dim=-1)
            hidden_NH = torch.addmm(hidden_NH, F.silu(gate).mul_(up), layer.from_inner)
        return unit(hidden_NH, self.norm_floor) * self.norm_weight


def unit(x_NH: Tensor, floor: Tensor) -> Tensor:
    """`x / sqrt(|x|^2 + floor^2)`: the root mean square norm, but for a factor of sqrt(H) that is in the weights."""
    return x_NH / torch.linalg.vector_norm(x_NH, dim=-1, keepdim=True).hypot_(floor)


def floor_of(norm: Any) -> Tensor:
    return torch.tensor((norm.variance_epsilon * norm.weight.numel()) ** 0.5)


def base_of(part: Any) -> Any:
    """A linear layer without the adapters around it."""
    return getattr(part, "base_layer", part)


def is_plain(lean: LeanDecoder) -> bool:
    """Whether a model is in float32 on a CPU, of the plain shape, and without adapters."""
    weight = lean.decoder.embed_tokens.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and unlike_plain(lean, lambda p: p) is None


def unlike_plain(lean: LeanDecoder, base: Callable[[Any], Any]) -> str | None:
    """How a model differs from the plain shape: linear layers, SwiGLU, a rotary embedding that is the same for rows of
    any length. In a few words; None: it does not.

    Args:
        base: what counts as a linear layer's own part (`base_of`: adapters may be around it).
    """
    config, rope = lean.decoder.config, lean.decoder.rotary_emb.rope_type
    if config.hidden_act != "silu":
        return f"hidden_act {config.hidden_act!r}"
    if rope not in ROPES:
        return f"the rotary embedding {rope!r}"
    return next(filter(None, (_unlike_plain(layer, base) for layer in lean.decoder.layers)), None)


def _unlike_plain(layer: Any, base: Callable[[Any], Any]) -> str | None:
    attention, mlp = layer.self_attn, layer.mlp
    heads = [base(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    others = [base(part) for part in (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
    if odd := [part for part in (*heads, *others) if type(part) is not nn.Linear]:
        return f"layers of the type {type(odd[0]).__name__}"
    if hasattr(attention, "q_norm"):
        return "norms of queries and keys"
    if any(part.bias is not None for part in others) or len({part.bias is None for part in heads}) > 1:
        return "biases beside those of queries, keys and values"
    return None


def _fused(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    before, after = layer.input_layernorm, layer.post_attention_layernorm
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    turned = [pairs_together(part.weight, attention.head_dim) for part in parts[:2]]
    size = before.weight.numel() ** 0.5
    heads = torch.cat([*turned, parts[2].weight]) * (before.weight * size)
    bias = heads.new_zeros(1)
    if parts[0].bias is not None:
        turned = [pairs_together(part.bias, attention.head_dim) for part in parts[:2]]
        bias = torch.cat([*turned, parts[2].bias])
    inner = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * (after.weight * size)
    return _Layer(
        to_heads=heads.T.contiguous(),
        heads_bias=bias,
        from_heads=attention.o_proj.weight.T.contiguous(),
        to_inner=inner.T.contiguous(),
        from_inner=mlp.down_proj.weight.T.contiguous(),
        floors=(floor_of(before), floor_of(after)),
    )


def pairs_together(x: Tensor, head_size: int) -> Tensor:
    """Rows i and i + half of each head, side by side."""
    return x.unflatten(0, (-1, 2, head_size // 2)).transpose(1, 2).flatten(0, 2)
