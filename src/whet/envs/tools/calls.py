"""Calls of tools as the agent writes them: `NAME with Action Input: {...}`, on one line, after `Action:`.

The form is AgentGym's. Its servers run the text between the braces as Python; here it is read as JSON or as a literal.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.types import in_brief, is_deeper, is_whole

Arguments = Mapping[str, Any]
MARK = "with Action Input:"
FORMAT_ERROR = (
    'Format error: reply with "Action: NAME with Action Input: {...}", the action on one line, as the last one.'
)
MAX_CHARACTERS = 20_000
"""Of a call; a longer one is not read."""
MAX_DEPTH = 6
MAX_NUMBER = 1e15
_MARK = re.compile(r"with\s*Action Input:\s*")
TYPES = ("string", "number", "integer", "array", "any")


class NoCall(Exception):
    """The text holds no call."""


class ToolError(Exception):
    """A call cannot be done. The text is what the agent is told."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a tool."""

    name: str
    type: str
    """One of `TYPES`."""
    says: str
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as rules and schemas describe it."""

    name: str
    says: str
    arguments: tuple[Argument, ...] = ()

    def described(self) -> str:
        """Lines for the rules: the tool with its arguments."""
        names = ", ".join(each.name for each in self.arguments)
        lines = [f"- `{self.name}({names})`: {self.says}"]
        for each in self.arguments:
            optional = "" if each.is_required else "; may be left out"
            lines.append(f"  - `{each.name}` ({each.type}{optional}): {each.says}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call, with its arguments as the tool takes them."""

    name: str
    arguments: Arguments

    @property
    def text(self) -> str:
        return written(self.name, self.arguments)


def written(name: str, arguments: Arguments) -> str:
    """A call as an action."""
    return f"{name} {MARK} {json.dumps(arguments, ensure_ascii=False)}"


def described(tools: Sequence[Tool]) -> str:
    """The list of tools for the rules."""
    return "\n".join(tool.described() for tool in tools)


def split_call(text: str) -> tuple[str, str]:
    """The tool's name and the text of its arguments.

    `Action:` may stand before the name or be left out, as whet's parsers take it off. The call is on the last line.

    Raises: NoCall where the text holds none.
    """
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise NoCall
    last_line = text.rfind("\n") + 1
    for match in _MARK.finditer(text):
        if match.end() >= last_line:
            line = text[: match.start()].rstrip().rpartition("\n")[2]
            before, mark, after = line.partition("Action:")
            return (after if mark else before).strip(), text[match.end() :]
    raise NoCall


def read_call(text: str, tools: Mapping[str, Tool]) -> ToolCall:
    """The call in an agent's text.

    Raises: NoCall where there is none. ToolError where no tool has this name, or it does not take these arguments.
    """
    name, inputs = split_call(text)
    if name not in tools:
        raise ToolError(f"Invalid action: {in_brief(name)}. Choose one of: {', '.join(tools)}.")
    return ToolCall(name, checked(tools[name], _read_arguments(inputs)))


def checked(tool: Tool, given: Arguments) -> Arguments:
    """The arguments as the tool takes them, in its order.

    Raises: ToolError where one is missing, unknown or of another type.
    """
    known = {each.name: each for each in tool.arguments}
    if unknown := [name for name in given if name not in known]:
        raise ToolError(f"{tool.name} has no argument {in_brief(unknown[0])}. It takes: {', '.join(known) or 'none'}.")
    arguments: dict[str, Any] = {}
    for name, argument in known.items():
        value = given.get(name)
        if value is None and (argument.is_required or name in given) and argument.type != "any":
            if argument.is_required:
                raise ToolError(f"{tool.name} needs the argument {name!r} ({argument.type}).")
            continue
        if name not in given:
            if argument.is_required:
                raise ToolError(f"{tool.name} needs the argument {name!r}.")
            continue
        arguments[name] = _of_type(argument, value)
    return arguments


def _read_arguments(text: str) -> Arguments:
    value = _literal(text)
    if not isinstance(value, dict):
        raise ToolError("The action input cannot be read: write a JSON object with the arguments, such as {}.")
    return value


def _literal(text: str) -> Any:
    """The value of JSON or of a Python literal. None: it is neither, or holds what JSON has not."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings(action="ignore"):  # of escapes such as "\\d"
                value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    try:
        return plain_value(value)
    except ValueError:
        return None


def plain_value(value: Any) -> Any:
    """A value of JSON, with lists for tuples.

    Raises: ValueError for what JSON has not, for huge numbers, deep values and half characters.
    """
    if is_deeper(value, MAX_DEPTH):
        raise ValueError("a deep value")
    return _plain(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not is_whole(value):
            raise ValueError("half a character")
        return value
    if isinstance(value, int | float):
        if not abs(value) <= MAX_NUMBER:  # also what is no number
            raise ValueError("a huge number")
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_plain(key): _plain(each) for key, each in value.items()}
    raise ValueError("no value of JSON")


def _of_type(argument: Argument, value: Any) -> Any:
    """The value as the tool takes it: numbers and lists may also come as texts, and texts as numbers.

    Raises: ToolError where it has another type.
    """
    wanted = argument.type
    if wanted == "any":
        return value
    if wanted == "string" and isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, str) and wanted in ("number", "integer", "array"):
        value = _literal(value.strip())
    if wanted == "array" and isinstance(value, list):
        return value
    if wanted in ("number", "integer") and isinstance(value, int | float) and not isinstance(value, bool):
        if wanted == "number":
            return value
        if math.floor(value) == value:
            return int(value)
    raise ToolError(f"The argument {argument.name!r} has to be of the type {wanted}, and is {in_brief(value)}.")
