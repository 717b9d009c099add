"""A policy asked outside of a run: messages in, replies out, written side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whet.config import ConfigError
from whet.config.parts import EngineConfig, SamplingConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.play.driver import play
from whet.play.roles import Role
from whet.runs.prompts import measured
from whet.tasks.dialects import Message
from whet.types import Sampling, Segment


@dataclass(frozen=True)
class Asked:
    """One request for a reply."""

    messages: list[Message]
    seed: int
    prefill: str = ""
    """The reply begins with it."""


def written_by(
    policy: Policy, asked: Iterable[Asked], settings: SamplingConfig, engine: EngineConfig, *, temperature: float = 0.0,
    max_new_tokens: int | None = None,
) -> list[Segment]:  # fmt: skip
    """The replies, in order.

    Args:
        settings: their limits; and where they are sampled, top-p.
        temperature: 0: greedy.
        max_new_tokens: in place of the settings'.
    Raises: ConfigError where a text has characters that the policy's tokenizer does not know.
    """
    sampling = Sampling(
        temperature=temperature,
        top_p=settings.top_p if temperature else 1.0,
        max_new_tokens=max_new_tokens or settings.max_new_tokens,
        stop=settings.stop,
    )
    role = Role(policy.name, policy.name, policy.tokenizer, sampling)
    asked = list(asked)
    texts = [message["content"] for each in asked for message in each.messages]
    if lost := next((lost for _, lost in measured(texts, policy.tokenizer) if lost), ""):
        raise ConfigError(f"the tokenizer of {policy.name} has no token for {lost}, and would leave it out without a "
                          "word: write it in other characters, or take another model")  # fmt: skip
    flows = [role.reply(each.messages, prefill=each.prefill, seed=each.seed) for each in asked]
    local = LocalEngine(policy, max_rows=engine.max_rows, prefill_tokens=engine.prefill_tokens)
    return play(flows, {policy.name: local.generate})
