"""Calls of tools: reading them from text in pieces, and prompts that show tools under published chat templates."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

import pytest

from support.tokenizers import MARKS, TAGS, qwen2_style, tiny_agent
from support.tool_model import ADD, ASKED, CALLS, TEMPLATES, calling
from whet.chat import render
from whet.models.templates import tools_problem
from whet.tool_calls import Call, CallReader, read_calls

ONE = '<tool_call>\n{"name": "add", "arguments": {"a": 7}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        ("plain text \n", "plain text \n", []),
        (ONE, "", [Call("add", {"a": 7})]),
        (f" I add.\n\n{ONE}\n{ONE}\n", " I add.", [Call("add", {"a": 7})] * 2),
        (f"{ONE}\nDone.", "\nDone.", [Call("add", {"a": 7})]),
        ('<tool_call>{"name": "add", "arguments": {"x": {"y": ["é", null]}}}</tool_call>', "",
         [Call("add", {"x": {"y": ["é", None]}})]),
        ('<tool_call>{"name": "add", "arguments": {}}', '<tool_call>{"name": "add", "arguments": {}}', []),
        ("<tool_call>add(7)</tool_call>\n", "<tool_call>add(7)</tool_call>\n", []),
        ('<tool_call>["add"]</tool_call>', '<tool_call>["add"]</tool_call>', []),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>',
         '<tool_call>{"name": "", "arguments": {}}</tool_call>', []),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>',
         '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', []),
        ('<tool_call>{"name": "a", "arguments": {"x": "\\ud83d"}}</tool_call>',
         '<tool_call>{"name": "a", "arguments": {"x": "\\ud83d"}}</tool_call>', []),
        ('<tool_call>{"name": "a", "arguments": {"x": 1e999}}</tool_call>',
         '<tool_call>{"name": "a", "arguments": {"x": 1e999}}</tool_call>', []),
        (f"<tool_call>oh {ONE}", "<tool_call>oh", [Call("add", {"a": 7})]),
        (f"<tool_call>oh <tool_call>ah {ONE}", "<tool_call>oh <tool_call>ah", [Call("add", {"a": 7})]),
        ("a <tool_ b", "a <tool_ b", []),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "<tool_call>" + "[" * 100_000 + "</tool_call>", []),
    ],
)  # fmt: skip
def test_texts_and_calls_are_told_apart(text, said, calls):
    assert read_calls(text) == (said, calls)


@pytest.mark.parametrize("nested", ["[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900])
def test_arguments_too_deep_to_be_written_elsewhere_are_text(nested):
    text = f'<tool_call>{{"name": "add", "arguments": {{"x": {nested}}}}}</tool_call>'
    assert read_calls(text) == (text, [])


def test_reading_many_opening_marks_takes_time_in_proportion_to_the_text():
    def seconds(count):
        text = '<tool_call>{"name": "' * count + "</tool_call>"
        begin = time.process_time()
        assert read_calls(text) == (text, [])
        return time.process_time() - begin

    assert seconds(40_000) < 0.5  # 6 s where each mark is tried


def test_a_text_in_pieces_says_the_same():
    rng = random.Random(0)
    words = [ONE, "<tool_call>", "</tool_call>", "\n", " ", "text", "<", '{"name": "b", "arguments": {}}', "tool_call>"]
    for _ in range(400):
        text = "".join(rng.choices(words, k=8))
        reader, pieces, at = CallReader(), [], 0
        while at < len(text):
            size = rng.randint(1, 9)
            pieces += reader.add(text[at : at + size])
            at += size
        pieces += reader.end()
        said = "".join(piece for piece in pieces if isinstance(piece, str))
        assert (said, [piece for piece in pieces if isinstance(piece, Call)]) == read_calls(text)


def test_a_text_before_a_call_is_given_before_the_call_is_whole():
    reader = CallReader()
    assert reader.add("I add them.\n<tool") == ["I add them."]
    assert reader.add('_call>{"name": "add", "arguments"') == []
    assert reader.add(": {}}</tool_call>") == [Call("add", {})]


def published(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_a_prompt_with_tools_is_the_templates(name):
    tokenizer = qwen2_style(template=published(name))
    assert tools_problem(tokenizer) == ""
    messages, tools = calling("12")
    chat = [{"role": m["role"], "content": m["content"], **json.loads(m.get("more", "{}"))} for m in messages]
    text = tokenizer.apply_chat_template(chat, tools=[ADD], add_generation_prompt=True, tokenize=False)
    assert list(render(tokenizer, messages, tools=tools)) == tokenizer.encode(text, add_special_tokens=False)
    assert CALLS in text  # arguments stand in it as an object


@pytest.mark.parametrize(("make", "says"), [
    (tiny_agent, "does not show tools"),
    (lambda: qwen2_style(template=published("phi3")), "does not show tools"),
    (lambda: qwen2_style(template="{{ raise_exception('no ' + tools[0].function.name) }}"), "refuses tools"),
])  # fmt: skip
def test_a_template_without_tools_is_told(make, says):
    assert says in tools_problem(make())


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_no_text_of_tools_calls_and_answers_becomes_a_control_token(name):
    tokenizer = qwen2_style(template=published(name))
    controls = {token: tokenizer.convert_tokens_to_ids(token) for token in (*MARKS, *TAGS)}

    def count(text: str) -> Counter[int]:
        tool = json.loads(json.dumps(ADD))
        tool["function"] |= {
            "description": text,
            "parameters": {"type": "object", "properties": {text: {"enum": [text]}}},
        }
        made = {"id": text, "type": "function", "function": {"name": text, "arguments": {text: [text]}}}
        answer = {"tool_call_id": text, "name": text}
        messages = [
            ASKED,
            {"role": "assistant", "content": "", "more": json.dumps({"tool_calls": [made]})},
            {"role": "tool", "content": text, "more": json.dumps(answer)},
        ]
        ids = render(tokenizer, messages, tools=json.dumps([tool]))
        return Counter(index for index in ids if index in controls.values())

    assert count("".join(controls)) == count("apple")
