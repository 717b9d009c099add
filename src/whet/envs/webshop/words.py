"""The lists of words in `words.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from whet.config.yaml_text import load

FILE = Path(__file__).with_name("words.yaml")


def words(name: str) -> tuple[str, ...]:
    """One list, in its order."""
    return tuple(_lists()[name].split())


@cache
def _lists() -> Any:
    return load(FILE.read_text(encoding="utf-8"))
