"""Whether the parts of a chat request go with each other and with the model that it names."""

from __future__ import annotations

from whet.serve.models import ServedPolicies
from whet.serve.schemas import ApiError, ChatRequest
from whet.types import in_brief


def check_request(request: ChatRequest, served: ServedPolicies) -> None:
    """Raises: ApiError where the request names no model, or its messages do not fit the model."""
    if request.model not in served.names:
        message = f"there is no model {in_brief(request.model)}; choose of: {', '.join(served.names)}"
        raise ApiError(404, message, param="model", code="model_not_found")
    goes_on = bool(request.continue_final_message)
    if (request.messages[-1].role == "assistant") != goes_on:
        raise ApiError(
            400,
            "messages: the last one is the assistant's where continue_final_message is true, and else the user's",
            param="messages",
        )
    if request.add_generation_prompt is not None and request.add_generation_prompt == goes_on:
        raise ApiError(
            400,
            "add_generation_prompt: false goes with continue_final_message, and true without it",
            param="add_generation_prompt",
        )
    _check_calls(request)
    _check_format(request, is_pipeline=request.model == served.pipeline_name)
    if request.model == served.pipeline_name:
        if len(request.messages) != 1 or request.messages[0].role != "user":
            raise ApiError(400, "messages: the pipeline takes one message, the user's question", param="messages")
        if request.shown_tools:
            raise ApiError(400, "tools: the pipeline takes none; name one of its policies", param="tools")
    elif request.stages:
        raise ApiError(400, f"stages: only {served.pipeline_name or 'a pipeline'} has any", param="stages")


def _check_calls(request: ChatRequest) -> None:
    """Raises: ApiError where a tool's message answers no call, or the message to continue ends in calls."""
    for number, turn in enumerate(request.messages):
        if turn.tool_call_id is not None and turn.tool_call_id not in request.called:
            reason = f"messages.{number}.tool_call_id: no call of the conversation has this id"
            raise ApiError(400, reason, param=f"messages.{number}.tool_call_id")
    if request.continue_final_message and request.messages[-1].tool_calls:
        raise ApiError(400, "messages: the last one ends in calls, which nothing can continue", param="messages")


def _check_format(request: ChatRequest, *, is_pipeline: bool) -> None:
    """Raises: ApiError where a response format does not go with the rest of a request."""
    if request.schema_text is None:
        return
    for is_there, what in (
        (is_pipeline, "the pipeline, whose stages are text: name one of its policies"),
        (bool(request.shown_tools), "tools: send one of them"),
        (bool(request.continue_final_message), "continue_final_message: let the model write the whole reply"),
    ):
        if is_there:
            raise ApiError(400, f"response_format: JSON does not go with {what}", param="response_format")
