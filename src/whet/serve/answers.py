"""Replies as OpenAI's objects: a whole completion, or the chunks of a stream."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from whet.distribution import version
from whet.methods.base import Skill
from whet.seeds import seed_of
from whet.serve.choices import all_of, as_they_come
from whet.serve.detokenizer import token_bytes
from whet.serve.pipeline import Beginning, ChatRunner, Piece, text_of
from whet.serve.schemas import ApiError, ChatRequest
from whet.tool_calls import Call, CallReader
from whet.types import Segment, Token

FINGERPRINT = f"whet-{version()}"
FINISHED: Mapping[str, str] = {"eos": "stop", "stop": "stop", "length": "length", "cancelled": "stop"}
STAGES: Mapping[Skill | None, str | None] = {
    None: None,
    "answer": "answer",
    "critique": "critique",
    "refine": "refinement",
}
"""The stages' names in replies."""


@dataclass
class Answering:
    """Answers one request."""

    runner: ChatRunner
    request: ChatRequest
    begun: Beginning
    seeds: Sequence[int] = ()
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        seed = secrets.randbits(63) if self.request.seed is None else self.request.seed
        self.seeds = [seed_of(seed, "choice", index) for index in range(self.request.n or 1)]
        self.readers = [CallReader() if self.request.shown_tools else None for _ in self.seeds]
        """Of each choice. None: its text is given as it is."""

    # --- whole --------------------------------------------------------------------------------------------------------

    async def whole(self) -> dict[str, Any]:
        """Raises: ApiError."""
        episodes = await all_of([self._collected(seed) for seed in self.seeds])
        choices = [self._choice(index, pieces) for index, pieces in enumerate(episodes)]
        ended = [piece.ended for pieces in episodes for piece in pieces if piece.ended is not None]
        return self._object("chat.completion", choices) | {"usage": _usage(ended)}

    async def _collected(self, seed: int) -> list[Piece]:
        return [piece async for piece in self.runner.run(self.request, seed, self.begun)]

    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        stages = [(piece.stage, piece.ended) for piece in pieces if piece.ended is not None]
        last, segment = stages[-1]
        tokens = [token for piece in pieces if piece.stage == last for token in piece.tokens]
        text, calls = self._read(index, text_of(segment, self.request, last), is_last=True)
        message = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
        choice = {
            "index": index,
            "message": message | ({"tool_calls": calls} if calls else {}),
            "logprobs": self._logprobs(segment.policy, tokens),
            "finish_reason": self._finish(index, segment),
        }
        return choice if last is None else choice | {"stages": [self._stage(*stage) for stage in stages]}

    def _stage(self, stage: Skill | None, segment: Segment) -> dict[str, Any]:
        words = self.runner.served.words
        record: dict[str, Any] = {
            "stage": STAGES[stage],
            "model": segment.policy,
            "content": text_of(segment, self.request, stage),
            "finish_reason": FINISHED[segment.stop_reason],
        }
        return record | dict(self.runner.served.reading(segment.text, words) if stage == "critique" else {})

    # --- in a stream --------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events, all choices side by side. A late error is an event too."""
        ended: list[Segment] = []
        try:
            for index in range(len(self.seeds)):
                yield self._event([self._delta(index, {"role": "assistant", "content": ""})])
            replies = [self.runner.run(self.request, seed, self.begun) for seed in self.seeds]
            async with aclosing(as_they_come(replies)) as pieces:
                async for index, piece in pieces:
                    ended += [piece.ended] if piece.ended is not None else []
                    for event in self._of_piece(index, piece):
                        yield event
            if self.request.stream_options is not None and self.request.stream_options.include_usage:
                yield self._event([], usage=_usage(ended))
            yield "data: [DONE]\n\n"
        except ApiError as error:
            yield f"data: {json.dumps(error.body())}\n\n"
        except Exception as error:
            yield f"data: {json.dumps(ApiError(500, str(error)[:500]).body())}\n\n"

    def _of_piece(self, index: int, piece: Piece) -> list[str]:
        is_last = piece.stage in (None, "refine")
        if not is_last and not self.request.stages:
            return []
        policy = piece.ended.policy if piece.ended else self._policy(piece.stage)
        marks = {} if piece.stage is None else {"stage": STAGES[piece.stage]}
        events = []
        text, calls = self._read(index, piece.text, is_last=piece.ended is not None)
        if text or calls or piece.tokens:
            said = ({"content": text} if text or not calls else {}) | ({"tool_calls": calls} if calls else {})
            delta = self._delta(index, said, logprobs=self._logprobs(policy, piece.tokens))
            events.append(self._event([delta | marks]))
        if piece.ended is not None:
            end = self._delta(index, {}, self._finish(index, piece.ended) if is_last else None)
            whole = {} if is_last else {"stage_ended": self._stage(piece.stage, piece.ended)}
            events.append(self._event([end | marks | whole]))
        return events

    def _read(self, index: int, text: str, *, is_last: bool) -> tuple[str, list[dict[str, Any]]]:
        """A choice's next text, and the calls in it as OpenAI's objects.

        Args:
            is_last: whether the text ends with it.
        """
        reader = self.readers[index]
        if reader is None:
            return text, []
        number = reader.num_calls
        pieces = [*reader.add(text), *(reader.end() if is_last else [])]
        calls = [piece for piece in pieces if isinstance(piece, Call)]
        return "".join(piece for piece in pieces if isinstance(piece, str)), [
            self._call(number + place, call) for place, call in enumerate(calls)
        ]

    def _call(self, number: int, call: Call) -> dict[str, Any]:
        made = {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.json},
        }
        return {"index": number} | made if self.request.stream else made

    def _finish(self, index: int, segment: Segment) -> str:
        """Why a choice ended. One with calls that was cut at its limit is still one that was cut."""
        reader, reason = self.readers[index], FINISHED[segment.stop_reason]
        return "tool_calls" if reader is not None and reader.num_calls and reason == "stop" else reason

    def _policy(self, stage: Skill | None) -> str:
        return next(
            (candidate.policy for candidate in self.runner.served.pipeline if candidate.name == stage),
            self.request.model,
        )

    def _delta(
        self, index: int, delta: Mapping[str, Any], finish: str | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _event(self, choices: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        return f"data: {json.dumps(self._object('chat.completion.chunk', choices) | fields)}\n\n"

    # --- pieces of both -----------------------------------------------------------------------------------------------

    def _object(self, kind: str, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
            "system_fingerprint": FINGERPRINT,
        }

    def _logprobs(self, policy: str, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        tokenizer = self.runner.tokenizers[policy]

        def shown(token: int, logprob: float) -> dict[str, Any]:
            text = tokenizer.decode([token])
            return {"token": text, "logprob": logprob, "bytes": token_bytes(tokenizer, token, text)}

        content = [
            shown(token.id, token.logprob) | {"top_logprobs": [shown(*likely) for likely in token.top]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}


def _usage(segments: Sequence[Segment]) -> dict[str, int]:
    """Tokens of all choices and stages. Choices of one request share a prompt, which counts once."""
    prompts = {segment.context for segment in segments}
    read, written = sum(map(len, prompts)), sum(len(segment.tokens) for segment in segments)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
