"""A chat request played: by one policy, or through the stages of the pipeline, each reply in pieces as it comes."""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from jinja2 import TemplateError

from whet.config.parts import SamplingConfig
from whet.errors import WhetError
from whet.methods.base import Skill
from whet.models.prompts import measured
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.serve.detokenizer import Detokenizer, cut
from whet.serve.limits import is_certainly_longer
from whet.serve.models import Cast
from whet.serve.scheduler import Overloaded, Scheduler
from whet.serve.schemas import ApiError, ChatRequest
from whet.tasks.prompts import Message
from whet.types import Completion, Sampling, Segment, in_brief

GREEDY = 1e-3
"""Temperatures below are 0: logits divided by them are no numbers any more."""


@dataclass(frozen=True)
class Piece:
    """Something new of a reply."""

    stage: Skill | None
    """None: the reply of one policy."""
    text: str
    tokens: Sequence[tuple[int, float]] = ()
    """Those behind it, with their logprobs; without end tokens."""
    ended: Segment | None = None
    """The reply, once it is whole."""


class Stagehand:
    """Plays requests with a cast. Lives in the event loop's thread, so its tokenizers are its own.

    Prompts are rendered and tokenised in a thread, with that thread's own tokenizers: a long one would keep the loop
    from everybody else. It is one thread, because rendering holds Python's lock.
    """

    def __init__(self, cast: Cast, scheduler: Scheduler) -> None:
        self.cast, self.scheduler = cast, scheduler
        self.tokenizers = {name: copy.deepcopy(policy.tokenizer) for name, policy in cast.policies.items()}
        self._readers = {name: copy.deepcopy(policy.tokenizer) for name, policy in cast.policies.items()}
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    def close(self) -> None:
        self._reading.shutdown(wait=False, cancel_futures=True)

    async def begin(self, asked: ChatRequest) -> Segment:
        """The first reply to a request, of which nothing is written yet.

        Raises: ApiError where the request cannot be played.
        """
        if asked.model not in self.cast.names:
            raise ApiError(404, f"there is no model {in_brief(asked.model)}; choose of: {', '.join(self.cast.names)}",
                           param="model", code="model_not_found")  # fmt: skip
        goes_on = bool(asked.continue_final_message)
        if (asked.messages[-1].role == "assistant") != goes_on:
            raise ApiError(400, "messages: the last one is the assistant's where continue_final_message is true, and "
                           "else the user's", param="messages")  # fmt: skip
        if asked.add_generation_prompt is not None and asked.add_generation_prompt == goes_on:
            raise ApiError(400, "add_generation_prompt: false goes with continue_final_message, and true without it",
                           param="add_generation_prompt")  # fmt: skip
        if asked.model == self.cast.pipeline_name:
            if len(asked.messages) != 1 or asked.messages[0].role != "user":
                raise ApiError(400, "messages: the pipeline takes one message, the user's question", param="messages")
            return await self._begun(self._pipeline_role(asked, 0), *self._question(asked), seed=0)
        if asked.stages:
            raise ApiError(400, f"stages: only {self.cast.pipeline_name or 'a pipeline'} has any", param="stages")
        role = self._role(asked.model, asked, self.cast.limits[asked.model])
        return await self._begun(role, *_turns(asked), seed=0)

    async def run(self, asked: ChatRequest, seed: int, first: Segment) -> AsyncIterator[Piece]:
        """One choice, piece by piece; the last piece of each stage has the whole reply.

        Args:
            first: what `begin` gave.
        Raises: ApiError.
        """
        if asked.model != self.cast.pipeline_name:
            role = self._role(asked.model, asked, self.cast.limits[asked.model])
            begun = replace(first, seed=seed)
            async for piece in self._reply(None, role, begun, _turns(asked)[1], asked):
                yield piece
            return
        words, question, texts = self.cast.words, asked.messages[0].text, list[str]()
        for number, stage in enumerate(self.cast.pipeline):
            if stage.name == "answer":
                messages, prefill = self._question(asked)
            elif stage.name == "critique":
                messages, prefill = words.critique_messages(question, texts[0]), ""
            else:
                messages = words.refine_messages(question, texts[0], words.steps_onward(texts[1]))
                prefill = words.refine_prefill
            role = self._pipeline_role(asked, number)
            own_seed = seed_of(seed, stage.name)
            begun = (
                replace(first, seed=own_seed)
                if number == 0
                else await self._begun(role, messages, prefill, seed=own_seed)
            )
            async for piece in self._reply(stage.name, role, begun, prefill, asked):
                yield piece
                if piece.ended is not None:
                    texts.append(piece.ended.text)

    async def _reply(
        self, stage: Skill | None, role: PolicyRole, begun: Segment, prefill: str, asked: ChatRequest
    ) -> AsyncIterator[Piece]:
        """What one policy writes."""
        shown = prefill if stage is not None else ""  # a beginning that the client sent is not sent back
        detokenizer, ends = Detokenizer(role.tokenizer, asked.stops_of(stage), shown), self._ends(role.policy)
        behind: list[tuple[int, float]] = []
        try:
            async for event in self.scheduler.events(role.policy, role.request(begun), tokens=bool(asked.stream)):
                if isinstance(event, Completion):
                    segment = role.extended(begun, event, prefill=shown)
                    if not asked.stream:
                        pairs = zip(event.tokens, event.logprobs, strict=True)
                        behind = [(token, logprob) for token, logprob in pairs if token not in ends]
                    yield Piece(stage, detokenizer.end(segment.text), behind, segment)
                elif event[0] not in ends:
                    behind.append(event)
                    if new := detokenizer.add(event[0]):
                        yield Piece(stage, new, behind)
                        behind = []
        except Overloaded as error:
            raise ApiError(429, "too many requests wait already; try again in a moment", code="overloaded") from error

    def _ends(self, policy: str) -> frozenset[int]:
        return self.cast.policies[policy].stop_ids

    # --- what a policy is asked ---------------------------------------------------------------------------------------

    def _role(self, policy: str, asked: ChatRequest, limits: SamplingConfig, stage: Skill | None = None) -> PolicyRole:
        temperature = 1.0 if asked.temperature is None else float(asked.temperature)
        temperature = 0.0 if temperature < GREEDY else temperature
        sampling = Sampling(
            temperature=temperature,
            top_p=1.0 if asked.top_p is None or temperature == 0 else float(asked.top_p),
            max_new_tokens=asked.limit or limits.max_new_tokens,
            stop=asked.stops_of(stage) or limits.stop,
        )
        return PolicyRole(policy, policy, self.tokenizers[policy], sampling)

    def _pipeline_role(self, asked: ChatRequest, number: int) -> PolicyRole:
        stage = self.cast.pipeline[number]
        return self._role(stage.policy, asked, stage.limits, stage.name)

    def _question(self, asked: ChatRequest) -> tuple[list[Message], str]:
        words = self.cast.words
        return words.solve_messages(asked.messages[0].text), words.solve_prefill

    async def _begun(self, role: PolicyRole, messages: list[Message], prefill: str, *, seed: int) -> Segment:
        """A reply of which nothing is written yet. Arguments as in `_read`.

        Raises: ApiError, also where the tokenizer cannot keep a text from being a control token.
        """
        reader = replace(role, tokenizer=self._readers[role.policy])
        run = asyncio.get_running_loop().run_in_executor
        try:
            return await run(self._reading, partial(self._read, reader, messages, prefill, seed=seed))
        except ApiError:
            raise
        except WhetError as error:
            raise ApiError(400, f"messages: {error}", param="messages") from error

    def _read(self, role: PolicyRole, messages: list[Message], prefill: str, *, seed: int) -> Segment:
        """In the thread that reads prompts.

        Raises: ApiError where the prompt cannot be put to the policy, or leaves no room.
        """
        positions, limit = self.cast.positions(role.policy), role.sampling.max_new_tokens
        # Templates may leave out parts of what the assistant has said, and of nobody else.
        said = [each["content"] for each in messages if each["role"] != "assistant"]
        if positions is not None and is_certainly_longer(said, role.tokenizer, positions):
            raise ApiError(
                400, f"{role.policy} has {positions} positions, and the messages take more: shorten them",
                param="messages", code="context_length_exceeded",
            )  # fmt: skip
        try:
            begun = role.begin(messages, prefill=prefill, seed=seed)
        except (TemplateError, ValueError, TypeError) as error:
            raise ApiError(400, f"messages: the chat template of {role.policy} refuses them ({error})",
                           param="messages") from error  # fmt: skip
        length = len(begun.context)
        if positions is not None and length + limit > positions:
            raise ApiError(
                400, f"{role.policy} has {positions} positions; the messages take {length} tokens, and the reply up to "
                f"{limit}: shorten them, or lower max_completion_tokens", param="messages",
                code="context_length_exceeded",
            )  # fmt: skip
        lost = next(
            (lost for _, lost in measured([*(each["content"] for each in messages), prefill], role.tokenizer) if lost),
            "",
        )
        if lost:
            raise ApiError(400, f"messages: the tokenizer of {role.policy} has no token for {lost}", param="messages",
                           code="unknown_characters")  # fmt: skip
        return begun


def _messages(asked: ChatRequest) -> list[Message]:
    return [
        {"role": "system" if each.role == "developer" else each.role, "content": each.text} for each in asked.messages
    ]


def _turns(asked: ChatRequest) -> tuple[list[Message], str]:
    """The conversation, and what the reply to it has begun with."""
    messages = _messages(asked)
    return (messages[:-1], messages[-1]["content"]) if asked.continue_final_message else (messages, "")


def text_of(segment: Segment, asked: ChatRequest, stage: Skill | None) -> str:
    """A whole reply as the client gets it: without its stop string."""
    return cut(segment.text, asked.stops_of(stage))


def new_seed() -> int:
    return secrets.randbits(63)
