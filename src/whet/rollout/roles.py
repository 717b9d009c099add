"""Roles: the writers in a rollout, with their policy, sampling and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from whet.chat import continued, is_control, render
from whet.engines.replies import Prompt
from whet.rollout.driver import Ask
from whet.rollout.services import Fault
from whet.tasks.prompts import Message
from whet.types import Completion, Failure, Request, Sampling, Segment

NUM_WRITTEN = "num_written"
"""In the `parsed` of an endpoint's segment: how many tokens it has, by the server's count."""


class Role(Protocol):
    """A writer in a rollout. There, `await role.reply(...)` gives the segment that it wrote."""

    @property
    def name(self) -> str: ...

    @property
    def policy(self) -> str:
        """Also the name of the service."""
        ...

    @property
    def sampling(self) -> Sampling: ...

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
        follows: Segment | None = None,
    ) -> Segment:
        """Ask the role for a turn after these messages.

        Args:
            prefill: forced start of the turn. It is part of the context, and of the segment's text.
            parent: index in the episode of the segment that this one replies to.
            follows: a segment of the same conversation. If the prompt's ids begin with all of its ids, only the rest is
                stored.
        Raises: Fault.
        """
        ...


@dataclass(frozen=True)
class PolicyRole:
    """A role that a policy fills. Its replies have the ids that were read and sampled."""

    name: str
    policy: str
    """Also the name of the service that samples for it."""
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    sampling: Sampling
    keeps: bool = False
    """Whether the engine keeps its cache of the prompt and reply, for replies that follow."""
    max_positions: int | None = None
    """Positions of the policy's model, where an endpoint writes a part of its prompt. A prompt without room for the
    reply is then an `endpoint_error`. None: prompts are known to fit."""
    tools: str = ""
    """The JSON list of the tools that its chat template shows. Empty: none."""

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
        follows: Segment | None = None,
    ) -> Segment:
        """As `Role.reply`."""
        empty = self.begin(messages, prefill=prefill, seed=seed, parent=parent, group=group, follows=follows)
        self._check_room(empty)
        return self.extended(empty, await self._complete(self.request(empty)), prefill=prefill)

    async def _complete(self, request: Request) -> Completion:
        """What the service answers. Raises: Fault."""
        completion: Completion = await Ask(self.policy, request)
        return completion

    def _check_room(self, empty: Segment) -> None:
        """Raises: Fault."""
        length, written = len(empty.context), self.sampling.max_new_tokens
        if self.max_positions is not None and length + written > self.max_positions:
            reason = (
                f"{self.policy} has {self.max_positions} positions, and the prompt with what an endpoint wrote takes "
                f"{length} tokens and the reply up to {written}"
            )
            raise Fault(Failure(kind="endpoint_error", reason=reason))

    def begin(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
        follows: Segment | None = None,
    ) -> Segment:
        """A reply before its first token. Arguments as in `reply`."""
        added = None if follows is None else self._after(follows, messages, prefill)
        return Segment(
            role=self.name,
            policy=self.policy,
            added=render(self.tokenizer, messages, prefill, self.tools) if added is None else added,
            prefix=None if added is None else follows,
            tokens=(),
            logprobs=(),
            versions=(),
            text=prefill,
            stop_reason="length",
            temperature=self.sampling.temperature,
            seed=seed,
            parent=parent,
            group=group or {},
        )

    def _after(self, follows: Segment, messages: Sequence[Message], prefill: str) -> tuple[int, ...] | None:
        """The chat's ids after a reply. None: the reply does not begin it, as ids or as text."""
        context, tokens, has_end = follows.context, follows.tokens, follows.stop_reason == "eos"
        if not context and not tokens:  # a rule's
            return None
        after = partial(
            continued, self.tokenizer, messages, context, tokens, follows.text, has_end=has_end, prefill=prefill,
            tools=self.tools,
        )  # fmt: skip
        # No other token has a part of a control token. So what comes after one has the same ids in the whole chat.
        if has_end and is_control(self.tokenizer, tokens[-1]) and (added := after()) is not None:
            return added
        whole, before = render(self.tokenizer, messages, prefill, self.tools), (*context, *tokens)
        return whole[len(before) :] if whole[: len(before)] == before else after()

    def request(self, segment: Segment, budget: int | None = None) -> Request:
        """The request to an engine that continues a reply.

        Args:
            budget: tokens to write at most now. None: up to the role's limit.
        """
        left = self.sampling.max_new_tokens - len(segment.tokens)
        sampling = (
            self.sampling if left == self.sampling.max_new_tokens else replace(self.sampling, max_new_tokens=left)
        )
        if budget is not None and budget < left:
            sampling = replace(sampling, max_new_tokens=budget)
        return Request(
            context=segment.context + segment.tokens,
            sampling=sampling,
            seed=segment.seed,
            num_drawn=len(segment.tokens),
            follows=segment.prefix.seed if segment.prefix is not None else None,
            keep=self.keeps,
        )

    def extended(self, segment: Segment, completion: Completion, *, prefill: str = "") -> Segment:
        """The reply with the engine's new tokens.

        Args:
            prefill: that of `begin`.
        """
        tokens = segment.tokens + completion.tokens
        written = tokens[:-1] if completion.stop_reason == "eos" else tokens
        versions = list(segment.versions)
        for version, count in completion.runs:
            if versions and versions[-1][0] == version:
                versions[-1] = (version, versions[-1][1] + count)
            else:
                versions.append((version, count))
        return replace(
            segment,
            tokens=tokens,
            logprobs=segment.logprobs + completion.logprobs,
            versions=tuple(versions),
            # Control tokens that a model writes must not become turns of the next prompt.
            text=prefill + self.tokenizer.decode(written, skip_special_tokens=True),
            stop_reason=completion.stop_reason,
        )

    def has_ended(self, segment: Segment) -> bool:
        """False for a reply that only reached a budget, with tokens left to its limit."""
        return segment.stop_reason != "length" or len(segment.tokens) >= self.sampling.max_new_tokens


