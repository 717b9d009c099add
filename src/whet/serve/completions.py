"""Plain completions, `POST /v1/completions`: a text in, what follows it out, without a chat template.

The shapes are OpenAI's older ones. A prompt is one text. No text of a client becomes a control token; prompts of ids go
to the token-in route.
"""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field, field_validator

from whet.seeds import seed_of
from whet.serve.answers import FINISHED
from whet.serve.choices import all_of, as_they_come
from whet.serve.detokenizer import Detokenizer, cut
from whet.serve.fields import SamplingFields, as_texts, check_whole
from whet.serve.pipeline import ChatRunner, sampling_of
from whet.serve.schemas import MAX_TOP, ApiError, StreamOptions
from whet.types import Completion, Request, Token


class CompletionRequest(SamplingFields):
    """The fields after `logprobs` are taken with values that have no effect, and no others."""

    model: str
    prompt: str = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    """None: the run's limit."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    """Of the sampled tokens, and of so many of the likeliest in each place. None: of none."""

    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)
    user: str | None = None

    @field_validator("prompt")
    @classmethod
    def check_prompt(cls, prompt: str) -> str:
        check_whole(prompt)
        return prompt


@dataclass(frozen=True)
class Part:
    """New text of a reply with its tokens; the last one has the whole completion."""

    text: str
    tokens: Sequence[Token]
    ended: Completion | None = None


@dataclass
class Completing:
    """Answers one request."""

    runner: ChatRunner
    asked: CompletionRequest
    context: tuple[int, ...]
    """The prompt's ids, by `ChatRunner.read_text`."""
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        seed = secrets.randbits(63) if self.asked.seed is None else self.asked.seed
        self.seeds = [seed_of(seed, "choice", index) for index in range(self.asked.n or 1)]
        self.tokenizer = self.runner.tokenizers[self.asked.model]
        self.lengths = [0] * len(self.seeds)
        """Characters of each choice's tokens so far."""

    async def whole(self) -> dict[str, Any]:
        """Raises: ApiError."""
        replies = await all_of([self._collected(seed) for seed in self.seeds])
        choices = [self._choice(index, part) for index, part in enumerate(replies)]
        return self._object(choices) | {"usage": self._usage([part.ended for part in replies if part.ended])}

    async def _collected(self, seed: int) -> Part:
        parts = [part async for part in self._parts(seed)]
        tokens = [token for part in parts for token in part.tokens]
        return Part("".join(part.text for part in parts), tokens, parts[-1].ended)

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events, all choices side by side. A late error is an event too."""
        ended: list[Completion] = []
        try:
            async with aclosing(as_they_come([self._parts(seed) for seed in self.seeds])) as parts:
                async for index, part in parts:
                    ended += [part.ended] if part.ended is not None else []
                    yield _event(self._object([self._choice(index, part)]))
            if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
                yield _event(self._object([]) | {"usage": self._usage(ended)})
            yield "data: [DONE]\n\n"
        except Exception as error:
            refusal = error if isinstance(error, ApiError) else ApiError(500, str(error)[:500])
            yield _event(refusal.body())

    async def _parts(self, seed: int) -> AsyncIterator[Part]:
        """One choice: a part for each new text in a stream, else one."""
        stops, ends = as_texts(self.asked.stop), self.runner.served.policies[self.asked.model].stop_ids
        detokenizer, pending = Detokenizer(self.tokenizer, stops), list[Token]()
        limit = self.asked.max_tokens or self.runner.served.limits[self.asked.model].max_new_tokens
        sampling = replace(sampling_of(self.asked.temperature, self.asked.top_p), max_new_tokens=limit, stop=stops)
        request = Request(context=self.context, sampling=sampling, seed=seed, num_top=self.asked.logprobs or 0)
        streams = bool(self.asked.stream)
        async for event in self.runner.scheduler.events(self.asked.model, request, tokens=streams):
            if isinstance(event, Completion):
                tokens = [token for token in event.sampled if token.id not in ends]
                text = self.tokenizer.decode([token.id for token in tokens], skip_special_tokens=True)
                yield Part(detokenizer.end(cut(text, stops)), pending if streams else tokens, event)
            elif event.id not in ends:
                pending.append(event)
                if new := detokenizer.add(event.id):
                    yield Part(new, pending)
                    pending = []

    def _choice(self, index: int, part: Part) -> dict[str, Any]:
        finish = None if part.ended is None else FINISHED[part.ended.stop_reason]
        logprobs = None if self.asked.logprobs is None else self._logprobs(index, part.tokens)
        return {"index": index, "text": part.text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, index: int, tokens: Sequence[Token]) -> dict[str, Any]:
        texts = [self.tokenizer.decode([token.id]) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(self.lengths[index])
            self.lengths[index] += len(text)
        tops = []
        for text, token in zip(texts, tokens, strict=True):
            top = {text: token.logprob}
            for likely, logprob in token.top:  # of several with one text, the likeliest
                top.setdefault(self.tokenizer.decode([likely]), logprob)
            tops.append(top)
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _usage(self, ended: Sequence[Completion]) -> dict[str, int]:
        read, written = len(self.context), sum(len(completion.tokens) for completion in ended)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def _object(self, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.asked.model,
            "choices": choices,
        }


def _event(record: dict[str, Any]) -> str:
    return f"data: {json.dumps(record)}\n\n"
