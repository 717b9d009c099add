"""Self-checks before a run begins: what settings, tokenizer and template make of it. `training.selfchecks` has those of
its steps, and docs/self-checks.md lists all of them.

Checks that a loaded policy's tokenizer, chat template and weights belong together, before a token is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from whet.chat import encode_parts, template_text, text_ids
from whet.config import ConfigError
from whet.config.parts import EndpointConfig, SamplingConfig
from whet.config.schedule import Schedule, values_of
from whet.models.policy import Policy

FULL: Mapping[str, tuple[Any, ...]] = {"top_p": (1, None), "top_k": (0, -1, None), "min_p": (0, None)}
"""What an endpoint is asked for where it samples from all tokens."""


def of_policy(policy: Policy) -> list[str]:
    """Warnings about what was loaded.

    Raises: ConfigError where its tokenizer makes other problems of those that it is given.
    """
    if problem := digits_problem(policy):
        raise ConfigError(problem)
    return [*filter(None, [end_problem(policy), foreign_problem(policy)])]


def narrow_sampling(
    config: Any,
    learners: Iterable[str],
    skills: Mapping[str, Mapping[Any, str]],
    endpoints: Mapping[str, EndpointConfig],
) -> Iterator[str]:
    """Roles whose samples a policy gradient learns from, and that do not sample from all tokens; a sentence each.

    Args:
        config: of the run.
        learners: policies that learn by ratios to the weights that sampled.
        skills: as `MethodSpec.skills`.
        endpoints: by role.
    """
    named = tuple(learners)
    for key in dict.fromkeys(key for name in named for key in skills.get(name, {}).values()):
        least = min(_top_p(config, key), default=1.0)
        if least < 1:
            yield (
                f"{key}.top_p = {least:g} samples from a part of the tokens, and the loss compares probabilities over "
                "all of them: tokens outside are never tried and drift freely. Set it to 1 for training"
            )
    for name, endpoint in endpoints.items() if named else ():
        for what, full in FULL.items():
            if endpoint.more.get(what, full[0]) not in full:
                yield (
                    f"{name}.more has {what} = {endpoint.more[what]}: what is learnt from is drawn from a part of that "
                    "model's tokens alone. Take it out, unless the role is used so later too"
                )


def _top_p(config: Any, key: str) -> Iterator[float]:
    """Every value that it may have in the run. Counts as no read."""
    values = config.__dict__
    for part in key.split("."):
        values = values[part] if isinstance(values, Mapping) else getattr(values, part)
    if isinstance(values, SamplingConfig):
        yield values.top_p
    schedules: Mapping[str, Schedule] = config.__dict__.get("schedule", {})
    for name in (key, f"{key}.top_p"):
        for value in values_of(schedules[name]) if name in schedules else ():
            whole = value.get("top_p", 1.0) if isinstance(value, Mapping) else getattr(value, "top_p", value)
            yield float(whole)


# --- does a model fit? ------------------------------------------------------------------------------------------------


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
