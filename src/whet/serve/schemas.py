"""What goes over the wire: a chat request, checked, and errors in OpenAI's shape.

Nothing is ignored that would change the text: what this server does not do (tools, penalties, top logprobs, ...) is
refused, unless it is set to what does nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationInfo, field_validator, model_validator

from whet.errors import WhetError
from whet.methods.base import Skill
from whet.types import is_whole

MAX_CHOICES, MAX_STOPS, MAX_STOP_CHARS = 128, 4, 1000
MAX_MESSAGES, MAX_PARTS = 10_000, 1000
"""Of a request, and of a message: each is checked on its own."""
MAX_METADATA = 64
MAX_SAID, MAX_PARAM = 1000, 200
"""Characters of an error's message, and of the argument that it names: clients write them."""


class _Strict(BaseModel):
    """Numbers are numbers, and text is text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def keep_one_stranger(cls, given: Any) -> Any:
        """One unknown argument is enough to refuse a request: a body may hold half a million, and an error is made of
        each."""
        if not isinstance(given, dict) or len(given) <= len(cls.model_fields):
            return given
        stranger = next(name for name in given if name not in cls.model_fields)
        return {name: value for name, value in given.items() if name in cls.model_fields or name == stranger}


def _check_whole(*texts: str) -> None:
    """Raises: ValueError where half a character is in one, as JSON may hold it and no tokenizer does."""
    for text in texts:
        if not is_whole(text):
            raise ValueError("half a character (a lone surrogate) is in it: send whole ones")


def _sendable(text: str) -> str:
    return text.encode(errors="replace").decode()


class TextPart(_Strict):
    type: Literal["text"]
    text: str


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS)]
    name: str | None = None
    """Not shown to the model."""

    @field_validator("content")
    @classmethod
    def check_content(cls, content: str | list[TextPart]) -> str | list[TextPart]:
        _check_whole(*([content] if isinstance(content, str) else [part.text for part in content]))
        return content

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class ResponseFormat(_Strict):
    type: Literal["text"] = "text"


class ChatRequest(_Strict):
    """`POST /v1/chat/completions`. `stages` is our own."""

    model: str
    messages: Annotated[list[Message], FailFast()] = Field(min_length=1, max_length=MAX_MESSAGES)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    """None: 1."""
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    """None, and max_tokens too: what the run allowed. Of the pipeline: in each stage."""
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    """None: another one each time."""
    logprobs: bool | None = None
    """Of the tokens sampled, under `softmax(logits / temperature)`."""
    continue_final_message: bool | None = None
    """Go on from the last message, which is the assistant's; the reply is what comes after it."""
    add_generation_prompt: bool | None = None
    """False belongs to it."""
    stages: bool | None = None
    """Of the pipeline: stream its answer and its critique too, not only the refinement."""

    top_logprobs: Literal[0] | None = None
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    presence_penalty: float | None = Field(None, ge=0, le=0)
    logit_bias: dict[str, float] | None = Field(None, max_length=0)
    tools: list[Any] | None = Field(None, max_length=0)
    tool_choice: Literal["none", "auto"] | None = None
    response_format: ResponseFormat | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None

    @field_validator("stop", "metadata", mode="before")
    @classmethod
    def check_number(cls, given: Any, info: ValidationInfo) -> Any:
        """Before each is looked at."""
        most = MAX_STOPS if info.field_name == "stop" else MAX_METADATA
        if isinstance(given, list | dict) and len(given) > most:
            raise ValueError(f"at most {most} of them")
        return given

    @field_validator("stop")
    @classmethod
    def check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        texts = [stop] if isinstance(stop, str) else stop or []
        if not all(0 < len(text) <= MAX_STOP_CHARS for text in texts):
            raise ValueError(f"texts of 1 to {MAX_STOP_CHARS} characters")
        _check_whole(*texts)
        return stop

    def stops_of(self, stage: Skill | None) -> tuple[str, ...]:
        """Of the reply to the client: in the pipeline, of the refinement alone."""
        if stage not in (None, "refine"):
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def limit(self) -> int | None:
        """Tokens of a reply."""
        return self.max_completion_tokens or self.max_tokens


class ApiError(WhetError):
    """A request that cannot be answered."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        # A client's own names stand in both, and half a character of them cannot be sent back.
        self.message = _sendable(message[:MAX_SAID])
        self.param = None if param is None else _sendable(param[:MAX_PARAM])

    def body(self) -> dict[str, Any]:
        kind = {429: "rate_limit_error"}.get(self.status, "server_error" if self.status >= 500 else _INVALID)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), status_code=self.status)


_INVALID = "invalid_request_error"


def of_validation(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a request's body."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is no JSON", code="invalid_json")
    if first["loc"] == ("body",):
        return ApiError(400, "the body has to be a JSON object, sent as application/json", code="invalid_json")
    # A value that may be of several types fails once for each; the place ends where the types' names begin.
    place = [str(part) for part in first["loc"] if part not in ("body", "str", "list[str]", "list[TextPart]")]
    param = ".".join(place) or None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is none of the arguments that this server knows", param=param,
                        code="unknown_parameter")  # fmt: skip
    said = str(first["msg"]).removeprefix("Value error, ")
    return ApiError(400, f"{param or 'the body'}: {said[0].lower()}{said[1:]}", param=param, code="invalid_value")
