"""The engine's key/value memory: a slot a running row, each row from position 0 on with a length of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotMemory:
    """Per layer keys and values, [slots, kv heads, capacity, head size]. The slots in use are the first ones."""

    def __init__(self, num_slots: int, capacity: int, num_layers: int) -> None:
        self.num_slots, self.capacity, self.num_layers = num_slots, capacity, num_layers
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.rows_R = self.positions_R = torch.empty(0, dtype=torch.long)
        self.mask_R11T = torch.empty(0)
        self.view = 0

    def admit(self, kept: Sequence[tuple[Tensor, Tensor]], sources: Tensor, first: int) -> None:
        """Copy prefilled rows into the slots from `first` on.

        Args:
            kept: per layer keys and values [B, kv heads, T, head size] of B contexts.
            sources: which context each slot gets, [slots to fill]; one may serve several.
        """
        if not self.keys:
            self.keys = [self._empty(keys) for keys, _ in kept]
            self.values = [self._empty(values) for _, values in kept]
        slots = slice(first, first + len(sources))
        for layer, (keys, values) in enumerate(kept):
            self.keys[layer][slots, :, : keys.shape[2]] = keys[sources]
            self.values[layer][slots, :, : values.shape[2]] = values[sources]

    def _empty(self, like_BKTD: Tensor) -> Tensor:
        _, heads, _, size = like_BKTD.shape
        return like_BKTD.new_zeros(self.num_slots, heads, self.capacity, size)

    def point_at(self, positions_R: Tensor) -> None:
        """The next forward pass writes row i at `positions_R[i]` and reads everything up to there."""
        self.rows_R = torch.arange(len(positions_R), device=positions_R.device)
        self.positions_R, self.view = positions_R, int(positions_R.max()) + 1
        self.mask_R11T = (torch.arange(self.view, device=positions_R.device) <= positions_R[:, None])[:, None, None]

    def write(self, layer: int, keys_RKD: Tensor, values_RKD: Tensor) -> tuple[Tensor, Tensor]:
        """Put one new token a row into the memory. Returns what to read, [R, kv heads, T, head size] views."""
        self.keys[layer][self.rows_R, :, self.positions_R] = keys_RKD
        self.values[layer][self.rows_R, :, self.positions_R] = values_RKD
        count = len(self.rows_R)
        return self.keys[layer][:count, :, : self.view], self.values[layer][:count, :, : self.view]

    def move(self, sources: Sequence[int], targets: Sequence[int], lengths: Sequence[int]) -> None:
        """Copy the first `lengths` tokens of slots `sources` over slots `targets`."""
        view = max(lengths)
        for memory in (*self.keys, *self.values):
            memory[targets, :, :view] = memory[sources, :, :view]


class MemoryCache(Cache):
    """The memory as `transformers` models write and read their cache, one new token a row."""

    def __init__(self, memory: SlotMemory) -> None:
        super().__init__(layers=[_MemoryLayer(memory, index) for index in range(memory.num_layers)])


class _MemoryLayer(CacheLayerMixin):
    is_sliding = False

    def __init__(self, memory: SlotMemory, index: int) -> None:
        super().__init__()
        self.memory, self.index, self.is_initialized = memory, index, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The memory is filled by then."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.memory.write(self.index, key_states[:, :, 0], value_states[:, :, 0])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.memory.view, 0

    def get_seq_length(self) -> int:
        return self.memory.view - 1

    def get_max_length(self) -> int:
        return self.memory.capacity
