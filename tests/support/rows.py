"""Rows as one thinks of them: a context, the text after it that trains, or a mask over all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from whet.types import Row


def row_of(context: Sequence[int], text: Sequence[int], credit: Sequence[float] | float = 0.0, **more: Any) -> Row:
    """A row that trains on `text`.

    Args:
        credit: one number a token of the text, or one for all.
        more: other fields of the row.
    """
    credits = [credit] * len(text) if isinstance(credit, int | float) else credit
    places = range(len(context), len(context) + len(text))
    given = {"policy": "p", "logprobs": None} | more
    return Row(tokens=(*context, *text), trains=places, credit=credits, **given)


def masked_row(tokens: Sequence[int], mask: Sequence[bool], **more: Any) -> Row:
    """A row by a mask over its tokens.

    Args:
        mask: [T], True where the token trains.
        more: other fields; credit (0 if not given), logprobs and ref_logprobs hold one number a token, [T].
    """
    given: dict[str, Any] = {"policy": "p", "logprobs": None, "credit": (0.0,) * len(tokens)} | more
    for name in ("credit", "logprobs", "ref_logprobs"):
        if given.get(name) is not None:
            given[name] = list(compress(given[name], mask))
    return Row(tokens=tokens, trains=list(compress(range(len(tokens)), mask)), **given)
