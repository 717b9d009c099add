"""The token-in route, `POST /inference/v1/generate`: token ids in, sampled ids with their logprobs out.

Harnesses that render and parse by themselves, such as verifiers' `TrainClient`, sample here what they train on. The
shapes are vLLM's, as `renderers` 0.1.12 reads them. A parameter that would change the tokens, and that this server does
not know, is refused. The prompt is the client's: it may hold control tokens, and is never tokenised again.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field

from whet.seeds import seed_of
from whet.serve.choices import all_of
from whet.serve.fields import SamplingFields, Strict, as_texts
from whet.serve.models import ServedPolicies
from whet.serve.pipeline import sampling_of
from whet.serve.scheduler import Scheduler
from whet.serve.schemas import MAX_TOP, ApiError
from whet.types import Completion, Request, Sampling, StopReason, in_brief

MAX_IDS, MAX_STOP_IDS = 1_000_000, 256
"""Ids of a prompt, and stop ids: each is checked separately."""
MAX_SALT = 1000
FINISHED: dict[StopReason, str] = {"eos": "stop", "stop": "stop", "length": "length", "cancelled": "abort"}


class SamplingParams(SamplingFields):
    """The fields after `logprobs` are taken with values that have no effect, and no others."""

    max_tokens: int | None = Field(None, ge=1)
    """None: the run's limit."""
    stop_token_ids: list[int] | None = Field(None, max_length=MAX_STOP_IDS)
    """They end a reply as the model's end tokens do, and are its last id."""
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    """None: `logprobs` of the answer is null. Else those of the sampled ids, under `softmax(logits / temperature)`.
    Two or more: and those of so many of the likeliest ids in each place."""

    top_k: Literal[0, -1] | None = None
    min_p: float | None = Field(None, ge=0, le=0)
    min_tokens: Literal[0] | None = None
    ignore_eos: Literal[False] | None = None
    repetition_penalty: float | None = Field(None, ge=1, le=1)
    skip_special_tokens: bool | None = None
    """The answer has no text, so this and the next two change nothing."""
    spaces_between_special_tokens: bool | None = None
    detokenize: bool | None = None
    routed_experts_prompt_start: int | None = Field(None, ge=0)
    """From where on to tell a mixture's experts. Sent with each further turn; they are not told here."""


class GenerateRequest(Strict):
    """`POST /inference/v1/generate`."""

    model: str
    token_ids: Annotated[list[int], FailFast()] = Field(min_length=1, max_length=MAX_IDS)
    sampling_params: SamplingParams = SamplingParams()
    cache_salt: str | None = Field(None, max_length=MAX_SALT)
    """Separates caches of prompts in vLLM. Ours holds none beyond a request."""
    priority: Literal[0] | None = None
    stream: Literal[False] | None = None


@dataclass
class Generating:
    """Answers one request.

    Raises: ApiError where it cannot be answered.
    """

    served: ServedPolicies
    scheduler: Scheduler
    asked: GenerateRequest
    id: str = field(default_factory=lambda: f"generate-{uuid.uuid4().hex}")

    def __post_init__(self) -> None:
        if self.asked.model not in self.served.policies:
            message = f"there is no model {in_brief(self.asked.model)}; choose of: {', '.join(self.served.policies)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        self._check_ids()
        self._check_room()

    async def whole(self) -> dict[str, Any]:
        """Raises: ApiError."""
        params = self.asked.sampling_params
        seed = secrets.randbits(63) if params.seed is None else params.seed
        completions = await all_of([self._completion(seed_of(seed, "choice", index)) for index in range(params.n or 1)])
        read, written = len(self.asked.token_ids), sum(len(completion.tokens) for completion in completions)
        return {
            "request_id": self.id,
            "choices": [self._choice(index, completion) for index, completion in enumerate(completions)],
            "prompt_token_ids": self.asked.token_ids,
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }

    async def _completion(self, seed: int) -> Completion:
        request = Request(
            context=tuple(self.asked.token_ids), sampling=self._sampling(), seed=seed, num_top=self._num_top
        )
        async for event in self.scheduler.events(self.asked.model, request, tokens=False):
            if isinstance(event, Completion):
                return event
        raise AssertionError("the last event is the completion")

    def _choice(self, index: int, completion: Completion) -> dict[str, Any]:
        content: list[dict[str, Any]] = [
            _token(token.id, token.logprob) | {"top_logprobs": [_token(*likely) for likely in token.top]}
            for token in completion.sampled
        ]
        return {
            "index": index,
            "token_ids": completion.tokens,
            "logprobs": None if self.asked.sampling_params.logprobs is None else {"content": content},
            "finish_reason": FINISHED[completion.stop_reason],
        }

    @property
    def _num_top(self) -> int:
        number = self.asked.sampling_params.logprobs or 0
        return number if number > 1 else 0

    def _sampling(self) -> Sampling:
        params, limits = self.asked.sampling_params, self.served.limits[self.asked.model]
        return replace(
            sampling_of(params.temperature, params.top_p),
            max_new_tokens=params.max_tokens or limits.max_new_tokens,
            stop=as_texts(params.stop),
            stop_ids=tuple(params.stop_token_ids or ()),
        )

    def _check_ids(self) -> None:
        """Raises: ApiError where an id has no row in the model's embedding."""
        number = self.served.num_ids(self.asked.model)
        for param, ids in (
            ("token_ids", self.asked.token_ids),
            ("sampling_params.stop_token_ids", self.asked.sampling_params.stop_token_ids or []),
        ):
            outside = next((token for token in ids if not 0 <= token < number), None)
            if outside is not None:
                message = (
                    f"{param}: {in_brief(outside)} is no id of {self.asked.model}, whose vocabulary is 0 to "
                    f"{number - 1}: render with the tokenizer of that model"
                )
                raise ApiError(400, message, param=param, code="unknown_token")

    def _check_room(self) -> None:
        """Raises: ApiError where the prompt leaves no room for the reply."""
        positions, limit = self.served.positions(self.asked.model), self._sampling().max_new_tokens
        if positions is not None and len(self.asked.token_ids) + limit > positions:
            message = (
                f"{self.asked.model} has {positions} positions; the prompt takes {len(self.asked.token_ids)} tokens, "
                f"and the reply up to {limit}: shorten it, or lower max_tokens"
            )
            raise ApiError(400, message, param="token_ids", code="context_length_exceeded")


def _token(token: int, logprob: float) -> dict[str, Any]:
    return {"token": f"token_id:{token}", "logprob": logprob, "bytes": None}
