"""A lean forward pass for decoders of the Llama shape: the model's weights, without padding and with less glue.

Tokens of all rows come as one flat list, so linear layers and norms never see padding. The caller passes the attention:
causal within rows for the trainer and for prompts (`CausalRows`), one new token against the key/value memory for the
engine. The model's own modules do the rest (projections with their biases and LoRA adapters, norms, MLP). Other
architectures go through `transformers` whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.models.policy import Policy

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [N, heads, D], keys [N, kv heads, D], values [N, kv heads, D]) to [N, heads, D]; N tokens."""

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


def lean_decoder(policy: Policy) -> LeanDecoder | None:
    """The policy's lean decoder, or None where the model has to go through `transformers`."""
    return None if policy.full_logits else LeanDecoder.of(policy.causal_lm)


def partial_attention(causal_lm: Any) -> set[str]:
    """The kinds of layers that do not attend to everything before them, such as `sliding_attention`."""
    config = causal_lm.config.get_text_config()
    if "layer_types" not in vars(config) and getattr(config, "sliding_window", None):  # older configs have no list
        return {"sliding_attention"}
    return set(getattr(config, "layer_types", None) or ()) - {"full_attention"}


def steady_positions(causal_lm: Any) -> int | None:
    """The number of positions up to which a token's result depends on earlier tokens alone. None: the config sets no
    end. Past some length, some rotary embeddings stretch with the longest row of the batch."""
    config = causal_lm.config.get_text_config()
    positions: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return rope.get("original_max_position_embeddings") or positions
    return positions


def steady_shapes(lean: LeanDecoder) -> bool:
    """Whether a pass is the same kernels for the same shapes: no rotary embedding looks at the positions' values, and
    no layer's weights are gathered."""
    rope = getattr(lean.decoder.config, "rope_parameters", None) or {}
    is_gathered = any(hasattr(layer, "gathered_layer") for layer in lean.decoder.layers)
    return rope.get("rope_type") not in ("dynamic", "longrope") and not is_gathered


class LeanDecoder:
    """See the module's docstring. `of` says whether it fits."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    @classmethod
    def of(cls, causal_lm: Any) -> LeanDecoder | None:
        """None where the model is of another family, or has layers that do not attend to everything before them."""
        fits = causal_lm.config.get_text_config().model_type in FAMILIES and not partial_attention(causal_lm)
        return cls(causal_lm.get_decoder()) if fits else None

    def __call__(self, tokens_N: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """[N, H] last hidden states of N tokens at their positions."""
        decoder = self.decoder
        hidden_NH = decoder.embed_tokens(tokens_N)
        cos, sin = (part[0, :, None] for part in decoder.rotary_emb(hidden_NH[None], positions_N[None]))
        half = sin.shape[-1] // 2
        sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)  # so that a half turn needs no negation
        for index, layer in enumerate(decoder.layers):
            # With shards, the layer's own method gathers its weights first: see `whet.models.sharding`.
            compute = getattr(layer, "gathered_layer", run_layer)
            hidden_NH = compute(layer, index, hidden_NH, cos, sin, attend)
        return _norm(decoder.norm, hidden_NH)


def run_layer(layer: Any, index: int, hidden_NH: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
    """[N, H] hidden states after a layer. With gradient checkpointing its activations are computed again later."""
    if layer.training and getattr(layer, "gradient_checkpointing", False):
        return checkpoint(_layer, index, layer, hidden_NH, cos, sin, attend, use_reentrant=False)
    return _layer(index, layer, hidden_NH, cos, sin, attend)


def _layer(index: int, layer: Any, hidden_NH: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
    attention = layer.self_attn
    inner = _norm(layer.input_layernorm, hidden_NH)
    queries, keys, values = (
        projection(inner).unflatten(-1, (-1, attention.head_dim))
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if hasattr(attention, "q_norm"):
        queries, keys = _norm(attention.q_norm, queries), _norm(attention.k_norm, keys)
    mixed = attend(index, _rotate(queries, cos, sin), _rotate(keys, cos, sin), values)
    hidden_NH = hidden_NH + attention.o_proj(mixed.flatten(-2))
    return hidden_NH + _mlp(layer.mlp, _norm(layer.post_attention_layernorm, hidden_NH))


def _mlp(mlp: Any, x: Tensor) -> Tensor:
    if mlp.config.hidden_act != "silu":
        result: Tensor = mlp(x)
        return result
    return mlp.down_proj(SwiGLU.apply(mlp.gate_proj(x), mlp.up_proj(x)))  # type: ignore[no-untyped-call]


def _norm(norm: Any, x: Tensor) -> Tensor:
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return RMSNorm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


class RMSNorm(torch.autograd.Function):
    """Root mean square norm (arXiv:1910.07467) over the last dimension. Torch has no CPU kernel for it; with the
    gradient written out it passes over memory a third as often."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        mean = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_() / x.shape[-1]
        scale = mean.add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        product = x * gradient
        along = (product @ weight)[..., None] * scale**3 / -x.shape[-1]
        of_weight = (product * scale).flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        return (gradient * scale).mul_(weight).addcmul_(x, along), of_weight, None


