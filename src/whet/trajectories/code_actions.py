"""Replies that are code: a fenced block of Python with a thought in comments and one call of a known function.

The functions are those of `function_calls`. The code is read, and never run: a call's arguments are literals.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from typing import Any

from whet.envs.formats import Parsed, Parser, Writer, without_end
from whet.trajectories.function_calls import (
    ALFWORLD,
    BABYAI,
    INVALID_ACTION,
    MAZE,
    SCIWORLD,
    TEXTCRAFT,
    WEBSHOP,
    WORDLE,
    Functions,
    action_of,
    called,
    placeholders,
    templates_of,
)
from whet.trajectories.tool_functions import ACADEMIA, MOVIE, SHEET, TODO, WEATHER, ToolTemplate

FENCE = "```"
MAX_CHARACTERS = 20_000
"""Of a reply; a longer one is not read."""


def parser_of(functions: Functions) -> Parser:
    """A parser of code that calls one of these functions. As the published clients do, it reads code without a fence
    too, and no text around the fence."""

    def parse(text: str) -> Parsed:
        code = _unfenced(without_end(text))
        thought = ""
        try:
            name, positional, named = _call(code)
            thought = _comments(code)
            names = placeholders(templates_of(functions[name])[0])  # the first template has all arguments
            arguments = dict(zip(names, positional, strict=False)) | named
            if len(arguments) < len(positional) + len(named):
                raise ValueError("an argument too many, or twice")
            return Parsed(thought, action_of(functions, name, arguments))
        except (ValueError, KeyError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
            return Parsed(thought, "", INVALID_ACTION, shows_again=True)

    return parse


def writer_of(functions: Functions, env: str) -> Writer:
    """A writer of code that calls one of these functions. It raises EnvError for an action without a function."""

    def write(thought: str, action: str) -> str:
        name, arguments = called(functions, env, action)
        lines = thought.replace("\0", "").splitlines()  # code cannot hold a NUL
        comments = [f"# {line}" if line else "#" for line in lines]
        is_named = isinstance(functions[name], ToolTemplate)  # a tool's arguments may be left out
        values = [f"{key}={value!r}" if is_named else repr(value) for key, value in arguments.items()]
        code = f"{name}({', '.join(values)})"
        return "\n".join([f"{FENCE}python", *comments, code, FENCE])

    return write


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith(FENCE):
        text = text.partition("\n")[2]
    if text.endswith(FENCE):
        text = text.rpartition("\n")[0]
    return text


def _call(code: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The function's name, and the literals that it is given by position and by name.

    Raises: ValueError, SyntaxError, TypeError, RecursionError, MemoryError where the code is anything else.
    """
    if len(code) > MAX_CHARACTERS:
        raise ValueError("too long")
    with warnings.catch_warnings(action="ignore"):  # of escapes such as "\\d"
        call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("expected one call of a function")
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg is not None}
    if len(named) < len(call.keywords):
        raise ValueError("an argument twice, or of a mapping")
    return call.func.id, [ast.literal_eval(argument) for argument in call.args], named


def _comments(code: str) -> str:
    """The text of the comments, a line each."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = [token.string[1:].removeprefix(" ") for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(comments).strip()


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
