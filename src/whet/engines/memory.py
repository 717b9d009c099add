"""The engine's key/value memory: a slot a running row, each row from position 0 on with a length of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

GROWTH = 64
"""Tokens a row by which the memory grows at least."""
GPU_GROWTH = 256
"""The same on a GPU, where it should grow seldom: each time, graphs are recorded anew."""


class SlotMemory:
    """Keys and values, a tensor a layer: [2, slots, kv heads, capacity, head size]. The first slots are in use.

    It starts with room for the first contexts and some tokens more, and grows as rows do. By then most rows have
    finished, and only the others move. Most replies are far shorter than their limit.

    Args:
        num_slots: rows at one time.
        limit: tokens of the longest row that there may be.
    """

    def __init__(self, num_slots: int, limit: int, num_layers: int) -> None:
        self.num_slots, self.limit, self.num_layers = num_slots, limit, num_layers
        self.layers: list[Tensor] = []
        self.rows_R = self.positions_R = torch.empty(0, dtype=torch.long)
        self.mask_R11T = self.bias_X1T = torch.empty(0)
        self.view = self.heads = self.head_size = 0

    def admit(self, keys_and_values: Sequence[tuple[Tensor, Tensor]], sources: Tensor, first: int) -> None:
        """Copy prefilled rows into the slots from `first` on.

        Args:
            keys_and_values: per layer keys and values [B, kv heads, T, head size] of B contexts.
            sources: which context each slot gets, [slots to fill]; one may serve several.
        """
        _, self.heads, longest, self.head_size = keys_and_values[0][0].shape
        if not self.layers:
            self.layers = [keys.new_zeros(2, 0, self.heads, 0, self.head_size) for keys, _ in keys_and_values]
        self._make_room(first, self.num_slots, longest)
        slots = slice(first, first + len(sources))
        for layer, (keys, values) in zip(self.layers, keys_and_values, strict=True):
            layer[0, slots, :, :longest] = keys[sources]
            layer[1, slots, :, :longest] = values[sources]

    def _make_room(self, num_rows: int, num_slots: int, length: int) -> None:
        """Room for rows of so many tokens; what the first `num_rows` slots hold is kept."""
        _, slots, heads, held, size = self.layers[0].shape
        if length <= held and num_slots <= slots:
            return
        growth = GPU_GROWTH if self.layers[0].device.type == "cuda" else GROWTH
        room = max(held, min(self.limit, length + max(growth, length // 2)))
        for index, old in enumerate(self.layers):
            self.layers[index] = old.new_zeros(2, num_slots, heads, room, size)
            self.layers[index][:, :num_rows, :, :held] = old[:, :num_rows]

    def point_at(self, positions_R: Tensor) -> None:
        """The next forward pass writes row i at `positions_R[i]` and reads everything up to there."""
        view = int(positions_R.max()) + 1
        self._make_room(len(positions_R), len(positions_R), view)
        self._point(positions_R, view)

    def at_full_width(self, positions_R: Tensor) -> SlotMemory:
        """The same memory, pointed at `positions_R`; a pass reads all that there is room for, most of it masked.

        So shapes do not go with the rows' lengths, and nothing waits for a GPU.
        """
        memory = copy(self)
        memory._point(positions_R, self.layers[0].shape[3])
        return memory

    def _point(self, positions_R: Tensor, view: int) -> None:
        self.rows_R = torch.arange(len(positions_R), device=positions_R.device)
        self.positions_R, self.view = positions_R, view
        self.mask_R11T = (torch.arange(view, device=positions_R.device) <= positions_R[:, None])[:, None, None]
        if positions_R.device.type == "cpu":
            bias_R1T = torch.where(self.mask_R11T[:, 0], 0.0, -torch.inf).to(self.layers[0].dtype)
            self.bias_X1T = bias_R1T.expand(-1, self.heads, -1).flatten(0, 1)[:, None]
            """The mask as numbers to add, [R * kv heads, 1, T]."""

    def write(self, layer: int, both_R2KD: Tensor) -> tuple[Tensor, Tensor]:
        """Put the keys and values of one new token a row into the memory.

        Returns: keys and values to read, [R * kv heads, T, head size] each, as views.
        """
        memory = self.layers[layer]
        with _in_any_order():
            memory[:, self.rows_R, :, self.positions_R] = both_R2KD
        _, slots, heads, held, size = memory.shape
        shape, strides = (len(self.rows_R) * heads, self.view, size), (held * size, size, 1)
        return memory.as_strided(shape, strides), memory.as_strided(shape, strides, slots * heads * held * size)

    def span(self, first: int, starts: Sequence[int], width: int) -> Span:
        """Where a pass writes `width` new tokens in each of the slots from `first` on.

        Args:
            starts: how many tokens each slot holds before it.
        """
        return Span(self, first, starts, width)

    def shape_like(self, keys_and_values: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Layers for such keys and values as a prefill left, [B, kv heads, T, head size]; none of them is taken."""
        _, self.heads, _, self.head_size = keys_and_values[0][0].shape
        self.layers = [keys.new_zeros(2, 0, keys.shape[1], 0, keys.shape[3]) for keys, _ in keys_and_values]

    def reserve(self, num_rows: int, num_slots: int, length: int) -> None:
        """Room for so many slots of so many tokens; what the first `num_rows` hold is kept."""
        self._make_room(num_rows, max(num_slots, self.layers[0].shape[1]), length)

    def load(self, slot: int, keys_and_values: Sequence[Tensor]) -> None:
        """Put kept keys and values, [2, kv heads, T, head size] a layer, at the beginning of a slot."""
        for memory, layer in zip(self.layers, keys_and_values, strict=True):
            memory[:, slot, :, : layer.shape[2]] = layer

    def cut(self, slot: int, length: int) -> list[Tensor]:
        """A copy of the first `length` tokens of a slot, as `load` takes it."""
        return [memory[:, slot, :, :length].clone() for memory in self.layers]

    def move(self, sources: Sequence[int], targets: Sequence[int], lengths: Sequence[int]) -> None:
        """Copy the first `lengths` tokens of slots `sources` over slots `targets`."""
        view = max(lengths)
        with _in_any_order():
            for memory in self.layers:
                memory[:, targets, :, :view] = memory[:, sources, :, :view]


