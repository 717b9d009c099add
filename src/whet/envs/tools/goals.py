"""Goals, made together with the contents of their service, and the scripted expert that reaches them.

A kind of goal has a template of the text, a function that draws what stands in it, and a solver: a generator that makes
calls and is given their results. The gold calls are the solver's on the service itself; the expert is the same solver
on what the environment says. So the answer is never looked up where an agent could not find it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from whet.envs.protocol import EnvError
from whet.envs.tools.calls import ToolCall, ToolError, checked
from whet.envs.tools.service import FINISH, Service
from whet.seeds import seed_of

if TYPE_CHECKING:
    from whet.envs.tools.environment import ToolEnvironment

Fields = Mapping[str, str]
"""What stands in a goal's text, by placeholder."""
Step = tuple[str, str, Mapping[str, Any]]
"""A thought, a tool's name and its arguments."""
Solver = Generator[Step, Any, Any]
"""Yields steps, is sent their results, and returns the answer."""
MAX_TRIES = 50
"""How often contents are drawn for one item, until its goal has one answer."""
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Unfit(Exception):
    """These contents make no such goal, or one with several answers."""


@dataclass(frozen=True)
class Kind:
    """A kind of goal."""

    name: str
    template: str
    """The goal's text, with `{placeholders}`."""
    draw: Callable[[Any, Random], Fields]
    """What stands in the text, drawn from a service. It raises Unfit where there is nothing to draw."""
    solve: Callable[[Fields], Solver]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = _PLACEHOLDER.split(self.template)
        return re.compile(
            "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        )

    def text(self, fields: Fields) -> str:
        return self.template.format(**fields)

    def fields(self, text: str) -> Fields | None:
        """What stands in a goal's text. None: it is of another kind."""
        match = self._pattern.fullmatch(text)
        return match.groupdict() if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal, the service as it begins, and what counts as having reached it."""

    text: str
    kind: str
    begins: Service
    """Is copied for each episode."""
    answer: Any
    results: tuple[Any, ...]
    """Of the gold calls, in order, without the last one, `finish`."""
    ends: Service
    """As the gold calls leave it."""


@dataclass(frozen=True, slots=True)
class Family:
    """What an environment of tools is made of."""

    name: str
    kinds: tuple[Kind, ...]
    """Items take them in turn."""
    make: Callable[[Random], Service]
    """Draws a service with contents."""
    is_fit: Callable[[Goal], bool] = lambda goal: True
    """Whether a goal that was drawn can stand."""

    def kind(self, item: int) -> Kind:
        """The kind of an item's goal."""
        return self.kinds[item % len(self.kinds)]


def make_goal(family: Family, item: int) -> Goal:
    """The goal of an item, with its contents. Both are drawn from the environment's name and the item alone."""
    kind = family.kind(item)
    for attempt in range(MAX_TRIES):
        random = Random(seed_of("tools", family.name, item, attempt))
        service = family.make(random)
        try:
            goal = run_gold(kind, kind.draw(service, random), service)
        except Unfit:
            continue
        if family.is_fit(goal):
            return goal
    raise EnvError(f"no contents of {family.name} make a goal of the kind {kind.name!r} for item {item}: report this")


def run_gold(kind: Kind, fields: Fields, begins: Service) -> Goal:
    """The goal, with its answer as the gold calls find it.

    Raises: Unfit where there is none.
    """
    service, results = begins.copy(), []
    solver = kind.solve(fields)
    sent: Any = None
    try:
        while True:
            _, name, arguments = solver.send(sent)
            sent = service.call(name, checked(service.by_name()[name], arguments))
            results.append(sent)
    except StopIteration as end:
        answer = service.finish(end.value)
    except ToolError as error:
        raise Unfit from error
    text = kind.text(fields)
    if kind.fields(text) != fields:
        raise Unfit
    return Goal(text=text, kind=kind.name, begins=begins, answer=answer, results=tuple(results), ends=service)


_OPENERS = ("", "Now ", "Next ", "As the next step ", "To go on, ")


def expert_of(kinds: Sequence[Kind]) -> Callable[..., Iterator[tuple[str, str]]]:
    """The expert of an environment with these kinds of goals.

    It reads the goal's text and the observations. It passes over its calls that were made before it began, in their
    order, and repeats a call where another one was made in its place.
    """

    def expert(env: ToolEnvironment, *, seed: int = 0) -> Iterator[tuple[str, str]]:
        """Yields a thought and an action until the goal is reached. The wording depends on the seed."""
        random = Random(seed_of("tools expert", seed, env.goal.text))
        solver = next(kind.solve(fields) for kind in kinds if (fields := kind.fields(env.goal.text)) is not None)
        sent: Any = None
        before = env.calls
        while True:
            try:
                thought, name, arguments = solver.send(sent)
            except StopIteration as end:
                thought, action = _finishing(env, end.value)
                while True:
                    yield thought, action
            call = ToolCall(name, arguments).text
            made = next((place for place, (earlier, _) in enumerate(before) if earlier == call), None)
            if made is not None:
                sent, before = read_result(before[made][1]), before[made + 1 :]
                continue
            opener = random.choice(_OPENERS) if env.last_action else ""
            yield f"{opener}{thought}", call
            while env.last_action != call:
                yield "I have to make this call before I can go on.", call
            sent = read_result(env.last_observation)

    return expert


def _finishing(env: ToolEnvironment, answer: Any) -> tuple[str, str]:
    takes_answer = bool(env.tools[FINISH].arguments)
    thought = (
        f"I know the answer, {answer}, and finish with it." if takes_answer else "I have done all of it: I finish."
    )
    return thought, ToolCall(FINISH, {"answer": answer} if takes_answer else {}).text


def read_result(observation: str) -> Any:
    """The value that an observation shows: a literal, or a text as it is."""
    text = observation.removeprefix("Observation: ").rpartition("\n")[0]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
