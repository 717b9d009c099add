"""Keys and values of replies that a later request may go on from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prefix:
    """What an engine holds of a reply."""

    tokens: tuple[int, ...]
    """Its context and what was written, but for the last token, which the model has not read."""
    layers: Sequence[Tensor]
    """[2, kv heads, T, head size] each."""

    @property
    def num_bytes(self) -> int:
        return sum(layer.numel() * layer.element_size() for layer in self.layers)


class Prefixes:
    """By the reply's seed. Where there is no room, those kept longest go: which ones depends on the requests alone, and
    what goes is computed again when it is asked for.

    Args:
        budget: bytes.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.used, self.num_dropped = budget, 0, 0
        self._kept: dict[int, Prefix] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def put(self, seed: int, prefix: Prefix) -> None:
        self.forget([seed])
        self._kept[seed] = prefix
        self.used += prefix.num_bytes
        while self.used > self.budget:
            self.forget([next(iter(self._kept))])
            self.num_dropped += 1

    def of(self, seed: int | None, context: tuple[int, ...]) -> Prefix | None:
        """The reply with that seed, where it is kept and its ids begin the context."""
        prefix = self._kept.get(seed) if seed is not None else None
        if prefix is None or len(prefix.tokens) >= len(context) or context[: len(prefix.tokens)] != prefix.tokens:
            return None
        return prefix

    def forget(self, seeds: Collection[int]) -> None:
        for seed in seeds:
            if (gone := self._kept.pop(seed, None)) is not None:
                self.used -= gone.num_bytes
