"""Finds the known name that was likely meant by an unknown one; it suggests only names that are really near."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

WORD = 0.7
"""Two words with a similarity (difflib's ratio) from here on are one with a slip."""
WHOLE = 0.85
"""From here on two whole names are one with a slip, whatever their words: `numsteps` and `num_steps`."""
GENERIC = {"num", "max", "min", "per", "of", "the", "n", "is", "use"}
"""Words that many names share, which make none of them near: `num_gpus` is not `num_steps`."""


def likeness(a: str, b: str) -> float:
    """Similarity of two names, in [0, 1]; at least 0.8 where one begins or ends with the other (`kl`, `kl_coef`)."""
    ratio = SequenceMatcher(None, a, b).ratio()
    return max(0.8, ratio) if len(a) > 1 and a != b and (b.startswith(a) or b.endswith(a)) else ratio


def is_near(name: str, other: str) -> bool:
    """Whether `name` may be a slip of `other`: each of its words that is not generic has one like it there."""
    name, other = name.lower(), other.lower()
    if likeness(name, other) >= WHOLE:
        return True
    theirs = _words(other)
    about = [word for word in _words(name) if word not in GENERIC]
    return bool(about) and all(any(_is_like(word, their_word) for their_word in theirs) for word in about)


def near_names(wanted: str, others: Iterable[str], most: int = 1) -> list[str]:
    """The names that are near, the nearest first, at most `most`."""
    near = [name for name in others if is_near(wanted, name)]
    return sorted(near, key=lambda name: -likeness(wanted.lower(), name.lower()))[:most]


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name) if word]


def _is_like(word: str, other: str) -> bool:
    if len(word) > 1 and (other.startswith(word) or (len(other) > 2 and word.startswith(other))):
        return True
    return sorted(word) == sorted(other) or SequenceMatcher(None, word, other).ratio() >= WORD
