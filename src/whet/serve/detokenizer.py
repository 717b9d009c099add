"""Turns tokens into text as they come: only text that later tokens cannot change, and none from a stop string on."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from whet.tool_calls import overlap

HALF = "�"
"""A decoder's output for a character whose last bytes are still to come."""


class Detokenizer:
    """The text of one reply, token by token.

    Args:
        stops: the text ends before the first of these strings.
        prefill: the beginning of the text, not sent again.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str] = (), prefill: str = "") -> None:
        self.tokenizer, self.stops, self.prefill = tokenizer, tuple(stops), prefill
        self.tokens: list[int] = []
        self.text, self.shown = prefill, ""
        self._before = self._read = 0
        """Tokens whose text is in `text` end at `_read`. A token's text depends only on tokens since `_before`, so its
        cost does not grow with the reply."""

    def add(self, token: int) -> str:
        """Adds a token. Returns the text that has become certain."""
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
        num_uncertain = 0 if is_whole else max((overlap(text, stop) for stop in self.stops), default=0)
        certain = text[: len(text) - num_uncertain]
        if not certain.startswith(self.shown):
            return ""
        new, self.shown = certain[len(self.shown) :], certain
        return new


def token_bytes(tokenizer: PreTrainedTokenizerBase, token: int, text: str) -> list[int] | None:
    """The bytes of a token.

    Args:
        text: of the token alone, decoded.
    Returns: None where the token is part of a character, and its tokenizer does not write bytes as byte-level BPE does.
    """
    if HALF not in text:
        return list(text.encode())
    piece = str(tokenizer.convert_ids_to_tokens(token))
    return [BYTES[char] for char in piece] if all(char in BYTES for char in piece) else None


def _byte_level() -> dict[str, int]:
    """The characters that byte-level BPE (GPT-2's) writes bytes as: printable Latin-1 for itself, the rest from 256."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_level()


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string in it."""
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    return text[: min(starts)] if starts else text
