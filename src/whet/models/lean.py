"""A lean forward pass for decoders of the Llama shape: the model's own weights, without padding and with less glue.

Tokens of all rows come as one flat list, so linear layers and norms never see padding, and attention is whatever the
caller passes: causal within rows for the trainer and for prompts (`CausalRows`), one new token against the key/value
memory for the engine. What a layer consists of (projections with their biases and LoRA adapters, norms, MLP) is called
as the model has it; other architectures go through `transformers` whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """The policy's model as a lean one, or None where it has to go through `transformers`."""
    return None if policy.full_logits else LeanDecoder.of(policy.causal_lm)


def partial_attention(causal_lm: Any) -> set[str]:
    """The kinds of layers that do not attend to everything before them, such as `sliding_attention`."""
    config = causal_lm.config.get_text_config()
    if "layer_types" not in vars(config) and getattr(config, "sliding_window", None):  # older configs have no list
        return {"sliding_attention"}
    return set(getattr(config, "layer_types", None) or ()) - {"full_attention"}


def steady_positions(causal_lm: Any) -> int | None:
    """The number of positions up to which what a token computes depends on what comes before it alone; None where the
    config sets no end. Some rotary embeddings stretch with the longest row of the batch once it is past a length."""
    config = causal_lm.config.get_text_config()
    positions: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return rope.get("original_max_position_embeddings") or positions
    return positions


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
            if layer.training and getattr(layer, "gradient_checkpointing", False):
                hidden_NH = checkpoint(_layer, index, layer, hidden_NH, cos, sin, attend, use_reentrant=False)
            else:
                hidden_NH = _layer(index, layer, hidden_NH, cos, sin, attend)
        return _norm(decoder.norm, hidden_NH)


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
    return hidden_NH + layer.mlp(_norm(layer.post_attention_layernorm, hidden_NH))


def _norm(norm: Any, x: Tensor) -> Tensor:
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return RMSNorm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


class RMSNorm(torch.autograd.Function):
    """Root mean square norm (arXiv:1910.07467) over the last dimension. Torch has no kernel of its own for it on a
    CPU; with the gradient written out it passes over memory a third as often."""

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


def _rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x_NHD * cos, x_NHD.roll(x_NHD.shape[-1] // 2, dims=-1), sin)


BUCKET = 2 / 3
"""Rows attend together if the shortest has this share of the longest's tokens at least."""


class CausalRows:
    """Attention within rows that lie one after the other in a flat list of tokens: each token sees its row up to
    itself. What a row has in common with the one before it is in the list once, so the model computes it once. Only
    attention works on padded rows, those of like length together; what it computes at places that are not in the list
    is thrown away.

    Args:
        lengths: tokens of each row.
        tokens_BT: the rows, padded on the right, where beginnings are to be shared; sort them, so that rows with one
            beginning lie side by side. None: nothing is shared.
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
        # A place that a row shares belongs to the nearest row above that has it as its own.
        owners_BT = torch.where(within_T >= shared_B[:, None], rows_B1, 0).cummax(0).values
        index_BT = (own_BT.flatten().cumsum(0) - 1).view_as(own_BT)
        self.sources_BT = index_BT.gather(0, owners_BT).clamp(min=0)
        """Where in the flat list each place of the padded rows is found; padding points anywhere."""
        self.last_B = self.sources_BT.gather(1, lengths_B1 - 1).squeeze(1)
        """Where each row's last token lies in the flat list."""
        # None: nothing is padded or shared.
        self.own_BT = None if bool(own_BT.all()) else own_BT
        self.buckets: list[tuple[Tensor, tuple[int, int]]] = []
        """Sources and shape of rows that attend together."""
        places = []
        for rows in _buckets(lengths):
            width = max(lengths[row] for row in rows)
            sources = self.sources_BT[rows, :width].flatten()
            at = sum(len(done) for done, _ in self.buckets) + torch.arange(len(sources), device=device)
            is_own = own_BT[rows, :width].flatten()
            places.append((sources[is_own], at[is_own]))
            self.buckets.append((sources, (len(rows), width)))
        self.places_N = torch.empty_like(self.positions_N)
        """Where in the buckets, one after the other, each token of the flat list is computed."""
        for tokens, at in places:
            self.places_N[tokens] = at

    def flat(self, x_BT: Tensor) -> Tensor:
        """One number a token, as padded rows, to a flat list: [N]."""
        return x_BT.flatten() if self.own_BT is None else x_BT[self.own_BT]

    def padded(self, x_NHD: Tensor) -> Tensor:
        """[B, H, T, D]; what padding holds is some other token's."""
        return self._square(x_NHD, self.sources_BT.flatten(), (self.sources_BT.shape[0], self.sources_BT.shape[1]))

    def _square(self, x_NHD: Tensor, sources: Tensor, shape: tuple[int, int]) -> Tensor:
        return (x_NHD if self.own_BT is None else _rows(x_NHD, sources)).unflatten(0, shape).transpose(1, 2)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        groups = queries.shape[1] != keys.shape[1]
        mixed = []
        for sources, shape in self.buckets:
            squares = [self._square(x, sources, shape) for x in (queries, keys, values)]
            done = F.scaled_dot_product_attention(squares[0], squares[1], squares[2], is_causal=True, enable_gqa=groups)
            mixed.append(done.transpose(1, 2).flatten(0, 1))
        return mixed[0] if self.own_BT is None else _rows(torch.cat(mixed), self.places_N)


def _buckets(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of like length, the longest first; rows of one length stay in order."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while order:
        take = sum(lengths[row] >= BUCKET * lengths[order[0]] for row in order)
        yield order[:take]
        order = order[take:]


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """`x[index]`, by the kernel whose gradient is many times faster on a CPU."""
    return x.flatten(1).index_select(0, index).unflatten(1, x.shape[1:])
