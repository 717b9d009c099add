"""How WebShop compares two short texts: thefuzz's `token_set_ratio`, in the standard library's `difflib`.

The published environment pins thefuzz 0.19.0 without python-Levenshtein. That version uses `difflib` too, and so gives
the same numbers.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache

MATCHES_ABOVE = 85
"""Two texts with a greater ratio count as the same (WebShop's reward)."""

_NO_LETTER = re.compile(r"\W")
_NON_ASCII = dict.fromkeys(range(128, 256))


def matches(first: str, second: str) -> bool:
    """Whether WebShop's reward takes both texts for the same."""
    return token_set_ratio(first, second) > MATCHES_ABOVE


@lru_cache(maxsize=1 << 16)
def token_set_ratio(first: str, second: str) -> int:
    """How alike two texts are as sets of words, 0 to 100. A text whose words are all in the other gets 100.

    The shared words are compared with each text's words, the shared ones first, and those with each other. The greatest
    ratio counts. A text without letters or digits gets 0.
    """
    words, others = _words(first), _words(second)
    if not words or not others:
        return 0
    shared = " ".join(sorted(words & others))
    one = f"{shared} {' '.join(sorted(words - others))}".strip()
    two = f"{shared} {' '.join(sorted(others - words))}".strip()
    return max(_ratio(shared, one), _ratio(shared, two), _ratio(one, two))


def _words(text: str) -> frozenset[str]:
    """Lower-case words of letters, digits and underscores. Characters from 128 to 255 are left out, as in thefuzz."""
    return frozenset(_NO_LETTER.sub(" ", text.translate(_NON_ASCII)).lower().split())


def _ratio(first: str, second: str) -> int:
    if first == second:
        return 100
    if not first or not second:
        return 0
    return round(100 * SequenceMatcher(None, first, second).ratio())
