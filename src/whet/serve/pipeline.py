"""Runs a chat request with one policy or through the stages of the pipeline. Replies come in pieces."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jinja2 import TemplateError

from whet.chat import MORE, text_ids, tokens_around
from whet.config.parts import SamplingConfig
from whet.errors import WhetError
from whet.methods.base import Skill
from whet.models.prompts import measured
from whet.models.templates import tools_problem
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.serve.checks import check_request
from whet.serve.detokenizer import Detokenizer, cut
from whet.serve.json_schemas import SchemaCompiler
from whet.serve.limits import is_certainly_longer
from whet.serve.models import ServedPolicies
from whet.serve.scheduler import Scheduler
from whet.serve.schemas import ApiError, ChatMessage, ChatRequest
from whet.tasks.prompts import Message
from whet.types import Completion, Constraint, Sampling, Segment, Token

GREEDY = 1e-3
"""Temperatures below are 0: logits divided by them would overflow."""


@dataclass(frozen=True)
class Piece:
    """A new part of a reply."""

    stage: Skill | None
    """None: the reply of one policy."""
    text: str
    tokens: Sequence[Token] = ()
    """The text's tokens, without end tokens."""
    ended: Segment | None = None
    """The whole reply, in its last piece."""


@dataclass(frozen=True)
class Beginning:
    """A checked request, and the first reply to it."""

    segment: Segment
    """Still empty: the same for all choices but for the seed."""
    constraint: Constraint | None
    """The form of a reply."""


