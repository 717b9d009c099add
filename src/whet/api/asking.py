"""Samples a policy's replies outside of a run, as one batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whet.chat import render
from whet.config import ConfigError
from whet.config.parts import EngineConfig, SamplingConfig
from whet.config.runs import RunConfig
from whet.engines.building import engine_of
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.models.prompts import measured
from whet.rollout.driver import roll_out
from whet.rollout.roles import PolicyRole
from whet.rollout.solve import grade_unread
from whet.run.data import load_grader
from whet.tasks.prompts import Message
from whet.types import Grade, Sampling, Segment, StopReason, Task


@dataclass(frozen=True)
class Asked:
    """One request for a reply."""

    messages: list[Message]
    seed: int
    prefill: str = ""
    """The beginning of the reply."""


def written_by(
    policy: Policy,
    requests: Iterable[Asked],
    settings: SamplingConfig,
    engine: EngineConfig,
    *,
    temperature: float = 0.0,
    max_new_tokens: int | None = None,
) -> list[Segment]:
    """The replies, in order.

    Args:
        settings: limits, and top-p for samples.
        temperature: 0: greedy.
        max_new_tokens: in place of the settings'.
    Raises: ConfigError where the tokenizer lacks characters of a text, a number is out of range, or a prompt leaves no
        room for the reply.
    """
    if not 0 <= temperature < float("inf") or (max_new_tokens is not None and max_new_tokens < 1):
        raise ConfigError(
            f"temperature = {temperature} has to be 0 or more, and max_new_tokens = {max_new_tokens} at least 1"
        )
    sampling = Sampling(
        temperature=temperature,
        top_p=settings.top_p if temperature else 1.0,
        max_new_tokens=max_new_tokens or settings.max_new_tokens,
        stop=settings.stop,
    )
    role = PolicyRole(policy.name, policy.name, policy.tokenizer, sampling)
    requests = list(requests)
    texts = [message["content"] for request in requests for message in request.messages]
    if lost := next((lost for _, lost in measured(texts, policy.tokenizer) if lost), ""):
        raise ConfigError(
            f"the tokenizer of {policy.name} has no token for {lost}, and would leave it out without a "
            "word: write it in other characters, or take another model"
        )
    positions = steady_positions(policy.causal_lm)
    longest = max((len(render(policy.tokenizer, request.messages, request.prefill)) for request in requests), default=0)
    if positions is not None and longest + sampling.max_new_tokens > positions:
        raise ConfigError(
            f"{policy.name} has {positions} positions; a prompt takes {longest} tokens, and the reply up to "
            f"{sampling.max_new_tokens}: shorten it, or lower max_new_tokens"
        )
    rollouts = [role.reply(request.messages, prefill=request.prefill, seed=request.seed) for request in requests]
    local = engine_of(policy, engine)
    return roll_out(rollouts, {policy.name: local.generate})


def graded(config: RunConfig, text: str, task: Task, stop_reason: StopReason = "eos") -> Grade:
    """A reply's grade by the grader of a run's config.

    Args:
        stop_reason: why the reply ended.
    """
    if (unread := grade_unread(stop_reason, task)) is not None:
        return unread
    grader = load_grader(config.data)
    try:
        return grader.grade([(text, task)])[0]
    finally:
        grader.close()
