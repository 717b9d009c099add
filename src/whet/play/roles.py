"""A role: a seat in the play, with its policy, its way of sampling and its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from transformers import PreTrainedTokenizerBase

from whet.play.driver import Ask
from whet.tasks.dialects import Message
from whet.types import Completion, Request, Sampling, Segment


def seed_of(*parts: object) -> int:
    """A 64-bit seed from (run seed, policy, step, task id, sample index, ...), each part told apart from its
    neighbours."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Role:
    """Who writes, and how. `await role.reply(...)` inside a flow gives the segment it wrote."""

    name: str
    policy: str
    """Also the name of the service that samples for it."""
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    sampling: Sampling

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
    ) -> Segment:
        """Put the messages to the policy and wait for its turn.

        Args:
            prefill: forced start of the turn; part of the context, and of the segment's text.
            parent: index in the episode of the segment that this one replies to.
        """
        context = render(self.tokenizer, messages, prefill)
        completion: Completion = await Ask(self.policy, Request(context=context, sampling=self.sampling, seed=seed))
        written = completion.tokens[:-1] if completion.stop_reason == "eos" else completion.tokens
        return Segment(
            role=self.name,
            policy=self.policy,
            context=context,
            tokens=completion.tokens,
            logprobs=completion.logprobs,
            versions=((completion.version, len(completion.tokens)),),
            # Control tokens that a model writes must not become turns of the next prompt.
            text=prefill + self.tokenizer.decode(written, skip_special_tokens=True),
            stop_reason=completion.stop_reason,
            temperature=self.sampling.temperature,
            seed=seed,
            parent=parent,
            group=group or {},
        )


def written(
    role: str, text: str, *, parent: int | None = None, parsed: Mapping[str, Any] | None = None, policy: str = "rule"
) -> Segment:
    """A segment that no policy wrote now: a rule's, or one read from a file. It has no tokens and cannot train."""
    return Segment(
        role=role,
        policy=policy,
        context=(),
        tokens=(),
        logprobs=(),
        versions=(),
        text=text,
        stop_reason="eos",
        temperature=0.0,
        seed=0,
        parent=parent,
        parsed=parsed or {},
    )


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], prefill: str = "") -> tuple[int, ...]:
    """Token ids of a chat up to where the assistant writes next."""
    ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True, return_dict=False)
    return (*ids, *(tokenizer.encode(prefill, add_special_tokens=False) if prefill else ()))