class SwiGLU(torch.autograd.Function):
    """`silu(gate) * up` (arXiv:2002.05202), with the gradient of torch's own to the bit. `silu(gate)` is not kept for
    it but computed again: it is one of the four largest activations of a layer.

    Args:
        gate, up: [N, inner size].
    """

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(gradient * up, gate), F.silu(gate).mul_(gradient)


def _rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x_NHD * cos, x_NHD.roll(x_NHD.shape[-1] // 2, dims=-1), sin)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention, with as many query heads for each key/value head as there are.

    Args:
        queries: [B, heads, S, D].
        keys, values: [B, kv heads, T, D].
        mask: [B, 1, S, T] whether a query sees a key. None: causal.
    """
    repeats = queries.shape[1] // keys.shape[1]
    if mask is not None and repeats > 1 and queries.device.type == "cuda":
        # No kernel of a GPU that takes a mask takes fewer key/value heads: torch would write out all scores.
        keys, values, repeats = keys.repeat_interleave(repeats, 1), values.repeat_interleave(repeats, 1), 1
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=repeats > 1
    )


BUCKET = 2 / 3
"""Rows attend together if the fewest unshared tokens of a row are at least this share of the most."""


class CausalRows:
    """Attention within rows that lie one after the other in a flat list of tokens: each token sees its row up to
    itself. A beginning that a row shares with the row before is in the list once, so the model computes it once. Only
    attention works on padded rows, those of like length together. Its results at places that are not in the list are
    thrown away.

    Args:
        lengths: tokens of each row.
        tokens_BT: the rows, padded on the right. Sort them, so that rows with one beginning lie side by side. None:
            nothing is shared.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device, tokens_BT: Tensor | None = None) -> None:
        count, longest = len(lengths), max(lengths)
        lengths_B1 = torch.tensor(lengths, device=device)[:, None]
        within_T = torch.arange(longest, device=device)
        shared_B = torch.zeros(count, dtype=torch.long, device=device)
        if tokens_BT is not None and count > 1:
            is_common = (tokens_BT[1:] == tokens_BT[:-1]) & (within_T < torch.minimum(lengths_B1[1:], lengths_B1[:-1]))
            shared_B[1:] = is_common.long().cumprod(-1).sum(-1)
        own_BT = (within_T >= shared_B[:, None]) & (within_T < lengths_B1)
        self.positions_N = within_T.expand(count, longest)[own_BT]
        rows_B1 = torch.arange(count, device=device)[:, None]
        # A shared place belongs to the nearest row above that does not share it.
        owners_BT = torch.where(within_T >= shared_B[:, None], rows_B1, 0).cummax(0).values
        index_BT = (own_BT.flatten().cumsum(0) - 1).view_as(own_BT)
        self.sources_BT = index_BT.gather(0, owners_BT).clamp(min=0)
        """The index in the flat list of each place of the padded rows; padding points anywhere."""
        self.last_B = self.sources_BT.gather(1, lengths_B1 - 1).squeeze(1)
        """The index in the flat list of each row's last token."""
        # None: nothing is padded or shared.
        self.own_BT = None if bool(own_BT.all()) else own_BT
        self.buckets = [_Bucket.of(rows, lengths, shared_B, self.sources_BT) for rows in _buckets(lengths, shared_B)]
        computed = torch.cat([bucket.queries for bucket in self.buckets])
        is_own = torch.cat([bucket.is_own for bucket in self.buckets])
        self.places_N = torch.empty_like(self.positions_N)
        """The index in the concatenated buckets at which each token of the flat list is computed."""
        self.places_N[computed[is_own]] = torch.arange(len(computed), device=device)[is_own]

    def flat(self, x_BT: Tensor) -> Tensor:
        """One number a token, as padded rows, to a flat list: [N]."""
        return x_BT.flatten() if self.own_BT is None else x_BT[self.own_BT]

    def padded(self, x_NHD: Tensor) -> Tensor:
        """[B, H, T, D]; padding holds some other token's numbers."""
        return self._square(x_NHD, self.sources_BT.flatten(), (self.sources_BT.shape[0], self.sources_BT.shape[1]))

    def _square(self, x_NHD: Tensor, sources: Tensor, shape: tuple[int, int]) -> Tensor:
        return (x_NHD if self.own_BT is None else _rows(x_NHD, sources)).unflatten(0, shape).transpose(1, 2)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        mixed = []
        for bucket in self.buckets:
            count, width = bucket.shape
            whole = self._square(keys, bucket.keys, (count, width)), self._square(values, bucket.keys, (count, width))
            asking = self._square(queries, bucket.queries, (count, len(bucket.queries) // count))
            done = attention(asking, *whole, bucket.mask)
            mixed.append(done.transpose(1, 2).flatten(0, 1))
        return mixed[0] if self.own_BT is None else _rows(torch.cat(mixed), self.places_N)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Rows that attend together: B of them, T tokens wide, with S tokens each to compute."""

    shape: tuple[int, int]
    """B, T."""
    keys: Tensor
    """[B * T] places in the flat list."""
    queries: Tensor
    """[B * S] likewise: a row's unshared tokens, and filling."""
    is_own: Tensor
    """[B * S] False where the query is filling."""
    mask: Tensor | None
    """[B, 1, S, T]; None: no row shares its beginning."""

    @classmethod
    def of(cls, rows: list[int], lengths: Sequence[int], shared_B: Tensor, sources_BT: Tensor) -> _Bucket:
        width = max(lengths[row] for row in rows)
        keys_BT = sources_BT[rows, :width]
        starts_B1 = shared_B[rows, None]
        lengths_B1 = torch.tensor([lengths[row] for row in rows], device=keys_BT.device)[:, None]
        most = int((lengths_B1 - starts_B1).max())
        at_BS = starts_B1 + torch.arange(most, device=keys_BT.device)
        queries_BS = keys_BT.gather(1, at_BS.clamp(max=width - 1))
        mask = None
        if bool((starts_B1 > 0).any()):
            mask = (torch.arange(width, device=keys_BT.device) <= at_BS[..., None])[:, None]
        is_own_BS = at_BS < lengths_B1
        return cls((len(rows), width), keys_BT.flatten(), queries_BS.flatten(), is_own_BS.flatten(), mask)


def _buckets(lengths: Sequence[int], shared_B: Tensor) -> Iterator[list[int]]:
    """Rows with like numbers of unshared tokens, the most first. Equal ones stay in order; rows without any are in no
    bucket."""
    num_own = [length - shared for length, shared in zip(lengths, shared_B.tolist(), strict=True)]
    order = sorted((row for row in range(len(num_own)) if num_own[row]), key=lambda row: -num_own[row])
    while order:
        take = sum(num_own[row] >= BUCKET * num_own[order[0]] for row in order)
        yield order[:take]
        order = order[take:]


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """`x[index]`, by the kernel whose gradient is many times faster on a CPU."""
    return x.flatten(1).index_select(0, index).unflatten(1, x.shape[1:])
