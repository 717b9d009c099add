"""A lean forward pass for decoders of the Llama shape: the model's own weights, without padding and with less glue.

Tokens of all rows come as one flat list, so linear layers and norms never see padding, and attention is whatever the
caller passes: causal within rows for the trainer and for prompts (`CausalRows`), one new token against the key/value
memory for the engine. What a layer consists of (projections with their biases and LoRA adapters, norms, MLP) is called
as the model has it; other architectures go through `transformers` whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.addcmul(x_NHD * cos, x_NHD.roll(x_NHD.shape[-1] // 2, dims=-1), sin)


class CausalRows:
    """Attention within rows that lie one after the other in a flat list of tokens: each token sees its row up to
    itself. What a row has in common with the one before it is in the list once, so the model computes it once. Only
    attention works on padded rows, and what it computes at places that are not in the list is thrown away.

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
        self.shape = (count, longest)
        self.positions_N = within_T.expand(count, longest)[own_BT]
        rows_B1 = torch.arange(count, device=device)[:, None]
        # A place that a row shares belongs to the nearest row above that has it as its own.
        owners_BT = torch.where(within_T >= shared_B[:, None], rows_B1, 0).cummax(0).values
        index_BT = (own_BT.flatten().cumsum(0) - 1).view_as(own_BT)
        self.sources_BT = index_BT.gather(0, owners_BT).clamp(min=0)
        """Where in the flat list each place of the padded rows is found; padding points anywhere."""
        # None: nothing is padded or shared.
        self.places_N = None if bool(own_BT.all()) else own_BT.flatten().nonzero().squeeze(-1)
        self.last_B = self.sources_BT.gather(1, lengths_B1 - 1).squeeze(1)
        """Where each row's last token lies in the flat list."""

    def flat(self, x_BT: Tensor) -> Tensor:
        """One number a token, as padded rows, to a flat list: [N]."""
        return x_BT.flatten() if self.places_N is None else x_BT.flatten()[self.places_N]

    def padded(self, x_NHD: Tensor) -> Tensor:
        """[B, H, T, D]; what padding holds is some other token's."""
        square = x_NHD if self.places_N is None else _rows(x_NHD, self.sources_BT.flatten())
        return square.unflatten(0, self.shape).transpose(1, 2)

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        shared = queries.shape[1] // keys.shape[1]
        if shared > 1:
            keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
        mixed = F.scaled_dot_product_attention(
            self.padded(queries), self.padded(keys), self.padded(values), is_causal=True
        )
        flat = mixed.transpose(1, 2).flatten(0, 1)
        return flat if self.places_N is None else _rows(flat, self.places_N)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """`x[index]`, by the kernel whose gradient is many times faster on a CPU."""
    return x.flatten(1).index_select(0, index).unflatten(1, x.shape[1:])
