"""Calls of tools: how a model's text is read as calls, and how a tool is described.

Read is the form of Qwen's and Hermes' models: `<tool_call>`, a JSON object of `name` and `arguments`, `</tool_call>`.
A text between these marks that is no such object stays text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.types import is_deeper, is_whole

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_DEPTH = 50
"""Levels of objects and lists in a call's arguments."""
TOOL = "tool"
"""The role of a tool's answer in a chat."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, as a model wrote it."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def json(self) -> str:
        """The arguments as JSON, as OpenAI's clients get them."""
        return json.dumps(self.arguments, ensure_ascii=False)


class CallReader:
    """Reads a text that comes in pieces. It gives texts and calls in order, as soon as they are certain.

    White space around calls belongs to their form and is dropped. A text without calls comes as it is.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self._held = ""
        """Text that may belong to a call."""
        self._space = ""
        """White space before it, which is dropped if a call follows."""

    def add(self, text: str) -> list[str | Call]:
        """Reads on. Returns what has become certain; neighbouring texts may come in one."""
        held, place = self._held + text, 0
        pieces: list[str | Call] = []
        while (start := held.find(OPEN, place)) >= 0:
            pieces += self._text(held[place:start])
            if (end := held.find(CLOSE, start)) < 0:
                self._held = held[start:]
                return pieces
            call = read_call(held[start + len(OPEN) : end])
            if call is None:  # of several opening marks, the first and the last one are read: all would take n^2
                last = held.rfind(OPEN, start, end)
                place = last if last > start else start + len(OPEN)
                pieces += self._text(held[start:place])
                continue
            pieces.append(call)
            self.num_calls += 1
            self._space, place = "", end + len(CLOSE)
        self._held = held[place:]
        num_held = overlap(self._held, OPEN)
        certain = len(self._held) - num_held
        pieces += self._text(self._held[:certain])
        self._held = self._held[certain:]
        return pieces

    def end(self) -> list[str | Call]:
        """The rest: a call that was not closed is text."""
        pieces = self._text(self._held)
        rest, self._held, self._space = self._space, "", ""
        return [*pieces, *([rest] if rest and not self.num_calls else [])]

    def _text(self, text: str) -> list[str | Call]:
        whole = self._space + text
        certain = whole.rstrip()
        self._space = whole[len(certain) :] if certain else whole
        return [certain] if certain else []


def read_calls(text: str) -> tuple[str, list[Call]]:
    """The text around the calls of a whole reply, and the calls."""
    reader = CallReader()
    pieces = [*reader.add(text), *reader.end()]
    return (
        "".join(piece for piece in pieces if isinstance(piece, str)),
        [piece for piece in pieces if isinstance(piece, Call)],
    )


def read_call(text: str) -> Call | None:
    """The call that a JSON object says.

    None: it is none, is nested too deeply, or holds half a character or a number that JSON lacks.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
            return None
        call = Call(value["name"], value["arguments"])
        is_call = isinstance(call.name, str) and bool(call.name) and isinstance(call.arguments, dict)
        is_call = is_call and not is_deeper(call.arguments, MAX_DEPTH)
        return call if is_call and is_whole(call.name + call.json) else None
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(number: str) -> float:
    """Raises: ValueError where no float is so large: it would be written as `Infinity`, which is no JSON."""
    if math.isinf(value := float(number)):
        raise ValueError(number[:60])
    return value


def has_call(text: str) -> bool:
    """Whether a whole reply calls a tool, so that what follows it is a tool's answer."""
    return bool(read_calls(text)[1])


def written_call(call: Call) -> str:
    """A call as a model writes it."""
    value = {"name": call.name, "arguments": call.arguments}
    return f"{OPEN}\n{json.dumps(value, ensure_ascii=False)}\n{CLOSE}"


def overlap(text: str, mark: str) -> int:
    """Characters at the end of a text that may begin a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


def function(name: str, description: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """A tool in OpenAI's form.

    Args:
        properties: the JSON schema of each argument.
    """
    parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
