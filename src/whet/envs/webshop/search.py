"""The shop's search: BM25 over short documents, with Lucene's formula and the published search's constants.

The published shop asks Lucene, whose English stemmer and stop words are not these. So a rank can differ by some places.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np

from whet.envs.webshop.words import words

K1, B = 0.9, 0.4
"""How much a word's repetitions count, and how much a document's length: pyserini's defaults."""
NUM_RESULTS = 50

_WORD = re.compile(r"[a-z0-9]+")
_STOP_WORDS = frozenset(words("stop_words"))


class Index:
    """Documents by their words."""

    def __init__(self, documents: Sequence[str]) -> None:
        counts = [Counter(words_of(document)) for document in documents]
        lengths = np.array([count.total() for count in counts], dtype=np.float64)
        mean = float(lengths.mean()) if len(counts) and lengths.any() else 1.0
        self._size = len(counts)
        self._scores: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        """By word, the numbers of the documents that have it, and what it adds to their scores."""
        places: dict[str, list[int]] = {}
        for number, count in enumerate(counts):
            for word in count:
                places.setdefault(word, []).append(number)
        for word, numbers in places.items():
            rarity = log(1 + (self._size - len(numbers) + 0.5) / (len(numbers) + 0.5))
            times = np.array([counts[number][word] for number in numbers], dtype=np.float64)
            at = np.array(numbers)
            self._scores[word] = at, rarity * times / (times + K1 * (1 - B + B * lengths[at] / mean))

    def search(self, keywords: str, limit: int = NUM_RESULTS) -> tuple[int, ...]:
        """The numbers of the documents with any of the words, best first. Of equal ones, the earlier comes first."""
        scores = np.zeros(self._size)
        for word, times in Counter(words_of(keywords)).items():
            if word in self._scores:
                at, score = self._scores[word]
                scores[at] += times * score
        best = np.argsort(-scores, kind="stable")[:limit]
        return tuple(int(number) for number in best if scores[number] > 0)


def words_of(text: str) -> list[str]:
    """Lower-case words without common function words, in the singular."""
    return [_singular(word) for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("shes", "ches", "xes", "sses")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
