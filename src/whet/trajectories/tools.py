"""An environment's actions as tools, for models that act by calls: schemas, and replies that call one.

The functions are those of `function_calls`. An environment without any has one tool, `act`, which takes the action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from whet.envs.formats import THOUGHT, Parsed, Parser, Writer
from whet.tool_calls import Call, function, read_calls, written_call
from whet.trajectories.function_calls import (
    FUNCTIONS,
    NUMBERS,
    Functions,
    action_of,
    called,
    placeholders,
    templates_of,
)
from whet.trajectories.tool_functions import ToolTemplate

ACT = "act"
"""The tool of environments without functions."""
ACTION = "action"
ACTS: Functions = {ACT: f"{{{ACTION}}}"}
NO_TOOL_CALL = "No tool is called: call one of the tools."
SEVERAL_CALLS = "Several tools are called: call one, and wait for its answer."
NO_SUCH_CALL = "No tool takes these arguments."


def tools_of(environment: str) -> list[dict[str, Any]]:
    """The tools of an environment, in OpenAI's form. Each description says the action that a call stands for."""
    if environment not in FUNCTIONS:
        text = {"type": "string", "description": "the action, as the rules describe it"}
        return [function(ACT, "Does an action.", {ACTION: text}, [ACTION])]
    tools = []
    for name, templates in FUNCTIONS[environment].items():
        if isinstance(templates, ToolTemplate):
            tools.append(function(name, templates.tool.says, templates.properties(), templates.required()))
            continue
        forms = [set(placeholders(template)) for template in templates_of(templates)]
        names = dict.fromkeys(found for template in templates_of(templates) for found in placeholders(template))
        properties = {each: {"type": "integer" if each in NUMBERS else "string"} for each in names}
        required = [each for each in names if all(each in form for form in forms)]
        tools.append(function(name, description_of(templates), properties, required))
    return tools


def description_of(templates: str | tuple[str, ...]) -> str:
    """The actions of a function, with its arguments in capitals: `Does "get ITEM".`"""
    said = [re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), template) for template in templates_of(templates)]
    return "Does " + ", or ".join(f'"{text}"' for text in said) + "."


def called_action(environment: str, name: str, arguments: Mapping[str, Any]) -> str:
    """The action of a call.

    Raises: ValueError where the environment has no such tool, or the arguments are not the tool's.
    """
    return _called_action(FUNCTIONS.get(environment, ACTS), Call(name, arguments))


def _called_action(functions: Functions, call: Call) -> str:
    """Arguments that are empty texts count as left out: a schema that lists all forms' arguments invites them."""
    return action_of(functions, call.name, {name: value for name, value in call.arguments.items() if value != ""})


def tools_text(environment: str) -> str:
    """The JSON list of an environment's tools, as `whet.chat.render` takes it."""
    return json.dumps(tools_of(environment), ensure_ascii=False)


def parser_of(functions: Functions) -> Parser:
    """A parser of replies that call one of these functions as a tool, once. The text around the call is the thought.

    A reply without a call, with several, or with one that no function takes, is answered, and nothing is done.
    """

    def parse(text: str) -> Parsed:
        thought, calls = read_calls(text)
        thought = thought.strip()
        if len(calls) != 1:
            return Parsed(thought, "", SEVERAL_CALLS if calls else NO_TOOL_CALL)
        try:
            return Parsed(thought, _called_action(functions, calls[0]))
        except ValueError:
            return Parsed(thought, "", NO_SUCH_CALL)

    return parse


def writer_of(functions: Functions, env: str) -> Writer:
    """A writer of replies that call one of these functions. It raises EnvError for an action without a function."""

    def write(thought: str, action: str) -> str:
        name, texts = called(functions, env, action)
        return "\n".join(filter(None, [thought, written_call(Call(name, _typed(texts)))]))

    return write


def _typed(texts: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as their schemas have them. A number with zeros before it stays a text, or they would be lost."""
    return {key: int(text) if key in NUMBERS and str(int(text)) == text else text for key, text in texts.items()}


def rules_for_tools(rules: str, example: str = THOUGHT) -> str:
    """An environment's rules without the form of a reply, which they end in: the template says how tools are called.

    Args:
        example: what the form begins with.
    """
    before, mark, _ = rules.rpartition(example)
    if not mark:
        return rules
    told = re.sub(r"[^.:\n]*:\s*$", "", before).rstrip()
    return f"{told}\n\nEach action is a call of a tool: call one, and wait for what it gives."


WEBSHOP_PARSER, WEBSHOP_WRITER = parser_of(FUNCTIONS["webshop"]), writer_of(FUNCTIONS["webshop"], "webshop")
ALFWORLD_PARSER, ALFWORLD_WRITER = parser_of(FUNCTIONS["alfworld"]), writer_of(FUNCTIONS["alfworld"], "alfworld")
SCIWORLD_PARSER, SCIWORLD_WRITER = parser_of(FUNCTIONS["sciworld"]), writer_of(FUNCTIONS["sciworld"], "sciworld")
BABYAI_PARSER, BABYAI_WRITER = parser_of(FUNCTIONS["babyai"]), writer_of(FUNCTIONS["babyai"], "babyai")
TEXTCRAFT_PARSER, TEXTCRAFT_WRITER = parser_of(FUNCTIONS["textcraft"]), writer_of(FUNCTIONS["textcraft"], "textcraft")
MAZE_PARSER, MAZE_WRITER = parser_of(FUNCTIONS["maze"]), writer_of(FUNCTIONS["maze"], "maze")
WORDLE_PARSER, WORDLE_WRITER = parser_of(FUNCTIONS["wordle"]), writer_of(FUNCTIONS["wordle"], "wordle")
WEATHER_PARSER, WEATHER_WRITER = parser_of(FUNCTIONS["weather"]), writer_of(FUNCTIONS["weather"], "weather")
MOVIE_PARSER, MOVIE_WRITER = parser_of(FUNCTIONS["movie"]), writer_of(FUNCTIONS["movie"], "movie")
ACADEMIA_PARSER, ACADEMIA_WRITER = parser_of(FUNCTIONS["academia"]), writer_of(FUNCTIONS["academia"], "academia")
SHEET_PARSER, SHEET_WRITER = parser_of(FUNCTIONS["sheet"]), writer_of(FUNCTIONS["sheet"], "sheet")
TODO_PARSER, TODO_WRITER = parser_of(FUNCTIONS["todo"]), writer_of(FUNCTIONS["todo"], "todo")
ACT_PARSER, ACT_WRITER = parser_of(ACTS), writer_of(ACTS, "an environment")
