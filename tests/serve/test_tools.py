"""Tools in chat requests: OpenAI's client against a model that has learnt to call one, under a published template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from support.served import only_policies, served
from support.tool_model import ADD, ASKED, NUMBERS, SAYS, tool_policy
from whet.config.parts import ModelConfig
from whet.models.policy import Policy, load_policies


@pytest.fixture(scope="module")
def policy() -> Policy:
    return tool_policy()


@pytest.fixture(scope="module")
def address(policy) -> Iterator[str]:
    tiny = load_policies({"tiny": ModelConfig()})
    with served(only_policies({"policy": policy, **tiny}, 60)) as place:
        yield place


@pytest.fixture(scope="module")
def client(address) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)


def answered(message: Any) -> list[Any]:
    """The conversation after the tool has answered."""
    [call] = message.tool_calls
    total = str(sum(json.loads(call.function.arguments).values()))
    return [ASKED, message, {"role": "tool", "tool_call_id": call.id, "content": total}]


def test_a_tool_is_called_and_its_answer_is_read(client):
    ask = {"model": "policy", "temperature": 0, "tools": [ADD]}
    [choice] = client.chat.completions.create(messages=[ASKED], **ask).choices
    [call] = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I add them.")
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "add", NUMBERS)
    [choice] = client.chat.completions.create(messages=answered(choice.message), **ask).choices
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("stop", SAYS, None)


def test_a_stream_gives_the_same_call(client):
    stream = client.chat.completions.create(
        model="policy", messages=[ASKED], temperature=0, tools=[ADD], stream=True, logprobs=True
    )
    chunks = [chunk.choices[0] for chunk in stream]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "I add them."
    [call] = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert (call.index, call.function.name, json.loads(call.function.arguments)) == (0, "add", NUMBERS)
    assert call.id.startswith("call_")
    assert chunks[-1].finish_reason == "tool_calls"
    tokens = [token.token for chunk in chunks if chunk.logprobs for token in chunk.logprobs.content]
    assert "".join(tokens).endswith("</tool_call>")  # logprobs are of all that was sampled


def test_openais_own_stream_helper_puts_the_call_together(client):
    with client.chat.completions.stream(model="policy", messages=[ASKED], temperature=0, tools=[ADD]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == NUMBERS


def test_a_reply_that_is_cut_within_its_call_is_text(client):
    [choice] = client.chat.completions.create(
        model="policy", messages=[ASKED], temperature=0, tools=[ADD], max_tokens=8
    ).choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("length", None)
    assert choice.message.content.startswith("I add them.\n<tool_call>")


def test_without_tools_shown_the_text_stays_as_it_is(client):
    counts = {}
    for name, more in {"auto": {}, "none": {"tool_choice": "none"}}.items():
        done = client.chat.completions.create(
            model="policy", messages=[ASKED], temperature=0, tools=[ADD], max_tokens=5, **more
        )
        counts[name] = done.usage.prompt_tokens
    plain = client.chat.completions.create(model="policy", messages=[ASKED], temperature=0, max_tokens=5)
    assert counts["none"] == plain.usage.prompt_tokens < counts["auto"]


CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
SAID = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "1"}


@pytest.mark.parametrize(
    ("changed", "param", "says"),
    [
        ({"model": "tiny"}, "tools", "its chat template does not show tools"),
        ({"model": "tiny", "tools": None, "messages": [ASKED, SAID, ANSWER]}, "tools", "leave them out"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "field required"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type", "'function'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "pattern"),
        ({"tools": [ADD] * 129}, "tools", "128"),
        ({"tool_choice": "required"}, "tool_choice", "'none' or 'auto'"),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice", "'none' or 'auto'"),
        ({"messages": [ASKED, SAID, ANSWER | {"tool_call_id": "b"}]}, "messages.2.tool_call_id", "no call"),
        ({"messages": [ASKED, SAID, {"role": "tool", "content": "1"}]}, "messages.2.tool_call_id", "goes with"),
        ({"messages": [ASKED | {"tool_calls": [CALL]}]}, "messages.0.tool_calls", "the assistant's"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "tool_calls"),
        (
            {"messages": [ASKED, SAID | {"tool_calls": [CALL | {"function": {"name": "add", "arguments": "[]"}}]}]},
            "messages.1.tool_calls.0.function.arguments", "a JSON object",
        ),
        ({"messages": [ASKED, SAID], "continue_final_message": True}, "messages", "ends in calls"),
    ],
)  # fmt: skip
def test_what_no_tool_can_be_is_refused(address, changed, param, says):
    body = {"model": "policy", "messages": [ASKED], "tools": [ADD]} | changed
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert says in error["message"]