@contextmanager
def _in_any_order() -> Iterator[None]:
    """For writes to places that are all different, whose order cannot matter.

    A GPU's deterministic kernel would sort the places first: a dozen more kernels a layer and token.
    """
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


class Span:
    """Several new tokens a row, in neighbouring slots: B rows, S new tokens each, T to read.

    Rows with fewer new tokens are padded on the right. Padding writes past its row's end, where nothing reads, and
    later tokens write over it.
    """

    def __init__(self, memory: SlotMemory, first: int, starts: Sequence[int], width: int) -> None:
        self.memory, self.first, self.count = memory, first, len(starts)
        self.num_layers, self.limit = memory.num_layers, memory.limit
        device = memory.layers[0].device
        self.view = min(max(starts) + width, memory.limit)
        slots = memory.layers[0].shape[1]
        memory._make_room(min(first + self.count, slots), max(first + self.count, slots), self.view)
        starts_B1 = torch.tensor(starts, device=device)[:, None]
        self.positions_BS = (starts_B1 + torch.arange(width, device=device)).clamp(max=memory.limit - 1)
        self.rows_B1 = torch.arange(first, first + self.count, device=device)[:, None]
        self.mask_B1ST = (torch.arange(self.view, device=device) <= self.positions_BS[..., None])[:, None]

    def write(self, layer: int, both_BS2KD: Tensor) -> tuple[Tensor, Tensor]:
        """Put the new keys and values into the memory. Returns what to read, [B, kv heads, T, head size] each."""
        memory = self.memory.layers[layer]
        memory[:, self.rows_B1, :, self.positions_BS] = both_BS2KD
        keys, values = memory[:, self.first : self.first + self.count, :, : self.view]
        return keys, values


class MemoryCache(Cache):
    """The memory as `transformers` models write and read their cache, one new token a row."""

    def __init__(self, memory: SlotMemory | Span) -> None:
        layer = _SpanLayer if isinstance(memory, Span) else _MemoryLayer
        super().__init__(layers=[layer(memory, index) for index in range(memory.num_layers)])


class _MemoryLayer(CacheLayerMixin):
    is_sliding = False

    def __init__(self, memory: Any, index: int) -> None:
        super().__init__()
        self.memory, self.index, self.is_initialized = memory, index, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The memory is filled by then."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        both = torch.stack((key_states[:, :, 0], value_states[:, :, 0]), dim=1)
        keys, values = self.memory.write(self.index, both)
        heads = (-1, self.memory.heads)
        return keys.unflatten(0, heads), values.unflatten(0, heads)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.memory.view, 0

    def get_seq_length(self) -> int:
        return self.memory.view - 1

    def get_max_length(self) -> int:
        return self.memory.limit


class _SpanLayer(_MemoryLayer):
    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        both_BS2KD = torch.stack((key_states, value_states), dim=1).permute(0, 3, 1, 2, 4)
        keys_and_values: tuple[Tensor, Tensor] = self.memory.write(self.index, both_BS2KD)
        return keys_and_values
