"""An environment's actions as tools, for models that act by calls: schemas, and the action that a call stands for.

The functions are those of `function_calls`. An environment without any has one tool, `act`, which takes the action.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whet.envs.formats import THOUGHT
from whet.tool_calls import function
from whet.trajectories.function_calls import FUNCTIONS, NUMBERS, action_of, placeholders, templates_of

ACT = "act"
"""The tool of environments without functions."""
ACTION = "action"


def tools_of(environment: str) -> list[dict[str, Any]]:
    """The tools of an environment, in OpenAI's form. Each description says the action that a call stands for."""
    if environment not in FUNCTIONS:
        text = {"type": "string", "description": "the action, as the rules describe it"}
        return [function(ACT, "Does an action.", {ACTION: text}, [ACTION])]
    tools = []
    for name, templates in FUNCTIONS[environment].items():
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
    if environment in FUNCTIONS:
        return action_of(FUNCTIONS[environment], name, arguments)
    return action_of({ACT: f"{{{ACTION}}}"}, name, arguments)


def rules_for_tools(rules: str) -> str:
    """An environment's rules without the form of a reply, which they end in: the template says how tools are called."""
    before, mark, _ = rules.rpartition(THOUGHT)
    if not mark:
        return rules
    told = re.sub(r"[^.:\n]*:\s*$", "", before).rstrip()
    return f"{told}\n\nEach action is a call of a tool: call one, and wait for what it gives."