class ChatRunner:
    """Runs chat requests with the served policies, in the event loop's thread and with its own tokenizers.

    Prompts are rendered and tokenised in another thread, with further copies of the tokenizers: a long prompt would
    block the loop. It is one thread, because rendering holds Python's lock.
    """

    def __init__(self, served: ServedPolicies, scheduler: Scheduler) -> None:
        self.served, self.scheduler = served, scheduler
        self.tokenizers = {name: copy.deepcopy(policy.tokenizer) for name, policy in served.policies.items()}
        self._readers = {name: copy.deepcopy(policy.tokenizer) for name, policy in served.policies.items()}
        self._compilers: dict[str, SchemaCompiler] = {}
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    def close(self) -> None:
        self._reading.shutdown(wait=False, cancel_futures=True)

    async def begin(self, request: ChatRequest) -> Beginning:
        """
        Raises: ApiError where the request cannot be run.
        """
        check_request(request, self.served)
        if request.model == self.served.pipeline_name:
            return Beginning(await self._begun(self._pipeline_role(request, 0), *self._question(request), seed=0), None)
        role = self._role(request.model, request, self.served.limits[request.model])
        segment, constraint = await self._begun(role, *_turns(request), seed=0), None
        if request.schema_text is not None:
            run = asyncio.get_running_loop().run_in_executor
            constraint = await run(self._reading, self._constraint, request.model, request.schema_text)
        return Beginning(segment, constraint)

    async def read_text(self, policy: str, text: str, limit: int) -> tuple[int, ...]:
        """The ids of a prompt without a chat template, with the token that begins texts where the tokenizer adds one.

        Args:
            limit: tokens of the reply.
        Raises: ApiError where the policy cannot take it.
        """
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._reading, self._read_text, policy, text, limit)

    def _read_text(self, policy: str, text: str, limit: int) -> tuple[int, ...]:
        """Runs in the thread for prompts."""
        tokenizer, positions = self._readers[policy], self.served.positions(policy)
        if positions is not None and is_certainly_longer([text], tokenizer, positions):
            raise _too_long(f"{policy} has {positions} positions, and the prompt takes more: shorten it", "prompt")
        for _, lost in measured([text], tokenizer):
            if lost:
                reason = f"prompt: the tokenizer of {policy} has no token for {lost}"
                raise ApiError(400, reason, param="prompt", code="unknown_characters")
        before, _ = tokens_around(tokenizer)
        ids = (*before, *text_ids(tokenizer, text, "outside"))
        if positions is not None and len(ids) + limit > positions:
            raise _too_long(
                f"{policy} has {positions} positions; the prompt takes {len(ids)} tokens, and the reply up to {limit}: "
                "shorten it, or lower max_tokens",
                "prompt",
            )
        return ids

    def _constraint(self, policy: str, schema: str) -> Constraint:
        """Runs in the thread for prompts. Raises: ApiError."""
        if policy not in self._compilers:
            self._compilers[policy] = SchemaCompiler(self.served.policies[policy], self.served.num_ids(policy))
        return self._compilers[policy].constraint(schema)

    async def run(self, request: ChatRequest, seed: int, first: Beginning) -> AsyncIterator[Piece]:
        """One choice, piece by piece; the last piece of each stage has the whole reply.

        Args:
            first: the result of `begin`.
        Raises: ApiError.
        """
        if request.model != self.served.pipeline_name:
            role = self._role(request.model, request, self.served.limits[request.model])
            begun = replace(first.segment, seed=seed)
            async for piece in self._reply(None, role, begun, _turns(request)[1], request, first.constraint):
                yield piece
            return
        prompts, question, texts = self.served.words, request.messages[0].text, list[str]()
        for number, stage in enumerate(self.served.pipeline):
            role, stage_seed = self._pipeline_role(request, number), seed_of(seed, stage.name)
            if stage.name == "answer":
                prefill, begun = prompts.solve_prefill, replace(first.segment, seed=stage_seed)
            elif stage.name == "critique":
                prefill = ""
                begun = await self._begun(role, prompts.critique_messages(question, texts[0]), prefill, seed=stage_seed)
            else:
                prefill = prompts.refine_prefill
                messages = prompts.refine_messages(question, texts[0], prompts.steps_onward(texts[1]))
                begun = await self._begun(role, messages, prefill, seed=stage_seed)
            async for piece in self._reply(stage.name, role, begun, prefill, request):
                yield piece
                if piece.ended is not None:
                    texts.append(piece.ended.text)

    async def _reply(
        self,
        stage: Skill | None,
        role: PolicyRole,
        begun: Segment,
        prefill: str,
        request: ChatRequest,
        constraint: Constraint | None = None,
    ) -> AsyncIterator[Piece]:
        """One policy's reply."""
        shown = prefill if stage is not None else ""  # text that the client wrote is not sent back
        detokenizer = Detokenizer(role.tokenizer, request.stops_of(stage), shown)
        end_tokens = self.served.policies[role.policy].stop_ids
        pending: list[Token] = []
        to_engine = replace(role.request(begun), constraint=constraint, num_top=request.top_logprobs or 0)
        async for event in self.scheduler.events(role.policy, to_engine, tokens=bool(request.stream)):
            if isinstance(event, Completion):
                segment = role.extended(begun, event, prefill=shown)
                if not request.stream:
                    pending = [token for token in event.sampled if token.id not in end_tokens]
                yield Piece(stage, detokenizer.end(segment.text), pending, segment)
            elif event.id not in end_tokens:
                pending.append(event)
                if new := detokenizer.add(event.id):
                    yield Piece(stage, new, pending)
                    pending = []

    # --- prompts and sampling of a policy -----------------------------------------------------------------------------

    def _role(
        self, policy: str, request: ChatRequest, limits: SamplingConfig, stage: Skill | None = None
    ) -> PolicyRole:
        sampling = replace(
            sampling_of(request.temperature, request.top_p),
            max_new_tokens=request.limit or limits.max_new_tokens,
            stop=request.stops_of(stage) or limits.stop,
        )
        return PolicyRole(policy, policy, self.tokenizers[policy], sampling, tools=request.shown_tools)

    def _pipeline_role(self, request: ChatRequest, number: int) -> PolicyRole:
        stage = self.served.pipeline[number]
        return self._role(stage.policy, request, stage.limits, stage.name)

    def _question(self, request: ChatRequest) -> tuple[list[Message], str]:
        prompts = self.served.words
        return prompts.solve_messages(request.messages[0].text), prompts.solve_prefill

    async def _begun(self, role: PolicyRole, messages: list[Message], prefill: str, *, seed: int) -> Segment:
        """An empty reply. Arguments as in `_read`.

        Raises: ApiError, also where the tokenizer would make a text a control token.
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
        """An empty reply to a prompt. Runs in the thread for prompts.

        Raises: ApiError where the policy cannot take the prompt, or it leaves no room.
        """
        positions, limit = self.served.positions(role.policy), role.sampling.max_new_tokens
        uses_tools = role.tools or any(message["role"] == "tool" or MORE in message for message in messages)
        if uses_tools and (problem := tools_problem(role.tokenizer)):
            reason = f"tools: {role.policy} cannot be given any, as {problem}: leave them out, or serve another model"
            raise ApiError(400, reason, param="tools", code="no_tools")
        # Templates may leave out parts of the assistant's messages, and of no others.
        texts = [message["content"] for message in messages if message["role"] != "assistant"] + [role.tools]
        if positions is not None and is_certainly_longer(texts, role.tokenizer, positions):
            raise _too_long(f"{role.policy} has {positions} positions, and the messages take more: shorten them")
        try:
            begun = role.begin(messages, prefill=prefill, seed=seed)
        except (TemplateError, ValueError, TypeError, RecursionError) as error:
            message = f"messages: the chat template of {role.policy} refuses them ({error})"
            raise ApiError(400, message, param="messages") from error
        length = len(begun.context)
        if positions is not None and length + limit > positions:
            raise _too_long(
                f"{role.policy} has {positions} positions; the messages take {length} tokens, and the reply up to "
                f"{limit}: shorten them, or lower max_completion_tokens"
            )
        written = [*(message["content"] for message in messages), prefill, role.tools]
        written += [message[MORE] for message in messages if MORE in message]
        for _, lost in measured(written, role.tokenizer):
            if lost:
                message = f"messages: the tokenizer of {role.policy} has no token for {lost}"
                raise ApiError(400, message, param="messages", code="unknown_characters")
        return begun


def sampling_of(temperature: float | None, top_p: float | None) -> Sampling:
    """How tokens are drawn, by a client's numbers; None: 1. Limits are the defaults."""
    heat = 1.0 if temperature is None else float(temperature)
    heat = 0.0 if heat < GREEDY else heat
    return Sampling(temperature=heat, top_p=1.0 if top_p is None or heat == 0 else float(top_p))


def _too_long(message: str, param: str = "messages") -> ApiError:
    return ApiError(400, message, param=param, code="context_length_exceeded")


def _turns(request: ChatRequest) -> tuple[list[Message], str]:
    """The conversation, and the prefill of the reply."""
    messages = [_turn(message, request.called) for message in request.messages]
    return (messages[:-1], messages[-1]["content"]) if request.continue_final_message else (messages, "")


def _turn(message: ChatMessage, called: Mapping[str, str]) -> Message:
    """
    Args:
        called: the names of the tools that the conversation called, by the calls' ids.
    """
    turn = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    more: dict[str, Any] = {}
    if message.tool_calls:  # templates write the arguments, so they get an object and no text
        more = {"tool_calls": [call.model_dump() for call in message.tool_calls]}
        for call in more["tool_calls"]:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    if message.tool_call_id is not None:
        more = {"tool_call_id": message.tool_call_id, "name": called[message.tool_call_id]}
    return turn | ({MORE: json.dumps(more, ensure_ascii=False)} if more else {})


def text_of(segment: Segment, request: ChatRequest, stage: Skill | None) -> str:
    """A whole reply for the client: without its stop string."""
    return cut(segment.text, request.stops_of(stage))
