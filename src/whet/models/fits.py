"""Checks that a loaded policy's tokenizer, chat template and weights belong together, before a token is sampled."""

from __future__ import annotations

from whet.chat import encode_parts, template_text, text_ids
from whet.models.policy import Policy

FIGURES = "In 2025, 3 of 47 took 1,024.5 and 60 took 89"
HALF = 0.5
"""Of the rows of an embedding. Rows past the tokenizer's are padding, and few."""


def digits_problem(policy: Policy) -> str | None:
    """Whether decoding changes digits. Returns: a sentence, or None."""
    tokenizer = policy.tokenizer
    read = tokenizer.decode(text_ids(tokenizer, FIGURES))
    was, now = (list(filter(str.isdigit, text)) for text in (FIGURES, read))
    if was == now:
        return None
    return (
        f"the tokenizer of {policy.title} rewrites digits: {FIGURES!r} comes back as {read!r}. Problems with numbers "
        "would be other problems: give the model its own tokenizer, or take the rule out of tokenizer.json"
    )


def end_problem(policy: Policy) -> str | None:
    """Whether the template closes an assistant's turn by a token that ends no reply. Returns: a sentence, or None."""
    tokenizer = policy.tokenizer
    try:
        text = template_text(tokenizer, [("user", "apple"), ("assistant", "river")])
    except Exception:  # a conversation of two turns, which a template may refuse
        return None
    ids = encode_parts(tokenizer, [(text.rpartition("river")[2].strip(), "template")]).ids
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    closing = next((index for index in ids if index in special), None)
    if closing is None or closing in policy.stop_ids:
        return None
    token, ends = tokenizer.decode([closing]), ", ".join(repr(tokenizer.decode([i])) for i in sorted(policy.stop_ids))
    return (
        f"the chat template of {policy.title} closes a reply by {token!r}, and replies end by {ends} alone: they would "
        "run on to max_new_tokens. Add the token to eos_token_id in generation_config.json"
    )


def foreign_problem(policy: Policy) -> str | None:
    """Whether the tokenizer seems to be another model's. Either the model's config does not name its end token, or it
    knows less than half of the model's tokens. Returns: a sentence, or None."""
    tokenizer, model = policy.tokenizer, policy.causal_lm
    advice = "its text would be other tokens than those it was trained on. Give the model its own tokenizer"
    rows, num_tokens = model.get_input_embeddings().weight.shape[0], len(tokenizer)
    if num_tokens < HALF * rows:
        return f"the tokenizer of {policy.title} knows {num_tokens:,} tokens of the model's {rows:,}: {advice}"
    named = {
        index
        for ids in (model.config.get_text_config().eos_token_id, model.generation_config.eos_token_id)
        for index in (ids if isinstance(ids, list | tuple) else [ids])
        if index is not None
    }
    if named and tokenizer.eos_token_id not in named:
        ends = ", ".join(map(str, sorted(named)))
        return (
            f"the tokenizer of {policy.title} ends texts by token {tokenizer.eos_token_id}, and the model's config "
            f"names {ends}: it may be another model's, and {advice}, or name the token in config.json"
        )
    return None
