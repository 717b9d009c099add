"""Self-checks before a token is sampled: whether a policy's parts belong together, and whether all tokens are sampled.

`trainer.selfchecks` has the checks of each step. docs/self-checks.md lists all of them.
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
"""Values by which an endpoint samples from all tokens. The first one is the default."""
DIGITS_PROBE = "In 2025, 3 of 47 took 1,024.5 and 60 took 89"
LEAST_KNOWN = 0.5
"""Share of an embedding's rows. Rows past the tokenizer's are padding, and few."""


def policy_warnings(policy: Policy) -> list[str]:
    """Warnings about a loaded policy: whether its tokenizer, chat template and weights belong together.

    Raises: ConfigError where its tokenizer changes digits, and so the problems.
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
    """Warnings about roles that a policy gradient learns from and that do not sample from all tokens.

    Args:
        config: of the run.
        learners: policies that learn by ratios to the weights that sampled.
        skills: as `MethodSpec.skills`.
        endpoints: by role.
    """
    learner_names = tuple(learners)
    for key in dict.fromkeys(key for name in learner_names for key in skills.get(name, {}).values()):
        least = min(_top_p(config, key), default=1.0)
        if least < 1:
            yield (
                f"{key}.top_p = {least:g} samples from a part of the tokens, and the loss compares probabilities over "
                "all of them: tokens outside are never tried and drift freely. Set it to 1 for training"
            )
    for name, endpoint in endpoints.items() if learner_names else ():
        for option, full in FULL.items():
            if endpoint.more.get(option, full[0]) not in full:
                yield (
                    f"{name}.more has {option} = {endpoint.more[option]}: what is learnt from is drawn from a part of "
                    "that model's tokens alone. Take it out, unless the role is used so later too"
                )


def _top_p(config: Any, key: str) -> Iterator[float]:
    """Every value of top_p that the setting may have in the run. Counts as no read."""
    values = config.__dict__
    for part in key.split("."):
        values = values[part] if isinstance(values, Mapping) else getattr(values, part)
    if isinstance(values, SamplingConfig):
        yield values.top_p
    schedules: Mapping[str, Schedule] = config.__dict__.get("schedule", {})
    for name in (key, f"{key}.top_p"):
        for value in values_of(schedules[name]) if name in schedules else ():
            top_p = value.get("top_p", 1.0) if isinstance(value, Mapping) else getattr(value, "top_p", value)
            yield float(top_p)


def digits_problem(policy: Policy) -> str | None:
    """Whether encoding and decoding change digits. Returns: a sentence, or None."""
    tokenizer = policy.tokenizer
    decoded = tokenizer.decode(text_ids(tokenizer, DIGITS_PROBE))
    before, after = (list(filter(str.isdigit, text)) for text in (DIGITS_PROBE, decoded))
    if before == after:
        return None
    return (
        f"the tokenizer of {policy.title} rewrites digits: {DIGITS_PROBE!r} comes back as {decoded!r}. Problems with "
        "numbers would be other problems: give the model its own tokenizer, or take the rule out of tokenizer.json"
    )


def end_problem(policy: Policy) -> str | None:
    """Whether the chat template closes a turn by a token that ends no reply. Returns: a sentence, or None."""
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
    """Whether the tokenizer seems to be another model's. Returns: a sentence, or None.

    It does where it knows less than `LEAST_KNOWN` of the model's tokens, or where the model's config does not name its
    end token.
    """
    tokenizer, model = policy.tokenizer, policy.causal_lm
    advice = "its text would be other tokens than those it was trained on. Give the model its own tokenizer"
    rows, num_tokens = model.get_input_embeddings().weight.shape[0], len(tokenizer)
    if num_tokens < LEAST_KNOWN * rows:
        return f"the tokenizer of {policy.title} knows {num_tokens:,} tokens of the model's {rows:,}: {advice}"
    end_ids = {
        index
        for ids in (model.config.get_text_config().eos_token_id, model.generation_config.eos_token_id)
        for index in (ids if isinstance(ids, list | tuple) else [ids])
        if index is not None
    }
    if end_ids and tokenizer.eos_token_id not in end_ids:
        ends = ", ".join(map(str, sorted(end_ids)))
        return (
            f"the tokenizer of {policy.title} ends texts by token {tokenizer.eos_token_id}, and the model's config "
            f"names {ends}: it may be another model's, and {advice}, or name the token in config.json"
        )
    return None
