"""Turns tokens into text as they come: only text that later tokens cannot change, and nothing from a stop string on."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

HALF = "�"
"""Decoders' output for a character whose last bytes are still to come."""


class Detokenizer:
    """One reply's text.

    Args:
        prefill: its beginning.
        stops: it ends before the first of these.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str] = (), prefill: str = "") -> None:
        self.tokenizer, self.stops, self.prefill = tokenizer, tuple(stops), prefill
        self.tokens: list[int] = []
        self.text, self.shown = prefill, ""
        self._before = self._read = 0
        """Tokens whose text is in `text` end at `_read`. A token's text depends only on tokens since `_before`, so its
        cost does not grow with the reply."""

    def add(self, token: int) -> str:
        """The text that has become certain."""
        self.tokens.append(token)
        previous, longer = self._decoded(self._read), self._decoded(len(self.tokens))
        if len(longer) > len(previous) and not longer.endswith(HALF):
            self.text += longer[len(previous) :]
            self._before, self._read = self._read, len(self.tokens)
        return self._grown(cut(self.text, self.stops), is_whole=False)

    def _decoded(self, end: int) -> str:
        return self.tokenizer.decode(self.tokens[self._before : end], skip_special_tokens=True)

    def end(self, text: str) -> str:
        """The rest of the text.

        Args:
            text: the whole reply, prefill included.
        """
        return self._grown(cut(text, self.stops), is_whole=True)

    def _grown(self, text: str, *, is_whole: bool) -> str:
        held = 0 if is_whole else max((_overlap(text, stop) for stop in self.stops), default=0)
        certain = text[: len(text) - held]
        if not certain.startswith(self.shown):
            return ""
        new, self.shown = certain[len(self.shown) :], certain
        return new


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string in it."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of a text that may begin a stop string."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
