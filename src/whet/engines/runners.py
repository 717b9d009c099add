"""How the engine runs a model: lean where the architecture allows, else through `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicCache

from whet.config.base import ConfigError
from whet.engines.memory import MemoryCache, SlotMemory, Span
from whet.models.fused import FusedDecoder
from whet.models.lean import CausalRows, LeanDecoder, attention, lean_decoder, partial_attention
from whet.models.packed import PackedDecoder, Packing
from whet.models.policy import Policy
from whet.models.scoring import head

KeyValues = list[tuple[Tensor, Tensor]]
"""Per layer the keys and values of a prefill, [B, kv heads, T, head size]."""


class Runner(Protocol):
    """Passes return hidden states [rows, H] (or logits, where `Policy.full_logits`)."""

    def begin(self, longest: int) -> None:
        """Called before the passes of one `generate`, between which weights stay as they are.

        Args:
            longest: tokens of the longest row that there may be.
        """

    def head(self, hidden: Tensor) -> Tensor:
        """[rows, V] float32 logits of what a pass returned."""

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, KeyValues]:
        """Of each context's last token; and what it leaves in the memory."""

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        """One token a row, at the places that the memory points at."""

    def extend(self, tokens_BS: Tensor, span: Span, tokens_R: Tensor, memory: SlotMemory) -> tuple[Tensor, Tensor]:
        """Several tokens in each of B rows, and one in each of the R rows that the memory points at.

        Both are one pass where that is cheaper. R may be 0.

        Returns: of the B rows [B, S, H], and of the R rows [R, H].
        """


def runner_of(policy: Policy, packing: Packing | None = None) -> Runner:
    """How an engine runs a policy.

    Args:
        packing: the policy's, where products are computed on a packed copy of its weights. None: on the weights.
    Raises: ConfigError where the model has layers that do not attend to everything before them.
    """
    if kinds := partial_attention(policy.causal_lm):
        raise ConfigError(
            "the local engine runs models with full attention in every layer; "
            f"{policy.causal_lm.config.get_text_config().model_type!r} has {sorted(kinds)}; serve it elsewhere, or set "
            "use_sliding_window = false in its config.json"
        )
    lean = lean_decoder(policy)
    if packing is not None:
        assert lean is not None
        return PackedRunner(policy, lean, packing)
    if lean is None:
        return WholeRunner(policy)
    return FusedRunner(policy, lean) if FusedDecoder.fits(lean) else LeanRunner(policy, lean)


class LeanRunner:
    """Llama-shaped models, without padding."""

    def __init__(self, policy: Policy, lean: LeanDecoder) -> None:
        self.policy, self.lean = policy, lean

    def begin(self, longest: int) -> None:
        """Nothing to prepare."""

    def head(self, hidden: Tensor) -> Tensor:
        return head(self.policy, hidden)

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, KeyValues]:
        tokens_N, rows = _flat(contexts, self.policy.device)
        keys_and_values: KeyValues = []

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys_and_values.append((rows.padded(keys), rows.padded(values)))
            return rows(layer, queries, keys, values)

        return self.lean(tokens_N, rows.positions_N, attend)[rows.last_B], keys_and_values

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            heads = keys.shape[1]
            keys, values = memory.write(layer, torch.stack((keys, values), dim=1))
            return _attend_memory(queries, heads, keys, values, memory)

        return self.lean(tokens_R, memory.positions_R, attend)

    def extend(self, tokens_BS: Tensor, span: Span, tokens_R: Tensor, memory: SlotMemory) -> tuple[Tensor, Tensor]:
        count, (rows, width) = len(tokens_R), tokens_BS.shape

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            both = torch.stack((keys, values), dim=1)
            new = _attend_span(layer, queries[count:], both[count:], span)
            if not count:
                return new
            heads = keys.shape[1]
            keys, values = memory.write(layer, both[:count])
            return torch.cat((_attend_memory(queries[:count], heads, keys, values, memory), new))

        tokens_N = torch.cat((tokens_R, tokens_BS.flatten()))
        positions_N = torch.cat((memory.positions_R[:count], span.positions_BS.flatten()))
        hidden = self.lean(tokens_N, positions_N, attend)
        return hidden[count:].unflatten(0, (rows, width)), hidden[:count]


