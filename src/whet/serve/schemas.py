"""The server's data formats: a validated chat request, and errors in OpenAI's shape.

Nothing is ignored that would change the text. What this server does not do (penalties, forced calls, ...) is refused,
unless its value has no effect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import FailFast, Field, ValidationInfo, field_validator

from whet.errors import WhetError
from whet.methods.base import Skill
from whet.serve.fields import SamplingFields, Strict, as_texts, at_most, check_whole
from whet.serve.response_format import ResponseFormat

MAX_TOP = 20
MAX_MESSAGES, MAX_PARTS = 10_000, 1000
"""Messages of a request, and parts of a message: each is checked separately."""
MAX_METADATA = 64
MAX_TOOLS, MAX_ID = 128, 200
TOOL_NAME = "^[a-zA-Z0-9_.-]{1,64}$"
MAX_SAID, MAX_PARAM = 1000, 200
"""Characters of an error's message, and of the argument that it names: clients write them."""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _sendable(text: str) -> str:
    return text.encode(errors="replace").decode()


class TextPart(Strict):
    type: Literal["text"]
    text: str


class FunctionSchema(Strict):
    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """A JSON schema, shown to the model as it is."""
    strict: Literal[False] | None = None


class Tool(Strict):
    type: Literal["function"]
    function: FunctionSchema


class CalledFunction(Strict):
    name: str = Field(pattern=TOOL_NAME)
    arguments: str
    """A JSON object."""

    @field_validator("arguments")
    @classmethod
    def check_arguments(cls, arguments: str) -> str:
        try:
            is_object = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise ValueError("the text of a JSON object, as it came in the reply")
        return arguments


class ToolCall(Strict):
    id: str = Field(min_length=1, max_length=MAX_ID)
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS)] | None = None
    """The assistant's."""
    tool_call_id: str | None = Field(None, max_length=MAX_ID, validate_default=True)
    """The call that a tool's message answers."""
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS)] | None = Field(None, validate_default=True)
    """None goes with the assistant's calls."""
    name: str | None = None
    """Not shown to the model."""

    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None

    @field_validator("tool_calls", "tool_call_id", "content")
    @classmethod
    def check_role(cls, value: Any, info: ValidationInfo) -> Any:
        role = info.data.get("role")
        if info.field_name == "tool_calls" and value and role != "assistant":
            raise ValueError("they are the assistant's")
        if info.field_name == "tool_call_id" and (role == "tool") != (value is not None):
            raise ValueError("it goes with the role tool, and names the call that the message answers")
        if info.field_name == "content" and value is None and not info.data.get("tool_calls"):
            raise ValueError("only a message of the assistant with tool_calls may be without it")
        return value

    @field_validator("content")
    @classmethod
    def check_content(cls, content: str | list[TextPart] | None) -> str | list[TextPart] | None:
        check_whole(*([content] if isinstance(content, str) else [part.text for part in content or []]))
        return content

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or [])


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class ChatRequest(SamplingFields):
    """`POST /v1/chat/completions`. `stages` is our extension."""

    model: str
    messages: Annotated[list[ChatMessage], FailFast()] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    """None, and max_tokens too: the run's limit. In the pipeline: per stage."""
    logprobs: bool | None = None
    """Of the tokens sampled, under `softmax(logits / temperature)`. With a response format: of the allowed tokens."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP)
    """Goes with `logprobs`: the likeliest tokens in each place too, so many."""
    continue_final_message: bool | None = None
    """Continue the last message, which is the assistant's. The reply is what follows it."""
    add_generation_prompt: bool | None = None
    """False goes with `continue_final_message`."""
    stages: bool | None = None
    """In the pipeline: stream the answer and the critique too, not only the refinement."""

    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    """Functions that the model may call. Its chat template shows them."""
    tool_choice: Literal["none", "auto"] | None = None
    """none: they are not shown. A call cannot be forced."""
    parallel_tool_calls: Literal[True] | None = None

    response_format: ResponseFormat | None = None

    logit_bias: dict[str, float] | None = Field(None, max_length=0)

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None

    @field_validator("metadata", mode="before")
    @classmethod
    def check_number(cls, value: Any) -> Any:
        return at_most(MAX_METADATA, value)

    @field_validator("top_logprobs")
    @classmethod
    def check_top_logprobs(cls, number: int | None, info: ValidationInfo) -> int | None:
        if number and not info.data.get("logprobs"):
            raise ValueError("it goes with logprobs: true")
        return number

    @field_validator("tools")
    @classmethod
    def check_tools(cls, tools: list[Tool] | None) -> list[Tool] | None:
        try:
            check_whole(_json([tool.model_dump() for tool in tools or []]))
        except RecursionError:
            raise ValueError("a schema is nested too deeply") from None
        return tools

    @cached_property
    def called(self) -> Mapping[str, str]:
        """The names of the tools that the conversation called, by the calls' ids."""
        calls = [call for message in self.messages for call in message.tool_calls or []]
        return {call.id: call.function.name for call in calls}

    @cached_property
    def shown_tools(self) -> str:
        """The tools that the model's template shows, as JSON. Empty: none."""
        if not self.tools or self.tool_choice == "none":
            return ""
        return _json([tool.model_dump(exclude_none=True) for tool in self.tools])

    @property
    def schema_text(self) -> str | None:
        """The JSON schema of the reply. None: any text."""
        return None if self.response_format is None else self.response_format.schema_text

    def stops_of(self, stage: Skill | None) -> tuple[str, ...]:
        """Stop strings of the reply to the client. In the pipeline, only the refinement has any."""
        if stage not in (None, "refine"):
            return ()
        return as_texts(self.stop)

    @property
    def limit(self) -> int | None:
        """Tokens of a reply."""
        return self.max_completion_tokens or self.max_tokens


class ApiError(WhetError):
    """A request that cannot be answered."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        # Both may quote a client's names, of which half a character cannot be sent back.
        self.message = _sendable(message[:MAX_SAID])
        self.param = None if param is None else _sendable(param[:MAX_PARAM])

    def body(self) -> dict[str, Any]:
        kind = {429: "rate_limit_error"}.get(self.status, "server_error" if self.status >= 500 else _INVALID)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), status_code=self.status)


_INVALID = "invalid_request_error"


def of_validation(error: RequestValidationError) -> ApiError:
    """The first error in a request's body."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is no JSON", code="invalid_json")
    if first["loc"] == ("body",):
        return ApiError(400, "the body has to be a JSON object, sent as application/json", code="invalid_json")
    # A value of several allowed types fails once for each; the place ends where the types' names begin.
    place = [str(part) for part in first["loc"] if part not in ("body", "str", "list[str]", "list[TextPart]", "none")]
    param = ".".join(place) or None
    if first["type"] == "extra_forbidden":
        return ApiError(
            400, f"{param} is none of the arguments that this server knows", param=param, code="unknown_parameter"
        )
    message = str(first["msg"]).removeprefix("Value error, ")
    return ApiError(400, f"{param or 'the body'}: {message[0].lower()}{message[1:]}", param=param, code="invalid_value")
