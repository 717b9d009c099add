"""The functions of environments of tools: their calls stand for actions with values of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.envs.tools.academia import TOOLS as ACADEMIA_TOOLS
from whet.envs.tools.calls import NoCall, Tool, ToolError, plain_value, read_call, written
from whet.envs.tools.movie import TOOLS as MOVIE_TOOLS
from whet.envs.tools.sheet import TOOLS as SHEET_TOOLS
from whet.envs.tools.todo import TOOLS as TODO_TOOLS
from whet.envs.tools.weather import TOOLS as WEATHER_TOOLS


class ToolTemplate(str):
    """A tool's template. As a text it names the arguments: `get_tasks with Action Input: {project_id}`."""

    tool: Tool

    def __new__(cls, tool: Tool) -> ToolTemplate:
        names = ", ".join(f"{{{argument.name}}}" for argument in tool.arguments)
        template = super().__new__(cls, f"{tool.name} with Action Input: {names}")
        template.tool = tool
        return template

    def action(self, arguments: Any) -> str:
        """The action of a call. Whether the arguments are the tool's is for the environment to say.

        Raises: ValueError where they are no object of JSON.
        """
        value = plain_value(arguments)
        if not isinstance(value, dict):
            raise ValueError("not a call's arguments")
        return written(self.tool.name, value)

    def arguments(self, action: str) -> dict[str, Any] | None:
        """The arguments with which the tool is called. None: the action is no call of it that can be read."""
        try:
            return dict(read_call(action, {self.tool.name: self.tool}).arguments)
        except (NoCall, ToolError):
            return None

    def properties(self) -> dict[str, dict[str, Any]]:
        """The arguments' schemas."""
        return {
            argument.name: {
                **({} if argument.type == "any" else {"type": argument.type}),
                "description": argument.says,
            }
            for argument in self.tool.arguments
        }

    def required(self) -> list[str]:
        return [argument.name for argument in self.tool.arguments if argument.is_required]


def _functions(tools: Sequence[Tool]) -> Mapping[str, str | tuple[str, ...]]:
    return {tool.name: ToolTemplate(tool) for tool in tools}


WEATHER = _functions(WEATHER_TOOLS)
MOVIE = _functions(MOVIE_TOOLS)
ACADEMIA = _functions(ACADEMIA_TOOLS)
SHEET = _functions(SHEET_TOOLS)
TODO = _functions(TODO_TOOLS)
