"""A lean forward pass for decoders of the Llama shape: the model's own weights, without padding and with less glue.

Tokens of all rows come as one flat list, so linear layers and norms never see padding, and attention is whatever the
caller passes: causal within rows for the trainer and for prompts (`CausalRows`), one new token against the key/value
memory for the engine. Queries that share a key/value head are attended to together, so keys and values are never
repeated. What a layer consists of (projections with their biases and LoRA adapters, norms, MLP) is called as the
model has it; other architectures go through `transformers` whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [N, heads, D], keys [N, kv heads, D], values [N, kv heads, D]) to [N, heads, D]; N tokens."""

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


class LeanDecoder:
    """See the module's docstring. `of` says whether it fits."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    @classmethod
    def of(cls, causal_lm: Any) -> LeanDecoder | None:
        """None where the model is of another family, or has layers that do not attend to everything before them."""
        config = causal_lm.config.get_text_config()
        if config.model_type not in FAMILIES or set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
            return None
        is_windowed = "layer_types" not in vars(config) and getattr(config, "sliding_window", None)
        return None if is_windowed else cls(causal_lm.get_decoder())

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
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x_NHD * cos, x_NHD.roll(x_NHD.shape[-1] // 2, dims=-1), sin)


class CausalRows:
    """Attention within rows that lie one after the other in a flat list of tokens: each token sees its row up to
    itself. Only attention pads, on the right, and what it computes there is thrown away.

    Args:
        lengths: tokens of each row.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        count, longest = len(lengths), max(lengths)
        lengths_B = torch.tensor(lengths, device=device)
        within_BT = torch.arange(longest, device=device).expand(count, longest)
        mask_BT = within_BT < lengths_B[:, None]
        self.shape = (count, longest)
        self.positions_N = within_BT[mask_BT]
        # None: nothing is padded.
        self.places_N = None if count * longest == sum(lengths) else mask_BT.flatten().nonzero().squeeze(-1)
        self.last_B = lengths_B.cumsum(0) - 1
        """Where each row's last token lies in the flat list."""

    def flat(self, x_BT: Tensor) -> Tensor:
        """The inverse of padding, for one number a token: [N]."""
        return x_BT.flatten() if self.places_N is None else x_BT.flatten()[self.places_N]

    def padded(self, x_NHD: Tensor) -> Tensor:
        """[B, H, T, D], zero where a row has no token."""
        if self.places_N is None:
            return x_NHD.unflatten(0, self.shape).transpose(1, 2)
        square = x_NHD.new_zeros(self.shape[0] * self.shape[1], *x_NHD.shape[1:])
        return square.index_copy(0, self.places_N, x_NHD).unflatten(0, self.shape).transpose(1, 2)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        shared = queries.shape[1] // keys.shape[1]
        if shared > 1:
            keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
        mixed = F.scaled_dot_product_attention(
            self.padded(queries), self.padded(keys), self.padded(values), is_causal=True
        )
        flat = mixed.transpose(1, 2).flatten(0, 1)
        return flat if self.places_N is None else flat[self.places_N]
