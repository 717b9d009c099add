"""A decoder of the Llama shape on a packed copy of its weights, for an engine on a CPU.

`FusedDecoder`'s products, with the weights in a smaller type and in the order in which the processor reads them. Norms,
attention, the memory of keys and values and the residual stream stay float32. The trainer never computes with it.
LoRA adapters are merged into the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from whet.models.fused import Attend, FusedDecoder, base_of, floor_of, pairs_together, unit, unlike_plain
from whet.models.lean import LeanDecoder, partial_attention
from whet.models.policy import Policy

Kind = Literal["bfloat16", "int8"]
Product = Callable[[Tensor], Tensor]
"""A layer's product: [N, inputs] float32 to [N, outputs]."""

ROWS = 64
"""Tokens of a pass for which bfloat16 weights are ordered. Results do not depend on it, and speed hardly does."""
FEW_ROWS = 32
"""Tokens of a pass up to which 8 bits are multiplied as they are. Past it a float32 copy of them, made for the one
product, is faster."""
INT8_INPUTS = 16
"""The kernel of 8 bits reads so many inputs at a time, past the end of a weight whose inputs are no multiple of it."""


# --- products ---------------------------------------------------------------------------------------------------------


def bfloat16_product(weight: Tensor, bias: Tensor | None) -> Product:
    """Weights and inputs in bfloat16, added up in float32. The results are rounded to bfloat16.

    Args:
        weight: [outputs, inputs], float32.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16(), ROWS)
    packed_bias = None if bias is None else bias.bfloat16()

    def product(x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), packed, packed_bias, "none", [], "")
        return result

    return product


def int8_product(weight: Tensor, bias: Tensor | None) -> Product:
    """Weights as whole numbers of 8 bits with a scale for each output, inputs in bfloat16.

    It is meant for passes of few tokens, which wait for memory. Arguments as in `bfloat16_product`.
    """
    scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
    scales = scales.bfloat16().float()  # as the kernel takes them
    whole = (weight / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    packed_scales = scales.bfloat16()
    lacking = -weight.shape[1] % INT8_INPUTS
    whole = F.pad(whole, (0, lacking))

    def product(x: Tensor) -> Tensor:
        inputs = (F.pad(x, (0, lacking)) if lacking else x).bfloat16()
        if len(x) > FEW_ROWS:
            result = F.linear(inputs.float(), whole * scales[:, None])
        else:
            result = torch.ops.aten._weight_int8pack_mm(inputs, whole, packed_scales).float()
        return result if bias is None else result.add_(bias)

    return product


PRODUCTS: dict[Kind, Callable[[Tensor, Tensor | None], Product]] = {
    "bfloat16": bfloat16_product,
    "int8": int8_product,
}


# --- weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layer:
    to_heads: Product
    from_heads: Product
    to_inner: Product
    from_inner: Product
    floors: tuple[Tensor, Tensor]
    """See `whet.models.fused`; of the norms before attention and MLP."""


class PackedWeights:
    """A packed copy of a model's weights as they are now.

    Args:
        causal_lm: one for which `unlike_packed` is None.
    """

    @torch.no_grad()
    def __init__(self, causal_lm: Any, kind: Kind) -> None:
        make = PRODUCTS[kind]
        self.layers = [_packed(layer, make) for layer in causal_lm.get_decoder().layers]
        head = causal_lm.get_output_embeddings()
        self.head = make(head.weight, head.bias)


def unlike_packed(causal_lm: Any) -> str | None:
    """What of a model hinders packing a copy of its weights, in a few words. None: nothing does.

    It looks at no weights, so that a model on the device `meta` will do.
    """
    if kinds := partial_attention(causal_lm):
        return f"layers of the kind {', '.join(sorted(kinds))}"
    lean, head = LeanDecoder.of(causal_lm), causal_lm.get_output_embeddings()
    if lean is None:
        return f"the type {causal_lm.config.get_text_config().model_type!r}"
    if type(head) is not torch.nn.Linear:
        return f"a head of the type {type(head).__name__}"
    return unlike_plain(lean, base_of)


def _weight(part: Any) -> Tensor:
    """[outputs, inputs], with the active adapters of LoRA."""
    weight: Tensor = base_of(part).weight
    for adapter in getattr(part, "active_adapters", ()):
        if adapter in part.lora_A:
            weight = weight + part.get_delta_weight(adapter)
    return weight


def _packed(layer: Any, make: Callable[[Tensor, Tensor | None], Product]) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    before, after = layer.input_layernorm, layer.post_attention_layernorm
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    size = before.weight.numel() ** 0.5
    turned = [pairs_together(_weight(part), attention.head_dim) for part in parts[:2]]
    heads = torch.cat([*turned, _weight(parts[2])]).mul_(before.weight * size)
    bias = None
    if (last := base_of(parts[2]).bias) is not None:
        bias = torch.cat([*(pairs_together(base_of(part).bias, attention.head_dim) for part in parts[:2]), last])
    inner = torch.cat([_weight(mlp.gate_proj), _weight(mlp.up_proj)]).mul_(after.weight * size)
    return _Layer(
        to_heads=make(heads, bias),
        from_heads=make(_weight(attention.o_proj), None),
        to_inner=make(inner, None),
        from_inner=make(_weight(mlp.down_proj), None),
        floors=(floor_of(before), floor_of(after)),
    )


class Packing:
    """Packs a policy's weights when they are first needed, and again when they have changed.

    Args:
        policy: one for whose model `unlike_packed` is None.
    """

    def __init__(self, policy: Policy, kind: Kind) -> None:
        self.policy, self.kind = policy, kind
        self._weights: PackedWeights | None = None
        self._packed_from = (-1, -1)

    def weights(self) -> PackedWeights:
        """Of the policy as it is now. Call it within `policy.active()`."""
        newest = (self.policy.version, self.policy.num_loads)
        if self._weights is None or self._packed_from != newest:
            self._weights = None  # the former copy's memory first
            self._weights, self._packed_from = PackedWeights(self.policy.causal_lm, self.kind), newest
        return self._weights

    def drop(self) -> None:
        """Give the copy's memory back."""
        self._weights = None


class PackedDecoder(FusedDecoder):
    """See the module's docstring.

    Args:
        lean: of a model for which `unlike_packed` is None.
        longest: positions of the longest row.
        weights: of that model.
    """

    def __init__(self, lean: LeanDecoder, longest: int, weights: PackedWeights) -> None:
        self.weights = weights
        self._measure(lean, longest)

    def __call__(self, tokens_N: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """[N, H] last hidden states of N tokens at their positions."""
        hidden_NH = self.decoder.embed_tokens(tokens_N)
        turns_N1D = self.turns_TD[positions_N][:, None]
        shape = (len(tokens_N), sum(self.heads), self.head_size // 2, 2)
        turned = self.heads[0] + self.heads[1]
        for index, layer in enumerate(self.weights.layers):
            pairs = layer.to_heads(unit(hidden_NH, layer.floors[0])).float().view(shape)
            torch.view_as_complex(pairs[:, :turned]).mul_(turns_N1D)
            hidden_NH += layer.from_heads(attend(index, pairs.flatten(2)))
            gate, up = layer.to_inner(unit(hidden_NH, layer.floors[1])).chunk(2, dim=-1)
            hidden_NH += layer.from_inner(F.silu(gate).mul_(up))
        return unit(hidden_NH, self.norm_floor) * self.norm_weight