class FusedRunner:
    """Small ones on a CPU, with their products put together."""

    def __init__(self, policy: Policy, lean: LeanDecoder) -> None:
        self.policy, self.lean = policy, lean

    def begin(self, longest: int) -> None:
        self.decoder = FusedDecoder(self.lean, longest)

    def head(self, hidden: Tensor) -> Tensor:
        return head(self.policy, hidden)

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, KeyValues]:
        tokens_N, rows = _flat(contexts, self.policy.device)
        keys_and_values: KeyValues = []

        def attend(layer: int, heads_NHD: Tensor) -> Tensor:
            queries, keys, values = heads_NHD.split(self.decoder.heads, dim=1)
            keys_and_values.append((rows.padded(keys), rows.padded(values)))
            return rows(layer, queries, keys, values).flatten(1)

        return self.decoder(tokens_N, rows.positions_N, attend)[rows.last_B], keys_and_values

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        count = len(tokens_R)
        num_heads, num_kv_heads, _ = self.decoder.heads
        per_head = (count * num_kv_heads, num_heads // num_kv_heads, self.decoder.head_size)

        def attend(layer: int, heads_RHD: Tensor) -> Tensor:
            queries, both = heads_RHD.split((num_heads, 2 * num_kv_heads), dim=1)
            keys, values = memory.write(layer, both.unflatten(1, (2, num_kv_heads)))
            return attention_products(queries.reshape(per_head), keys, values, memory.bias_X1T).view(count, -1)

        return self.decoder(tokens_R, memory.positions_R, attend)

    def extend(self, tokens_BS: Tensor, span: Span, tokens_R: Tensor, memory: SlotMemory) -> tuple[Tensor, Tensor]:
        count, (rows, width) = len(tokens_R), tokens_BS.shape
        num_heads, num_kv_heads, _ = self.decoder.heads
        per_head = (count * num_kv_heads, num_heads // num_kv_heads, self.decoder.head_size)

        def attend(layer: int, heads_NHD: Tensor) -> Tensor:
            queries, both = heads_NHD.split((num_heads, 2 * num_kv_heads), dim=1)
            both = both.unflatten(1, (2, num_kv_heads))
            new = _attend_span(layer, queries[count:], both[count:], span).flatten(1)
            if not count:
                return new
            keys, values = memory.write(layer, both[:count])
            old = attention_products(queries[:count].reshape(per_head), keys, values, memory.bias_X1T)
            return torch.cat((old.view(count, -1), new))

        tokens_N = torch.cat((tokens_R, tokens_BS.flatten()))
        positions_N = torch.cat((memory.positions_R[:count], span.positions_BS.flatten()))
        hidden = self.decoder(tokens_N, positions_N, attend)
        return hidden[count:].unflatten(0, (rows, width)), hidden[:count]


class PackedRunner(FusedRunner):
    """Ones of any size on a CPU, with their products computed on a packed copy of the weights."""

    def __init__(self, policy: Policy, lean: LeanDecoder, packing: Packing) -> None:
        super().__init__(policy, lean)
        self.packing = packing

    def begin(self, longest: int) -> None:
        self.decoder = PackedDecoder(self.lean, longest, self.packing.weights())

    def head(self, hidden: Tensor) -> Tensor:
        return self.packing.weights().head(hidden).float()


def _attend_memory(queries: Tensor, heads: int, keys: Tensor, values: Tensor, memory: SlotMemory) -> Tensor:
    """One new token a row, [R, heads, D], against what the memory holds."""
    # The queries that share a key/value head count as so many tokens: nothing is repeated.
    # In bfloat16 the products would copy the keys, as its kernels take no gaps between rows.
    if queries.device.type == "cpu" and queries.dtype == torch.float32:
        return attention_products(
            queries.unflatten(1, (heads, -1)).flatten(0, 1), keys, values, memory.bias_X1T
        ).view_as(queries)
    keys, values = keys.unflatten(0, (-1, heads)), values.unflatten(0, (-1, heads))
    grouped = queries.unflatten(1, (heads, -1))
    return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=memory.mask_R11T).flatten(1, 2)


def _attend_span(layer: int, queries_NHD: Tensor, both_N2KD: Tensor, span: Span) -> Tensor:
    """New tokens of the span's rows, [B * S, heads, D], against those rows up to themselves."""
    shape = span.positions_BS.shape
    keys, values = span.write(layer, both_N2KD.unflatten(0, shape))
    queries = queries_NHD.unflatten(0, shape).transpose(1, 2)
    return attention(queries, keys, values, span.mask_B1ST).transpose(1, 2).flatten(0, 1)


def attention_products(queries_XGD: Tensor, keys_XTD: Tensor, values_XTD: Tensor, bias_X1T: Tensor) -> Tensor:
    """Attention as two batched products, over X = rows x key/value heads with G queries each.

    With a query or two a row it is faster on a CPU than the tiled kernel.

    Returns: [X, G, D].
    """
    scale = queries_XGD.shape[-1] ** -0.5
    scores_XGT = torch.baddbmm(bias_X1T, queries_XGD, keys_XTD.mT, alpha=scale)
    return torch.bmm(scores_XGT.softmax(-1), values_XTD)


def _flat(contexts: Sequence[tuple[int, ...]], device: torch.device) -> tuple[Tensor, CausalRows]:
    """All tokens one after the other, and which belong together."""
    tokens_N = torch.tensor([token for context in contexts for token in context], device=device)
    return tokens_N, CausalRows([len(context) for context in contexts], device)


class WholeRunner:
    """Any decoder-only model with full attention."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        config = policy.causal_lm.config.get_text_config()
        self.takes_bool_mask = getattr(config, "_attn_implementation", "sdpa") == "sdpa"
        self.dtype = next(policy.model.parameters()).dtype

    def begin(self, longest: int) -> None:
        """Nothing to prepare."""

    def head(self, hidden: Tensor) -> Tensor:
        return head(self.policy, hidden)

    def prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Tensor, KeyValues]:
        device = self.policy.device
        ids_BT = torch.zeros((len(contexts), max(map(len, contexts))), dtype=torch.long)
        for row, context in enumerate(contexts):
            ids_BT[row, : len(context)] = torch.tensor(context)
        cache = DynamicCache(config=self.policy.causal_lm.config)
        hidden = self._forward(ids_BT.to(device), past_key_values=cache)
        last_B = torch.tensor([len(context) - 1 for context in contexts], device=device)
        keys_and_values = [(layer.keys, layer.values) for layer in cache.layers]
        return hidden[torch.arange(len(contexts), device=device), last_B], keys_and_values

    def decode(self, tokens_R: Tensor, memory: SlotMemory) -> Tensor:
        return self._reading(tokens_R[:, None], memory.positions_R[:, None], memory.mask_R11T, memory)[:, 0]

    def extend(self, tokens_BS: Tensor, span: Span, tokens_R: Tensor, memory: SlotMemory) -> tuple[Tensor, Tensor]:
        new = self._reading(tokens_BS, span.positions_BS, span.mask_B1ST, span)
        return new, self.decode(tokens_R, memory) if len(tokens_R) else new[:0, 0]

    def _reading(self, tokens: Tensor, positions: Tensor, mask: Tensor, memory: SlotMemory | Span) -> Tensor:
        """New tokens, [rows, S], on top of what a memory holds."""
        if not self.takes_bool_mask:  # eager attention adds its mask
            low = torch.finfo(self.dtype).min
            mask = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill(~mask, low)
        cache = MemoryCache(memory)
        return self._forward(tokens, past_key_values=cache, position_ids=positions, attention_mask=mask)

    def _forward(self, ids: Tensor, **options: Any) -> Tensor:
        model = self.policy.causal_lm
        if self.policy.full_logits:
            return model(input_ids=ids, use_cache=True, **options).logits
        return model.get_decoder()(input_ids=ids, use_cache=True, **options).last_hidden_state
