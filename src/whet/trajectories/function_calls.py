"""Replies that call a function: `{"thought": ..., "function_name": ..., "arguments": {...}}`.

Each call stands for a textual action. An environment's functions are data: a name, and a template such as
`go to {object}`. Those of environments of tools are in `tool_functions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from whet.envs.formats import Parsed, Parser, Writer, without_end
from whet.envs.protocol import EnvError
from whet.trajectories.tool_functions import ACADEMIA, MOVIE, SHEET, TODO, WEATHER, ToolTemplate

INVALID_ACTION = "Invalid Action."
"""The published clients answer this, then repeat the observation, where a reply cannot be read."""
FIELDS = {"thought", "function_name", "arguments"}
MAX_CHARACTERS = 200_000
"""Of a reply; a longer one is not read."""
Functions = Mapping[str, str | tuple[str, ...]]
"""Templates of the action by the function's name; more than one where arguments may be left out."""
NUMBERS = ("duration", "option")
"""Arguments that are digits, such as the 1 in `wait1`."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

WEBSHOP: Functions = {"search": "search[{keywords}]", "click": "click[{item}]"}
ALFWORLD: Functions = {
    "goto": "go to {recep}", "take": "take {obj} from {recep}", "put": "put {obj} in/on {recep}",
    "toggle": "toggle {obj}", "open": "open {recep}", "close": "close {recep}", "heat": "heat {obj} with {recep}",
    "cool": "cool {obj} with {recep}", "clean": "clean {obj} with {recep}",
    "examine": ("examine {recep} with {obj}", "examine {recep}", "examine {obj}"), "inventory": "inventory",
    "look": "look", "use": "use {obj}",
}  # fmt: skip
SCIWORLD: Functions = {
    "open": "open {obj}", "close": "close {obj}", "activate": "activate {obj}", "deactivate": "deactivate {obj}",
    "connect": "connect {obj1} to {obj2}", "disconnect": "disconnect {obj}",
    "use": ("use {tool} on {obj}", "use {tool}"), "lookaround": "look around", "lookat": "look at {obj}",
    "read": "read {obj}", "move": "move {obj} to {container}", "pickup": "pick up {obj}", "drop": "drop {obj}",
    "pour": "pour {liq} into {container}", "dunk": "dunk {container} in {liq}", "mix": "mix {container}",
    "goto": "go to {loc}", "eat": "eat {food}", "flush": "flush {obj}", "focus": "focus on {obj}",
    "wait": ("wait{duration}", "wait"), "choose": "{option}", "examine": "examine {obj}", "task": "task",
    "inventory": "inventory",
}  # fmt: skip
BABYAI: Functions = {
    "turn_left": "turn left", "turn_right": "turn right", "move_forward": "move forward", "go_to": "go to {object}",
    "pickup": "pickup {object}", "pick_up": "pick up {object}", "go_through": "go through {door}",
    "toggle_and_go_through": "toggle and go through {door}", "toggle": "toggle", "drop": "drop",
    "check_available_actions": "check available actions",
}  # fmt: skip
TEXTCRAFT: Functions = {
    "craft": "craft {target} using {ingredients}",
    "get": "get {item}",
    "inventory": "inventory",
}
MAZE: Functions = {"move": "move {direction}"}
WORDLE: Functions = {"guess": "{letters}"}


def parser_of(functions: Functions) -> Parser:
    """A parser of calls of these functions.

    It reads from the first `{` of a reply to its last `}`, as the published clients do, so it ignores a fence around.
    """

    def parse(text: str) -> Parsed:
        thought = ""
        try:
            call = _call(text)
            thought = _whole(call["thought"])
            return Parsed(thought, action_of(functions, _whole(call["function_name"]), call["arguments"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return Parsed(thought, "", INVALID_ACTION, shows_again=True)

    return parse


def writer_of(functions: Functions, env: str) -> Writer:
    """A writer of calls of these functions. It raises EnvError for an action without a function."""

    def write(thought: str, action: str) -> str:
        name, arguments = called(functions, env, action)
        reply = {"thought": thought, "function_name": name, "arguments": arguments}
        return json.dumps(reply, ensure_ascii=False)

    return write


def called(functions: Functions, env: str, action: str) -> tuple[str, dict[str, Any]]:
    """The first function that gives this action, and its arguments.

    Raises: EnvError where there is none.
    """
    for name, templates in functions.items():
        for template in templates_of(templates):
            arguments = match(template, action)
            if arguments is not None:
                return name, arguments
    raise EnvError(
        f"no function of {env} says {action[:100]!r} ({', '.join(functions)}): convert with a table that has one"
    )


def action_of(functions: Functions, name: str, arguments: Any) -> str:
    """The action of a call.

    Raises: ValueError where there is no such function, or the arguments are not the function's.
    """
    if name not in functions:
        raise ValueError("no such function")
    if isinstance(template := functions[name], ToolTemplate):
        return template.action(arguments)
    return fill(fitting(templates_of(functions[name]), arguments), arguments)


def placeholders(template: str) -> list[str]:
    """The names of a template's arguments, in order."""
    return _PLACEHOLDER.findall(template)


