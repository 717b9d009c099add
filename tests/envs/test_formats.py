"""Action formats: the published clients' cases to the letter, writing and reading as inverses, hostile replies."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.envs.formats import ONLY_ONE, PARSERS, WRITERS, Parsed, after_action, cleaned, plain, react, write
from whet.envs.protocol import EnvError
from whet.registry import UnknownName
from whet.tasks.files import DataError
from whet.trajectories.conversion import convert
from whet.trajectories.files import read_trajectories
from whet.trajectories.function_calls import INVALID_ACTION, fill, match, parser_of
from whet.trajectories.records import Message, Trajectory


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        ("Action: a\nAction: b", "Action: a\n", "b"),
        ("Thought:\nI think\n\nAction:\nsearch[red shoes]", "I think", "search[red shoes]"),
        ("just text", "just text", ""),
        ("search[x]", "", "search[x]"),
        ("Thought: a Thought: b\nAction: go", "a", "go"),
        ("Thought:\nuse Action: word\nAction:\nclick[buy now]", "use Action: word", "click[buy now]"),
        ("so click[x] then", "", "so click[x] then"),
        ("Thought:\nnow\n\nAction:\nopen door</s>", "now", "open door"),
        ("", "", ""),
        ("Action:", "", ""),
        ("  no mark Action: go ", "  no mark ", "go"),  # a thought without its mark keeps its spaces
    ],
)
def test_react_by_the_published_cases(text, thought, action):
    assert react(text) == Parsed(thought, action)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Action: craft 4 oak planks using 1 oak log.", "craft 4 oak planks using 1 oak log"),
        ("Action: get 3 oak_log", "get 3 oaklog"),  # so the game cannot find it
        ("Action: [go to red ball 1]", "go to red ball 1"),
        ("no mark", ""),
        ("Action:   \n  get   1  stone ", "get 1 stone"),
        ("Action: get 1 stone\nand then more", "get 1 stone"),
        ("Thought:\nx\n\nAction:\nmove forward\n", "move forward"),
        ("Action: a Action: b", "a Action b"),  # one line is one match
        ("Action:\n\nAction: b", "Action b"),
        ("Action: get 1 stone</s>", "get 1 stones"),  # this client takes nothing off the end
        ("Action:", ""),
    ],
)
def test_cleaned_by_the_published_cases(text, action):
    parsed = cleaned(text)
    assert (parsed.action, parsed.problem) == (action, "")


def test_two_actions_are_answered_and_not_sent():
    parsed = cleaned("Thought: hm\nAction: get 1 stone\nAction: inventory")
    assert (parsed.action, parsed.problem, parsed.thought) == ("", ONLY_ONE, "hm")
    assert parsed.answer("You see a wall.") == ONLY_ONE


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought:\nup it is\n\nAction:\nmove up\n", "move up"),
        ("move left", "move left"),
        ("Action: move up\nAction: move down", "move up"),  # the second piece, not the last
        ("Action:\nmove left</s>", "move left"),  # the published client sends "move lef"
        ("Action:\nmove left </s>", "move left"),
        ("Action:\nh e l l o\nor so", "h e l l o\nor so"),
        ("", ""),
    ],
)
def test_after_action_takes_the_second_piece(text, action):
    assert after_action(text).action == action
    assert not after_action(text).problem


def test_plain_is_the_whole_text():
    assert plain("  Thought: x\nAction: y ") == Parsed("", "Thought: x\nAction: y")


CALL = '{"thought": "to the key", "function_name": "go_to", "arguments": {"object": "red key 1"}}'


@pytest.mark.parametrize(
    "text", [CALL, f"```json\n{CALL}\n```", f"Sure: {CALL}</s>", CALL.replace("to the", "to\nthe")]
)
def test_a_call_is_an_action(text):
    parsed = PARSERS.get("function_calling:babyai")(text)
    assert (parsed.action, parsed.problem) == ("go to red key 1", "")
    assert parsed.thought.replace("\n", " ") == "to the key"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "go to red key 1",
        "{",
        "}{",
        CALL[:-1],
        "{" * 1000,
        '{"a":' * 50_000,
        "{" + "[" * 150_000 + "}",
        CALL.replace("go_to", "fly_to"),
        CALL.replace('"object"', '"door"'),
        CALL.replace('"red key 1"', "null"),
        CALL.replace('"red key 1"', "true"),
        CALL.replace('"red key 1"', '["red key 1"]'),
        CALL.replace('"red key 1"', "NaN"),
        CALL.replace('"red key 1"', "1" * 5000),
        CALL.replace("red key 1", "\\ud800"),
        CALL.replace("to the key", "\\ud800"),
        CALL.replace('"to the key"', "7"),
        CALL.replace('"go_to"', "[]"),
        CALL.replace('"go_to"', "{}"),
        CALL.replace('{"object": "red key 1"}', "null"),
        CALL.replace('{"object": "red key 1"}', "{}"),
        CALL.replace('"red key 1"', '"red key 1", "object": "x"'),
        CALL.replace('"red key 1"', '"red key 1", "more": "x"'),
        CALL.replace('"thought"', '"reason"'),
        "__import__('os').system('true')",
    ],
)
def test_what_is_no_call_is_an_invalid_action(text):
    parsed = PARSERS.get("function_calling:babyai")(text)
    assert (parsed.action, parsed.problem) == ("", INVALID_ACTION)
    assert parsed.answer("You see a wall.") == "Invalid Action.\n\nYou see a wall."


def test_templates_are_data_and_never_formatted():
    assert (
        fill("put {obj} in/on {recep}", {"obj": "{recep}", "recep": "{0.__class__}"})
        == "put {recep} in/on {0.__class__}"
    )
    assert match("put {obj} in/on {recep}", "put mug 1 in/on desk 2") == {"obj": "mug 1", "recep": "desk 2"}
    assert match("go to {place}", "go to ") is None
    assert match("look", "look around") is None
    whole_number = parser_of({"wait": "wait{duration}"})
    assert whole_number('{"thought": "", "function_name": "wait", "arguments": {"duration": 1}}').action == "wait1"


def test_a_function_may_have_more_than_one_template():
    for action in ("use thermometer on water", "use stove", "wait1", "wait", "3", "task", "look around", "drop cup"):
        text = write("so", action, "function_calling:sciworld")
        assert PARSERS.get("function_calling:sciworld")(text) == Parsed("so", action)
    with pytest.raises(EnvError, match="no function of sciworld says 'dance'"):
        write("so", "dance", "function_calling:sciworld")


HOSTILE = {
    "marks": "Action:" * 400_000,
    "lines": "Action:\n" * 300_000,
    "spaces": "Action:" + " \n" * 1_000_000,
    "thoughts": "Thought:" * 300_000,
    "odd": "Action: " + "_" * 3_000_000,
    "braces": "{" * 2_000_000,
    "halves": "\ud800Action: \udfff" * 1000,
    "names": "{" + ",".join(f'"k{n}":1' for n in range(18_000)) + ',"k1":2}',
    "nul": "\0" * 1_000_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_any_reply_is_read_in_time(kind):
    for entry in PARSERS:
        begun = time.process_time()
        parsed = entry.make()(HOSTILE[kind])
        assert isinstance(parsed.action, str)
        assert time.process_time() - begun < 1, entry.name


def test_every_format_is_read_and_written():
    assert PARSERS.names() == WRITERS.names()
    with pytest.raises(UnknownName, match="did you mean 'react'"):
        PARSERS.get("reactt")


WORDS = (
    st.text(st.characters(codec="utf-8")).map(str.strip).filter(lambda t: "Action:" not in t and "Thought:" not in t)
)
ORDINARY = WORDS.filter(lambda t: not t.endswith("</s>"))


@given(ORDINARY, ORDINARY)
@settings(max_examples=200)
def test_what_is_written_reads_back(thought, action):
    for name in ("react", "after_action"):
        assert PARSERS.get(name)(write(thought, action, name)) == Parsed(thought, action)
    assert plain(write("", action, "plain")) == Parsed("", action)
    guess = write(thought, action, "function_calling:wordle") if action else ""
    assert not action or PARSERS.get("function_calling:wordle")(guess) == Parsed(thought, action)


@given(ORDINARY, st.text("ab c,9", max_size=20).map(lambda text: " ".join(text.split())))
def test_what_is_written_cleanly_reads_back(thought, action):
    assert cleaned(write(thought, action, "cleaned")) == Parsed(thought, action)


PARTS = st.sampled_from(
    ["Action:", "Thought:", "\n", " ", "go to", "_", "</s>", "search[x]", "\r", "\u2028", "Action", ":"]
)


@given(st.lists(PARTS, max_size=9).map("".join))
@settings(max_examples=500)
def test_parsers_agree_with_what_is_obvious(text):
    found = re.findall(r"Action:\s*(.*?)(?=\n|$)", text, re.DOTALL)
    kept = "".join(each for each in "".join(found[:1]) if each in " ," or (each.isascii() and each.isalnum()))
    expected = ("", ONLY_ONE) if len(found) > 1 else (" ".join(kept.split()), "")
    assert (cleaned(text).action, cleaned(text).problem) == expected
    pieces = (text[:-4] if text.endswith("</s>") else text).split("Action:")
    assert after_action(text).action == pieces[min(1, len(pieces) - 1)].strip()
    if len(pieces) > 1:
        assert react(text).action == pieces[-1].strip()


@given(st.dictionaries(st.just("object"), st.text(st.characters(codec="utf-8"), min_size=1), min_size=1))
def test_a_template_matches_what_it_fills(arguments):
    assert match("go to {object}", fill("go to {object}", arguments)) == arguments


@pytest.mark.parametrize("format", ["function_calling", "code_as_action"])
@pytest.mark.parametrize(
    ("name", "env", "num_converted"),
    [("lmrlgym_maze", "maze", 141), ("textcraft", "textcraft", 244), ("babyai", "babyai", 473)],
)
def test_published_trajectories_are_converted(name, env, num_converted, format, data_folder):
    found = read_trajectories(data_folder / f"agentgym/AgentTraj-L/{name}_train.json")
    read, read_call = PARSERS.get("cleaned"), PARSERS.get(f"{format}:{env}")
    converted = 0
    for each in found:
        try:
            calls = convert(each, f"{format}:{env}", source="cleaned")
        except DataError:
            continue
        converted += 1
        assert [read_call(text).action for text in calls.replies()] == [read(text).action for text in each.replies()]
        assert [read_call(text).thought for text in calls.replies()] == [
            read(text).thought.strip() for text in each.replies()
        ]
        assert calls.observations() == each.observations()
    assert converted == num_converted


def test_trajectories_are_converted_and_back():
    replies = ["Thought:\nsee the key\n\nAction:\ngo to red key 1", "Thought:\ntake it\n\nAction:\npick up red key 1"]
    says = ["Rules.", "OK.", "A key.", replies[0], "Near it.", replies[1], "Done."]
    messages = tuple(Message("gpt" if n % 2 else "human", text) for n, text in enumerate(says))
    one = Trajectory(item_id="babyai_1", messages=messages)
    calls = convert(one, "function_calling:babyai", rules="Call functions.")
    assert calls.messages[0].text == "Call functions."
    assert calls.messages[1].text == "OK."
    assert json.loads(calls.messages[3].text)["arguments"] == {"object": "red key 1"}
    assert convert(calls, "react", source="function_calling:babyai", rules="Rules.") == one
    with pytest.raises(DataError, match="babyai_1, message 3: no function of maze says 'go to red key 1'"):
        convert(one, "function_calling:maze")
    with pytest.raises(DataError, match="message 3: no function_calling:babyai reply"):
        convert(one, "react", source="function_calling:babyai")
    odd = Trajectory(item_id="babyai_1", messages=(*messages[:3], Message("gpt", "Action: go_to")))
    with pytest.raises(DataError, match="message 3: cleaned cannot say 'go_to'"):
        convert(odd, "cleaned")
