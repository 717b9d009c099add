"""Which known name was likely meant by one that is not known: only what is really near is suggested."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

WORD = 0.7
"""Two words with a similarity (difflib's ratio) from here on are one with a slip."""
WHOLE = 0.85
"""From here on two whole names are, whatever their words: `numsteps` and `num_steps`."""
GENERIC = {"num", "max", "min", "per", "of", "the", "n", "is", "use"}
"""Words that many names share, which make none of them near: `num_gpus` is not `num_steps`."""


def likeness(a: str, b: str) -> float:
    """Of two names, in [0, 1]; a name that another begins or ends with, as `kl` and `kl_coef`, is at least 0.8."""
    ratio = SequenceMatcher(None, a, b).ratio()
    return max(0.8, ratio) if len(a) > 1 and a != b and (b.startswith(a) or b.endswith(a)) else ratio


def is_near(given: str, known: str) -> bool:
    """Whether a known name may have been meant: each word that says what it is about has one like it there."""
    given, known = given.lower(), known.lower()
    if likeness(given, known) >= WHOLE:
        return True
    theirs = _words(known)
    about = [word for word in _words(given) if word not in GENERIC]
    return bool(about) and all(any(_is_like(word, each) for each in theirs) for word in about)


def near_names(given: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The nearest of known names that are near, the nearest first."""
    near = [name for name in known if is_near(given, name)]
    return sorted(near, key=lambda name: -likeness(given.lower(), name.lower()))[:most]


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name) if word]


def _is_like(word: str, other: str) -> bool:
    if len(word) > 1 and (other.startswith(word) or (len(other) > 2 and word.startswith(other))):
        return True
    return sorted(word) == sorted(other) or SequenceMatcher(None, word, other).ratio() >= WORD