def fill(template: str, arguments: Mapping[str, Any]) -> str:
    """The action of a call.

    Raises: ValueError where the arguments are not those of the template, each a text or a whole number.
    """
    fitting((template,), arguments)
    return _PLACEHOLDER.sub(lambda placeholder: _value(placeholder[1], arguments[placeholder[1]]), template)


def match(template: str, action: str) -> dict[str, Any] | None:
    """The arguments with which the template gives this action. None: there are none.

    The first place of a text that stands between two arguments separates them.
    """
    if isinstance(template, ToolTemplate):
        return template.arguments(action)
    begin, *rest = _PLACEHOLDER.split(template)
    if not action.startswith(begin):
        return None
    left, arguments = action[len(begin) :], {}
    for name, after in zip(rest[::2], rest[1::2], strict=True):
        is_last = name == rest[-2]
        place = len(left) - len(after) if is_last else left.find(after)
        if place < 1 or left[place : place + len(after)] != after:
            return None
        arguments[name], left = left[:place], left[place + len(after) :]
    if any(name in NUMBERS and not _is_number(value) for name, value in arguments.items()):
        return None
    return arguments if fill(template, arguments) == action else None


def _call(text: str) -> Mapping[str, Any]:
    text = without_end(text)
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin or end - begin > MAX_CHARACTERS:
        raise ValueError("no object, or one that is too long")
    # Line breaks inside of a text are taken, which JSON forbids and models write.
    value = json.loads(text[begin : end + 1], strict=False, object_pairs_hook=_once, parse_constant=_refuse)
    if not isinstance(value, dict) or set(value) != FIELDS:
        raise ValueError(f"expected an object of {', '.join(sorted(FIELDS))}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field stands twice")
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON has")


def _whole(value: Any) -> str:
    """A text without half characters, which JSON's escapes can make."""
    if not isinstance(value, str):
        raise ValueError("expected a text")
    value.encode()  # UnicodeEncodeError is a ValueError
    return value


def _value(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _whole(value)
    if name in NUMBERS and not _is_number(text):
        raise ValueError(f"{name} is a number")
    return text


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit()


def templates_of(templates: str | tuple[str, ...]) -> tuple[str, ...]:
    """The templates of one function."""
    return (templates,) if isinstance(templates, str) else templates


def fitting(templates: tuple[str, ...], arguments: Any) -> str:
    """The template with just these arguments.

    Raises: ValueError where there is none.
    """
    if isinstance(arguments, dict):
        for template in templates:
            if set(placeholders(template)) == set(arguments):
                return template
    raise ValueError("not the function's arguments")


FUNCTIONS: Mapping[str, Functions] = {
    "webshop": WEBSHOP,
    "alfworld": ALFWORLD,
    "sciworld": SCIWORLD,
    "babyai": BABYAI,
    "textcraft": TEXTCRAFT,
    "maze": MAZE,
    "wordle": WORDLE,
    "weather": WEATHER,
    "movie": MOVIE,
    "academia": ACADEMIA,
    "sheet": SHEET,
    "todo": TODO,
}
"""By environment."""


def signatures(functions: Functions) -> str:
    """A line for each function: its name and arguments."""
    lines = []
    for name, templates in functions.items():
        taken = (", ".join(placeholders(template)) for template in templates_of(templates))
        lines.append("- " + " or ".join(f"`{name}({names})`" for names in taken))
    return "\n".join(lines)


WEBSHOP_PARSER, WEBSHOP_WRITER = parser_of(WEBSHOP), writer_of(WEBSHOP, "webshop")
ALFWORLD_PARSER, ALFWORLD_WRITER = parser_of(ALFWORLD), writer_of(ALFWORLD, "alfworld")
SCIWORLD_PARSER, SCIWORLD_WRITER = parser_of(SCIWORLD), writer_of(SCIWORLD, "sciworld")
BABYAI_PARSER, BABYAI_WRITER = parser_of(BABYAI), writer_of(BABYAI, "babyai")
TEXTCRAFT_PARSER, TEXTCRAFT_WRITER = parser_of(TEXTCRAFT), writer_of(TEXTCRAFT, "textcraft")
MAZE_PARSER, MAZE_WRITER = parser_of(MAZE), writer_of(MAZE, "maze")
WORDLE_PARSER, WORDLE_WRITER = parser_of(WORDLE), writer_of(WORDLE, "wordle")
WEATHER_PARSER, WEATHER_WRITER = parser_of(WEATHER), writer_of(WEATHER, "weather")
MOVIE_PARSER, MOVIE_WRITER = parser_of(MOVIE), writer_of(MOVIE, "movie")
ACADEMIA_PARSER, ACADEMIA_WRITER = parser_of(ACADEMIA), writer_of(ACADEMIA, "academia")
SHEET_PARSER, SHEET_WRITER = parser_of(SHEET), writer_of(SHEET, "sheet")
TODO_PARSER, TODO_WRITER = parser_of(TODO), writer_of(TODO, "todo")