@dataclass(frozen=True)
class EndpointRole:
    """A role behind an endpoint: messages go out, and a text without tokens comes back, which never trains."""

    name: str
    policy: str
    """Also the name of the service."""
    sampling: Sampling
    prefills: bool = False
    """Whether the endpoint accepts a prefill."""

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
        follows: Segment | None = None,
    ) -> Segment:
        """As `Role.reply`. Few chat endpoints accept a prefill; for the others it is left out."""
        turns = tuple((message["role"], message["content"]) for message in messages)
        begun = prefill if self.prefills else ""
        answer = await Ask(self.policy, Prompt(messages=turns, sampling=self.sampling, seed=seed, prefill=begun))
        parsed: dict[str, Any] = {NUM_WRITTEN: answer.num_written}
        parsed |= {"logprobs": list(answer.logprobs)} if answer.logprobs is not None else {}
        return written(
            self.name, begun + answer.text, policy=self.policy, parent=parent, group=group or {}, seed=seed,
            parsed=parsed, stop_reason=answer.stop_reason, temperature=self.sampling.temperature,
        )  # fmt: skip


def num_written(segment: Segment) -> int:
    """Tokens generated for a segment: its own, or as counted by its endpoint. For a rule's: 0."""
    return len(segment.tokens) or int(segment.parsed.get(NUM_WRITTEN, 0))


def written(role: str, text: str, *, policy: str = "rule", **fields: Any) -> Segment:
    """A segment that no policy wrote now: a rule's, or one read from a file. It has no tokens and cannot train.

    Args:
        fields: other fields of the segment (`parent`, `grade`, ...).
    """
    defaults: dict[str, Any] = {
        "added": (),
        "tokens": (),
        "logprobs": (),
        "versions": (),
        "temperature": 0.0,
        "seed": 0,
    }
    defaults |= {"stop_reason": "eos", "parent": None}
    return Segment(role=role, policy=policy, text=text, **(defaults | fields))


def observed(text: str, *, parent: int | None, service: str = "environment", **fields: Any) -> Segment:
    """The text of an environment or a tool, as a segment. It never trains; rows of the turns around it have its tokens.

    Args:
        parent: index in the episode of the segment that it answers. None: it begins the episode.
    """
    return written("observation", text, policy=service, parent=parent, **fields)
