"""Keeps the trace of one episode below a size limit, whatever environments, endpoints and models wrote into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.types import shortened

BYTES_A_CHAR = 6
"""JSON takes at most so many for one character: a control character is `\\u0000`."""
SHORTEST = 64
"""Texts of so few characters are not cut."""


def trace_within(row: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any]:
    """The trace. If it is too large, the middle of its longest texts is left out.

    Args:
        max_bytes: of its line of JSON. A trace stays above it if its texts exceed it at `SHORTEST` characters each.
    """
    if BYTES_A_CHAR * _num_chars(row) <= max_bytes:  # most are small, and need not be serialised twice
        return row
    most, cut = max_bytes, row
    while _num_bytes(cut) > max_bytes and most > SHORTEST:
        most = max(SHORTEST, most // 2)
        cut = _cut(row, most)
    return cut


def _num_bytes(row: Any) -> int:
    return len(json.dumps(row, ensure_ascii=False, default=str).encode(errors="replace"))


def _num_chars(value: Any) -> int:
    """Characters of all texts in it, and 8 for each other value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_num_chars(name) + _num_chars(inner) for name, inner in value.items())
    return sum(map(_num_chars, value)) if isinstance(value, list | tuple) else 8


def _cut(value: Any, most: int) -> Any:
    """A copy with at most `most` characters of each text."""
    if isinstance(value, str):
        return shortened(value, most)
    if isinstance(value, Mapping):
        return {name: _cut(inner, most) for name, inner in value.items()}
    return [_cut(inner, most) for inner in value] if isinstance(value, list | tuple) else value
