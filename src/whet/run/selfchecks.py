"""Self-checks before a run begins: what settings, tokenizer and template make of it. `training.selfchecks` has those of
its steps, and docs/self-checks.md lists all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from whet.config import ConfigError
from whet.config.parts import EndpointConfig, SamplingConfig
from whet.config.schedule import Schedule, values_of
from whet.models.fits import digits_problem, end_problem, foreign_problem
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
