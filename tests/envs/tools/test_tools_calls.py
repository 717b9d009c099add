"""How a call is read: the published form, what JSON and literals mean, and what is refused."""

import pytest

from whet.envs.formats import PARSERS, write
from whet.envs.tools.calls import Argument, NoCall, Tool, ToolError, checked, read_call, split_call, written
from whet.trajectories.function_calls import FUNCTIONS

TOOLS = {
    tool.name: tool
    for tool in (
        Tool("today", "The date."),
        Tool(
            "set",
            "Sets.",
            (
                Argument("place", "string", "where"),
                Argument("count", "integer", "how many"),
                Argument("share", "number", "how much", is_required=False),
                Argument("names", "array", "who", is_required=False),
                Argument("value", "any", "what", is_required=False),
            ),
        ),
    )
}


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Action: today with Action Input: {}", ("today", "{}")),
        ("today with Action Input: {}", ("today", "{}")),  # as whet's parsers leave it
        ("Thought: I ask with care.\n\nAction: today with Action Input: {}\n", ("today", "{}")),
        ("Thought: so. Action: today with Action Input: {}", ("today", "{}")),
        ("Action:\ntoday with Action Input: {}", ("today", "{}")),
        ("Action: today\nwith Action Input:\n{}", ("today", "{}")),
        ("Action: a with Action Input: {}\nAction: b with Action Input: {}", ("b", "{}")),  # the last line
        ('Action: a with Action Input: {"x": "b with Action Input: {}"}', ("a", '{"x": "b with Action Input: {}"}')),
    ],
)
def test_the_call_is_on_the_last_line(text, call):
    assert split_call(text) == call


@pytest.mark.parametrize(
    "text",
    ["", "today", "Action: today", "Action: today with Action Input: {}\nObservation: 5", "x" * 20_001, "with with"],
)
def test_other_texts_hold_no_call(text):
    with pytest.raises(NoCall):
        split_call(text)


@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [
        ('{"place": "a", "count": 3}', {"place": "a", "count": 3}),
        ("{'place': 'a', 'count': '3'}", {"place": "a", "count": 3}),  # a literal, and a number as a text
        ('{"count": 3.0, "place": 7}', {"place": "7", "count": 3}),
        ('{"place": "a", "count": 1, "share": "0.5"}', {"place": "a", "count": 1, "share": 0.5}),
        ('{"place": "a", "count": 1, "names": "[1, [2]]"}', {"place": "a", "count": 1, "names": [1, [2]]}),
        ('{"place": "a", "count": 1, "names": null, "value": null}', {"place": "a", "count": 1, "value": None}),
        ("{'place': 'a', 'count': 1, 'value': (1, True)}", {"place": "a", "count": 1, "value": [1, True]}),
    ],
)
def test_arguments_as_the_tool_takes_them(inputs, arguments):
    assert read_call(f"set with Action Input: {inputs}", TOOLS).arguments == arguments


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fly with Action Input: {}", "Invalid action: 'fly'"),
        ("set with Action Input: {}", "needs the argument 'place'"),
        ('set with Action Input: {"place": "a", "count": 1.5}', "'count' has to be of the type integer"),
        ('set with Action Input: {"place": "a", "count": true}', "'count' has to be of the type integer"),
        ('set with Action Input: {"place": ["a"], "count": 1}', "'place' has to be of the type string"),
        ('set with Action Input: {"place": "a", "count": 1, "more": 2}', "no argument 'more'"),
        ("set with Action Input: [1]", "cannot be read"),
        ("set with Action Input: {place: a}", "cannot be read"),
        ("set with Action Input: {'place': __import__('os'), 'count': 1}", "cannot be read"),  # upstream runs this
        ('set with Action Input: {"place": "a", "count": 1e400}', "cannot be read"),
        ('set with Action Input: {"place": "a", "count": 1%s}' % ("0" * 5000), "cannot be read"),
        ('set with Action Input: {"place": "\\ud800", "count": 1}', "cannot be read"),
        ("set with Action Input: {'place': b'a', 'count': {1}}", "cannot be read"),
        ('set with Action Input: {"place": "a", "count": 1, "value": ' + "[" * 500 + "]" * 500 + "}", "cannot be read"),
        ("set with Action Input: " + "(" * 9000, "cannot be read"),
        ("set with Action Input: " + "-" * 9000 + "1", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text, says):
    with pytest.raises(ToolError, match=says):
        read_call(text, TOOLS)


def test_a_call_is_written_as_it_is_read():
    arguments = {"place": "Łódź", "count": 2, "names": ["a"], "value": None}
    call = read_call(written("set", arguments), TOOLS)
    assert (call.name, call.arguments) == ("set", arguments)
    assert checked(TOOLS["set"], arguments) == arguments


@pytest.mark.parametrize("format", ["react", "function_calling:sheet", "code_as_action:sheet", "tools:sheet"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_all_values", {}),
        ("update_range", {"start_position": "A1", "end_position": "B1", "values_list": [["a", 1.5]]}),
        ("get_value_by_formula", {"position_list": ["B2", "C3"], "operator": "SUM"}),  # two arguments are left out
        ("update_cell", {"position": "A1", "value": 'it\'s "so"'}),
    ],
)
def test_every_action_format_says_a_call(format, name, arguments):
    action = written(name, arguments)
    read = PARSERS.get(format)(write("I try.", action, format))
    assert (read.thought, read.action, read.problem) == ("I try.", action, "")


def test_a_call_that_no_tool_takes_is_for_the_environment_to_answer():
    read = PARSERS.get("function_calling:todo")
    reply = '{"thought": "", "function_name": "get_tasks", "arguments": {}}'
    assert read(reply).action == "get_tasks with Action Input: {}"
    assert read(reply.replace("get_tasks", "fly")).problem == "Invalid Action."
    assert set(FUNCTIONS["todo"]) > {"get_tasks", "finish"}
