"""Action formats: how a reply is read as a thought and an action, and how one is written.

Every parser takes any text, of any length, in time that grows with the length alone, and raises nothing. They read as
the published clients of AgentGym do, to the letter, so that recorded replies mean what they meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from whet.registry import Registry

THOUGHT, ACTION = "Thought:", "Action:"
END_MARK = "</s>"
"""Llama 2's end of text, which the clients of some environments take off."""
BLOCK, SQL_BLOCK = "```", "```sql"
THINK, THINK_END = "<think>", "</think>"
ONLY_ONE = "Error: Only one 'Action' is allowed per response. Please adjust your response."
_LINE_AFTER = re.compile(r"Action:\s*(.*?)(?=\n|$)", re.DOTALL)
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9, ]+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The thought and action of a reply."""

    thought: str
    action: str
    """For the environment. It may be empty, and is sent nevertheless."""
    problem: str = ""
    """Where there is one, nothing is sent: it stands for the answer, and the action is invalid."""
    shows_again: bool = False
    """The previous observation is repeated after the problem."""

    def answer(self, observation: str) -> str:
        """The answer to a reply with a problem. `observation` is the previous one."""
        return f"{self.problem}\n\n{observation}" if self.shows_again else self.problem


Parser = Callable[[str], Parsed]
Writer = Callable[[str, str], str]
"""A reply with this thought and this action."""

PARSERS: Registry[Parser] = Registry("action format")
WRITERS: Registry[Writer] = Registry("written action format")


def write(thought: str, action: str, format: str = "react") -> str:
    """A reply in a format.

    Reading it gives thought and action back, unless they hold the format's marks, spaces at their ends, or characters
    that the parser takes off (`cleaned` keeps letters, digits, commas and single spaces).

    Raises: UnknownName; EnvError where a format has no way to say the action.
    """
    return WRITERS.get(format)(thought, action)


def react(text: str) -> Parsed:
    """ReAct: the action is what follows the last `Action:`, the thought what follows the first `Thought:`."""
    before, mark, action = without_end(text).rpartition(ACTION)
    if not mark:
        is_action = "search[" in action or "click[" in action  # a web shop's, written without the mark
        before, action = ("", action) if is_action else (action, "")
    return Parsed(_thought(before), action.strip())


def cleaned(text: str) -> Parsed:
    """One `Action:` line, of which letters, digits, commas and single spaces are kept (BabyAI, TextCraft)."""
    match = _LINE_AFTER.search(text)
    if match is None:
        return Parsed(_thought(text), "")
    thought = _thought(text[: match.start()])
    if _LINE_AFTER.search(text, match.end()):
        return Parsed(thought, "", ONLY_ONE)
    return Parsed(thought, " ".join(_NOT_PLAIN.sub("", match[1]).split()))


def after_action(text: str) -> Parsed:
    """What stands between the first `Action:` and the next one; without any, the whole text (maze, Wordle)."""
    pieces = without_end(text).split(ACTION, 2)
    if len(pieces) == 1:
        return Parsed("", pieces[0].strip())
    return Parsed(_thought(pieces[0]), pieces[1].strip())


def plain(text: str) -> Parsed:
    """The whole text is the action: no thought, no marks."""
    return Parsed("", text.strip())


def sql(text: str) -> Parsed:
    """The last block of SQL, up to the next three backticks; without any, the whole text up to them (sqlgym)."""
    before, mark, _ = text.rpartition(SQL_BLOCK)
    return Parsed(_thought(before.rstrip().removesuffix(ACTION)) if mark else "", query_in(text))


def query_in(text: str) -> str:
    """What stands in the last block of SQL, or the text itself."""
    return text.rpartition(SQL_BLOCK)[2].partition(BLOCK)[0].strip()


def tags(text: str) -> Parsed:
    """The whole text, without a `<think>` at its beginning that holds no tag of an action (SearchQA)."""
    opened, mark, rest = text.strip().partition(THINK)
    thought, end, action = rest.partition(THINK_END)
    if opened or not mark or not end or "<search>" in thought or "<answer>" in thought:
        return Parsed("", text.strip())
    return Parsed(thought.strip(), action.strip())


def without_end(text: str) -> str:
    # The clients of maze and Wordle cut five characters for this mark of four, and so the action's last one where no
    # space stands before the mark. That is not intended.
    return text.removesuffix(END_MARK)


def _thought(before: str) -> str:
    """As the published parser reads it: without the mark, everything, with its spaces."""
    pieces = before.split(THOUGHT, 2)
    return pieces[0] if len(pieces) == 1 else pieces[1].strip()


def write_react(thought: str, action: str) -> str:
    return f"{THOUGHT}\n{thought}\n\n{ACTION}\n{action}"


def write_sql(thought: str, action: str) -> str:
    return f"{THOUGHT}\n{thought}\n\n{ACTION} {SQL_BLOCK}\n{action}\n{BLOCK}"


def write_tags(thought: str, action: str) -> str:
    return f"{THINK}{thought}{THINK_END}\n{action}"


def write_plain(thought: str, action: str) -> str:
    """The format has no place for the thought, which is left out."""
    return action


for _name, _parser, _writer in (
    ("react", react, write_react),
    ("cleaned", cleaned, write_react),
    ("after_action", after_action, write_react),
    ("sql", sql, write_sql),
    ("tags", tags, write_tags),
    ("plain", plain, write_plain),
):
    _says = (_parser.__doc__ or "").partition("\n")[0]
    PARSERS.add(_name, _parser, says=_says)
    WRITERS.add(_name, _writer, says=_says)

for _env in (
    "webshop", "alfworld", "sciworld", "babyai", "textcraft", "maze", "wordle",
    "weather", "movie", "academia", "sheet", "todo",
):  # fmt: skip
    for _format, _module, _what in (
        ("function_calling", "function_calls", "a JSON object"),
        ("code_as_action", "code_actions", "a block of Python"),
        ("tools", "tools", "a call of a tool"),
    ):
        _says = f"{_what} that calls a function of {_env}" if _format != "tools" else f"{_what} of {_env}"
        PARSERS.late(f"{_format}:{_env}", f"whet.trajectories.{_module}:{_env.upper()}_PARSER", says=_says)
        WRITERS.late(f"{_format}:{_env}", f"whet.trajectories.{_module}:{_env.upper()}_WRITER", says=_says)
PARSERS.late("tools", "whet.trajectories.tools:ACT_PARSER", says="a call of the tool `act`, which takes any action")
WRITERS.late("tools", "whet.trajectories.tools:ACT_WRITER", says="a call of the tool `act`, which takes any action")
