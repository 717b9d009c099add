"""How sure a critic is of its verdict: its probability of one label against the other, after its text so far."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids
from whet.grading.verdicts import verdict_place
from whet.tasks.prompts import Prompts
from whet.types import Row, Segment, tail_row


def chance(right: float, wrong: float) -> float:
    """p(right) / (p(right) + p(wrong)), from the two logprobs."""
    x = right - wrong
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def fork(tokenizer: PreTrainedTokenizerBase, prompts: Prompts, critique: Segment) -> tuple[Row, Row] | None:
    """Rows of the first tokens in which the two verdicts differ, at the place of a critique's verdict.

    Returns: the row of `right` and the row of `wrong`, each with the tokens before as context. None: the critique has
        no place of a verdict, or its tokens cannot be separated there.
    """
    place = verdict_place(critique.text, line=prompts.verdict_line)
    if place is None:
        return None
    upto = range(len(critique.tokens) + 1)
    num_chars = [len(tokenizer.decode(critique.tokens[:k], skip_special_tokens=True)) for k in upto]
    last = num_chars[bisect_right(num_chars, place) - 1]
    before = critique.tokens[: bisect_left(num_chars, last)]  # without an end token, which adds no text
    before_text = tokenizer.decode(before, skip_special_tokens=True)
    gap = critique.text[len(before_text) : place]
    if not critique.text[place:]:
        gap += " "  # cut right behind the colon
    right, wrong = (_label(tokenizer, before, before_text, gap + word) for word in (prompts.right, prompts.wrong))
    if right is None or wrong is None:
        return None
    shared = next((i for i, (a, b) in enumerate(zip(right, wrong, strict=False)) if a != b), None)
    if shared is None:  # one is the beginning of the other
        return None
    context = (*critique.context, *before, *right[:shared])
    first, second = (tail_row(critique.policy, context, [ids[shared]], 0.0) for ids in (right, wrong))
    return first, second


def _label(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], before_text: str, text: str) -> list[int] | None:
    """Tokens of a text that follows others. None: the tokenizer has none that leave the others unchanged."""
    alone = text_ids(tokenizer, text)
    whole = text_ids(tokenizer, before_text + text)
    candidates = [alone] + ([whole[len(before) :]] if whole[: len(before)] == list(before) else [])
    for ids in candidates:
        if tokenizer.decode([*before, *ids], skip_special_tokens=True) == before_text + text:
            return list(ids)
    return None
