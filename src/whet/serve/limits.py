"""Limits on what a request may ask of a model, and the shape in which requests are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response
from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids
from whet.serve.schemas import ApiError
from whet.web import gate

CODES: Mapping[int, str] = {401: "invalid_api_key", 408: "body_too_slow", 413: "body_too_large"}
"""What errors of the gate are called, by status."""
CHARS_A_TOKEN = 16
"""Characters of a text that are examined per position of the model: four times those of a token of prose."""


class Gate(gate.Gate):
    """Refuses in OpenAI's shape of errors."""

    def refusal(self, status: int, reason: str) -> Response:
        return ApiError(status, reason, code=CODES[status]).response()


def is_certainly_longer(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, positions: int) -> bool:
    """Whether texts have more tokens than a model has positions, judged by their beginnings. So a text of megabytes
    costs no more than one that may just fit. False: they may still be longer.

    The threshold is twice the positions, because a cut text may have a few tokens that the whole text lacks.
    """
    left, num_tokens = positions * CHARS_A_TOKEN, 0
    if sum(map(len, texts)) <= left:
        return False
    for text in texts:
        beginning = text.strip()[:left]  # templates strip white space
        num_tokens += len(text_ids(tokenizer, beginning, "outside")) if beginning else 0
        left -= len(beginning)
        if num_tokens > 2 * positions or left <= 0:
            break
    return num_tokens > 2 * positions
