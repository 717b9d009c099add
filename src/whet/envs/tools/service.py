"""A service in memory, as tools reach it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, ClassVar, Self

from whet.envs.tools.calls import Argument, Tool

FINISH, VALID_ACTIONS = "finish", "check_valid_actions"
VALID = Tool(VALID_ACTIONS, "Lists the names of all actions.")
ANSWERING = Tool(
    FINISH, "Ends the task with an answer.", (Argument("answer", "any", "the answer: a text, a number or a list"),)
)


class Service:
    """The contents of a service, and its tools as methods.

    A tool's method has its name in lower case: `loadPaperNet` is `load_paper_net`. It returns a value of JSON, and
    raises ToolError where a call cannot be done. Contents are shared by copies; what calls change belongs to one.
    """

    tools: ClassVar[tuple[Tool, ...]] = ()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Do a call whose arguments fit the tool.

        Raises: ToolError where it cannot be done.
        """
        if name == VALID_ACTIONS:
            return f"You can use the following actions: {[tool.name for tool in self.tools]}"
        if name == FINISH:
            return self.finish(**arguments)
        return getattr(self, method_name(name))(**arguments)

    def finish(self, answer: Any = None) -> Any:
        """A list is sorted, as its order does not count."""
        if isinstance(answer, list):
            return sorted(answer, key=lambda value: (type(value).__name__, str(value)))
        return answer

    def state(self) -> Hashable:
        """What calls have changed."""
        return ()

    def copy(self) -> Self:
        """A service in the same state, which then changes on its own."""
        return copy(self)

    def suggested(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Some calls that can be made at any time, for an agent that acts at random."""
        calls: list[tuple[str, Mapping[str, Any]]] = [(tool.name, {}) for tool in self.tools if not tool.arguments]
        return [*calls, *((FINISH, {"answer": answer}) for answer in ("Yes", "No", 1, "done"))]

    @classmethod
    @cache
    def by_name(cls) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in cls.tools}


@cache
def method_name(tool: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", tool).lower()
