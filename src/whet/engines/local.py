"""The in-process engine: any decoder-only `transformers` model, on the CPU or a GPU.

Continuous batching: every running request has a slot in the key/value memory; a finished one gives its slot to a
waiting request at once. Requests with equal contexts (a group) are prefilled once and the result is copied. Rows sit
in the memory from position 0 on, each with its own length, so nothing is padded on the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from whet.engines.sampling import sample, uniforms
from whet.models.policy import Policy
from whet.models.scoring import head
from whet.types import Completion, Request, StopReason


@dataclass
class _Running:
    """A request that holds a slot."""

    index: int
    request: Request
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class _SlotLayer(CacheLayerMixin):
    """One layer's keys and values, [slots, heads, length, head size]; row i writes at its own position."""

    def __init__(self, slots: SlotCache) -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        _, heads, _, size = key_states.shape
        shape = (self.slots.num_rows, heads, self.slots.capacity, size)
        self.keys = key_states.new_zeros(shape)
        self.values = value_states.new_zeros(*shape[:3], value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        rows, positions, view = self.slots.rows, self.slots.positions, self.slots.view
        self.keys[rows, :, positions] = key_states[:, :, 0]
        self.values[rows, :, positions] = value_states[:, :, 0]
        return self.keys[: len(rows), :, :view], self.values[: len(rows), :, :view]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots.view, 0

    def get_seq_length(self) -> int:
        return self.slots.view - 1

    def get_max_length(self) -> int:
        return self.slots.capacity


class SlotCache(Cache):
    """Key/value memory for `num_rows` sequences of up to `capacity` tokens."""

    def __init__(self, num_rows: int, capacity: int, num_layers: int, device: torch.device) -> None:
        self.num_rows, self.capacity = num_rows, capacity
        self.rows = torch.arange(num_rows, device=device)
        self.positions = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.view = 1
        super().__init__(layers=[_SlotLayer(self) for _ in range(num_layers)])

    def point_at(self, positions: Tensor) -> None:
        """The next forward pass writes row i at `positions[i]` and reads everything before it."""
        self.rows = torch.arange(len(positions), device=positions.device)
        self.positions, self.view = positions, int(positions.max()) + 1

    def admit(self, filled: DynamicCache, sources: list[int], slots: list[int], length: int) -> None:
        """Copy the prefilled rows `sources` (one may serve several slots) into `slots`."""
        for mine, theirs in zip(self.layers, filled.layers, strict=True):
            if not mine.is_initialized:
                mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[slots, :, :length] = theirs.keys[sources, :, :length]
            mine.values[slots, :, :length] = theirs.values[sources, :, :length]

    def keep(self, slots: list[int]) -> None:
        """Move the rows `slots` to the front, in this order."""
        for layer in self.layers:
            layer.keys[: len(slots)] = layer.keys[slots]
            layer.values[: len(slots)] = layer.values[slots]


class LocalEngine:
    """See the module's docstring.

    Args:
        max_rows: requests that run at one time.
        prefill_tokens: context tokens of one prefill pass, padding included.
    """

    def __init__(self, policy: Policy, *, max_rows: int = 256, prefill_tokens: int = 16384) -> None:
        self.policy, self.max_rows, self.prefill_tokens = policy, max_rows, prefill_tokens
        config = policy.causal_lm.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if "layer_types" not in vars(config) and getattr(config, "sliding_window", None):
            kinds = {"sliding_attention"}
        if kinds - {"full_attention"}:
            raise ValueError(
                f"the local engine runs models with full attention in every layer; {config.model_type!r} has "
                f"{sorted(kinds)}; serve it elsewhere, or set use_sliding_window = false in its config.json"
            )
        self.num_layers: int = config.num_hidden_layers
        self.takes_bool_mask = getattr(config, "_attn_implementation", "sdpa") == "sdpa"
        self.dtype = next(policy.model.parameters()).dtype

    @torch.no_grad()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order. Deterministic: the schedule depends on the requests alone."""
        done: list[Completion | None] = [None] * len(requests)
        if not requests:
            return []
        waiting = _by_context(requests)
        capacity = max(len(r.context) + r.sampling.max_new_tokens for r in requests)
        num_rows = min(self.max_rows, len(requests))
        cache = SlotCache(num_rows, capacity, self.num_layers, self.policy.device)
        running: list[_Running | None] = [None] * num_rows
        with self.policy.active():
            while waiting or any(running):
                free = [slot for slot, item in enumerate(running) if item is None]
                # A prefill pass for a row or two costs as much as a decode step for all: wait until some are free.
                if waiting and (len(free) >= max(1, num_rows // 8) or len(free) == num_rows):
                    admitted = waiting[-len(free) :][::-1]
                    del waiting[-len(free) :]
                    self._admit(admitted, free, running, cache)
                elif not waiting and len(free) >= max(1, sum(map(bool, running)) // 8):
                    kept = [slot for slot, item in enumerate(running) if item is not None]
                    cache.keep(kept)
                    running = [running[slot] for slot in kept]
                    self._decode(running, cache)
                else:
                    self._decode(running, cache)
                self._collect(running, done)
        return [completion for completion in done if completion is not None]

    def _admit(
        self, admitted: list[_Running], free: list[int], running: list[_Running | None], cache: SlotCache
    ) -> None:
        """Prefill the admitted requests, each context once, and sample their first tokens."""
        contexts: dict[tuple[int, ...], list[_Running]] = {}
        for item in admitted:
            contexts.setdefault(item.request.context, []).append(item)
        slots = iter(free)
        for batch in _within_budget(list(contexts), self.prefill_tokens):
            longest = max(map(len, batch))
            ids = torch.zeros((len(batch), longest), dtype=torch.long)
            for row, context in enumerate(batch):
                ids[row, : len(context)] = torch.tensor(context)
            filled = DynamicCache(config=self.policy.causal_lm.config)
            last = torch.tensor([len(context) - 1 for context in batch])
            hidden = self._forward(ids.to(self.policy.device), past_key_values=filled)
            logits = head(self.policy, hidden[torch.arange(len(batch)), last])
            items = [(row, item) for row, context in enumerate(batch) for item in contexts[context]]
            sources, places = [row for row, _ in items], [next(slots) for _ in items]
            cache.admit(filled, sources, places, longest)
            for place, (_, item) in zip(places, items, strict=True):
                running[place] = item
            self._sample([item for _, item in items], logits[sources])

    def _decode(self, running: Sequence[_Running | None], cache: SlotCache) -> None:
        """One token for every running row. Free slots among them compute along on dummy input."""
        device = self.policy.device
        lengths = [len(i.request.context) + len(i.tokens) if i else 1 for i in running]
        ids = torch.tensor([[i.tokens[-1] if i else 0] for i in running], device=device)
        positions = torch.tensor(lengths, device=device) - 1
        cache.point_at(positions)
        mask = (torch.arange(cache.view, device=device) <= positions[:, None])[:, None, None]
        if not self.takes_bool_mask:  # eager attention adds its mask
            low = torch.finfo(self.dtype).min
            mask = torch.zeros(mask.shape, dtype=self.dtype, device=device).masked_fill(~mask, low)
        hidden = self._forward(ids, past_key_values=cache, position_ids=positions[:, None], attention_mask=mask)
        alive = [slot for slot, item in enumerate(running) if item is not None]
        logits = head(self.policy, hidden[:, 0] if len(alive) == len(running) else hidden[alive, 0])
        self._sample([running[slot] for slot in alive], logits)  # type: ignore[misc]

    def _forward(self, ids: Tensor, **options: Any) -> Tensor:
        model = self.policy.causal_lm
        if self.policy.full_logits:
            return model(input_ids=ids, use_cache=True, **options).logits
        return model.get_decoder()(input_ids=ids, use_cache=True, **options).last_hidden_state

    def _sample(self, items: list[_Running], logits: Tensor) -> None:
        device = logits.device
        settings = [item.request.sampling for item in items]
        positions = torch.tensor([len(item.tokens) for item in items], device=device)
        seeds = torch.tensor([_signed(item.request.seed) for item in items], device=device)
        temperature = torch.tensor([s.temperature for s in settings], device=device)
        cut = any(s.top_p < 1.0 for s in settings)
        top_p = torch.tensor([s.top_p for s in settings], device=device) if cut else None
        tokens, logprobs = sample(logits, temperature, top_p, uniforms(seeds, positions))
        for item, token, logprob in zip(items, tokens.tolist(), logprobs.tolist(), strict=True):
            item.tokens.append(token)
            item.logprobs.append(logprob)

    def _collect(self, running: list[_Running | None], done: list[Completion | None]) -> None:
        for slot, item in enumerate(running):
            reason = item and self._finished(item)
            if item and reason:
                done[item.index] = Completion(
                    tokens=tuple(item.tokens),
                    logprobs=tuple(item.logprobs),
                    stop_reason=reason,
                    version=self.policy.version,
                )
                running[slot] = None

    def _finished(self, item: _Running) -> StopReason | None:
        sampling = item.request.sampling
        if item.tokens[-1] in self.policy.stop_ids:
            return "eos"
        if sampling.stop:
            # A stop string cannot be spread over more tokens than it has bytes.
            tail = item.tokens[-max(len(s.encode()) for s in sampling.stop) - 1 :]
            text = self.policy.tokenizer.decode(tail)
            if any(s in text for s in sampling.stop):
                return "stop"
        return "length" if len(item.tokens) >= sampling.max_new_tokens else None


def _by_context(requests: Sequence[Request]) -> list[_Running]:
    """Requests as a stack (last in front), those of one context next to each other, else in the order asked."""
    first: dict[tuple[int, ...], int] = {}
    for index, request in enumerate(requests):
        first.setdefault(request.context, index)
    order = sorted(range(len(requests)), key=lambda i: (first[requests[i].context], i))
    return [_Running(i, requests[i]) for i in reversed(order)]


def _within_budget(contexts: list[tuple[int, ...]], budget: int) -> Iterator[list[tuple[int, ...]]]:
    """Contexts in order, in batches that hold `budget` tokens once padded; one context at least."""
    batch: list[tuple[int, ...]] = []
    longest = 0
    for context in contexts:
        longest = max(longest, len(context))
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], len(context)
        batch.append(context)
    if batch:
        yield batch


def _signed(seed: int) -> int:
    """A 64-bit seed as torch's int64 takes it."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
