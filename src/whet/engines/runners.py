"""How the engine runs a model: lean where the architecture allows, else through `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicCache

from whet.engines.memory import MemoryCache, SlotMemory
from whet.models.lean import CausalRows, LeanDecoder, lean_decoder, partial_attention
from whet.models.policy import Policy

Kept = list[tuple[Tensor, Tensor]]
"""Per layer the keys and values of a prefill, [B, kv heads, T, head size]."""


class Runner(Protocol):
    """Both return hidden states [rows, H] (or logits, where `Policy.full_logits`)."""

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Kept]:
        """Of each context's last token; and what it leaves in the memory."""

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        """One token a row, at the places that the memory points at."""


def runner_of(policy: Policy) -> Runner:
    """Raises: ValueError where the model has layers that do not attend to everything before them."""
    if kinds := partial_attention(policy.causal_lm):
        raise ValueError(
            "the local engine runs models with full attention in every layer; "
            f"{policy.causal_lm.config.get_text_config().model_type!r} has {sorted(kinds)}; serve it elsewhere, or set "
            "use_sliding_window = false in its config.json"
        )
    lean = lean_decoder(policy)
    return WholeRunner(policy) if lean is None else LeanRunner(policy, lean)


class LeanRunner:
    """Llama-shaped models, without padding."""

    def __init__(self, policy: Policy, decoder: LeanDecoder) -> None:
        self.policy, self.decoder = policy, decoder

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Kept]:
        device = self.policy.device
        rows = CausalRows([len(context) for context in contexts], device)
        kept: Kept = []

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            kept.append((rows.padded(keys), rows.padded(values)))
            return rows(layer, queries, keys, values)

        tokens_N = torch.tensor([token for context in contexts for token in context], device=device)
        return self.decoder(tokens_N, rows.positions_N, attend)[rows.last_B], kept

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = memory.write(layer, keys, values)
            # The queries that share a key/value head count as so many tokens: nothing is repeated.
            grouped = queries.unflatten(1, (keys.shape[1], -1))
            if queries.device.type == "cpu":
                return _products(grouped, keys, values, memory.mask_R11T).flatten(1, 2)
            return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=memory.mask_R11T).flatten(1, 2)

        return self.decoder(tokens_R, memory.positions_R, attend)


def _products(queries_RKGD: Tensor, keys_RKTD: Tensor, values_RKTD: Tensor, mask_R11T: Tensor) -> Tensor:
    """Attention as two batched products: with a query or two a row, faster on a CPU than the tiled kernel."""
    rows, heads, _, size = queries_RKGD.shape
    scores = torch.bmm(queries_RKGD.flatten(0, 1) * size**-0.5, keys_RKTD.flatten(0, 1).mT)
    scores = scores.unflatten(0, (rows, heads)).masked_fill_(~mask_R11T, float("-inf"))
    mixed = torch.bmm(scores.softmax(-1).flatten(0, 1), values_RKTD.flatten(0, 1))
    return mixed.unflatten(0, (rows, heads))


class WholeRunner:
    """Any decoder-only model with full attention."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        config = policy.causal_lm.config.get_text_config()
        self.takes_bool_mask = getattr(config, "_attn_implementation", "sdpa") == "sdpa"
        self.dtype = next(policy.model.parameters()).dtype

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Kept]:
        device = self.policy.device
        ids_BT = torch.zeros((len(contexts), max(map(len, contexts))), dtype=torch.long)
        for row, context in enumerate(contexts):
            ids_BT[row, : len(context)] = torch.tensor(context)
        cache = DynamicCache(config=self.policy.causal_lm.config)
        hidden = self._forward(ids_BT.to(device), past_key_values=cache)
        last_B = torch.tensor([len(context) - 1 for context in contexts], device=device)
        kept = [(layer.keys, layer.values) for layer in cache.layers]
        return hidden[torch.arange(len(contexts), device=device), last_B], kept

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        mask = memory.mask_R11T
        if not self.takes_bool_mask:  # eager attention adds its mask
            low = torch.finfo(self.dtype).min
            mask = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill(~mask, low)
        return self._forward(
            tokens_R[:, None],
            past_key_values=MemoryCache(memory),
            position_ids=memory.positions_R[:, None],
            attention_mask=mask,
        )[:, 0]

    def _forward(self, ids: Tensor, **options: Any) -> Tensor:
        model = self.policy.causal_lm
        if self.policy.full_logits:
            return model(input_ids=ids, use_cache=True, **options).logits
        return model.get_decoder()(input_ids=ids, use_cache=True, **options).last_hidden_state
