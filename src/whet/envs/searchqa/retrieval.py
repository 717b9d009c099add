"""Finds documents by BM25 (package `bm25s`). Equal scores are sorted by the documents' numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from whet.distribution import how_to_install
from whet.envs.protocol import EnvError
from whet.envs.searchqa.world import Document

MAX_TERMS = 256
"""Words of a query that count."""
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    {
        *("a", "an", "and", "as", "at", "be", "been", "by", "did", "do", "does", "for", "from", "had", "has", "have"),
        *("in", "is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "were", "what"),
        *("when", "where", "which", "who", "whose", "with"),
    }
)


class Index:
    """Documents that can be searched.

    Raises: EnvError where bm25s is not installed.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise EnvError(f"searchqa needs bm25s: {how_to_install('envs')}") from error
        self.documents = documents
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(term, len(vocabulary)) for term in terms_of(f"{document.title} {document.text}")]
            for document in documents
        ]
        self._vocabulary = vocabulary
        self._scorer: Any = None
        if vocabulary:
            self._scorer = bm25s.BM25()
            self._scorer.index((ids, dict(vocabulary)), show_progress=False, create_empty_token=False)

    def search(self, query: str, count: int) -> list[int]:
        """The numbers of the best documents, best first: those that have a word of the query, `count` at most."""
        known = [self._vocabulary[term] for term in terms_of(query)[:MAX_TERMS] if term in self._vocabulary]
        if not known:
            return []
        scores = self._scorer.get_scores_from_ids(known)
        best = (-scores).argsort(kind="stable")[:count]
        return [int(number) for number in best if scores[number] > 0]


def terms_of(text: str) -> list[str]:
    """Words in lower case, without the commonest ones of English."""
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON]
