"""Worked solutions of basics, right ones and ones with a mistake, and critiques that name it without the result.

    What is 47 + 38?        40 + 30 = 70            40 + 30 = 70: Correct.
                            7 + 8 = 16              7 + 8 = 16: Wrong. Work out 7 + 8 again.
                            70 + 16 = 86            70 + 16 = 86: Correct.
                            The answer is 86.       Verdict: Wrong

A step is judged by its own calculation, so that what follows from a mistake is no second one. A critique holds no
number that the answer it is about does not: an actor that copies it is no nearer to the right answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from whet.tasks.planting import other_number

LESS = ("gives away {b}", "loses {b}", "sells {b}", "puts {b} into a box")
"""Events that make the things of a story fewer."""
CORRUPTED_SHARE = 0.5
"""Share of the critiqued solutions that hold a mistake."""

Value = int | str


@dataclass(frozen=True, slots=True)
class Earlier:
    """The result of an earlier step, by its place."""

    place: int


@dataclass(frozen=True, slots=True)
class Step:
    """One calculation: of numbers (`+`, `-`, `*`, `smallest`, `largest`), or of words (`first`, which leaves out the
    results of earlier steps)."""

    operation: str
    of: tuple[Value | Earlier, ...]


@dataclass(frozen=True, slots=True)
class Worked:
    """A solution, step by step."""

    steps: tuple[Step, ...]
    values: tuple[Value, ...]
    """The result that each step writes."""
    mistake: int | None
    """The place of the step whose result is wrong for its calculation. None: all are right."""

    @property
    def lines(self) -> list[str]:
        return [
            f"{self.asked(place)} {'=' if step.operation in _SIGNS else 'is'} {self.values[place]}"
            for place, step in enumerate(self.steps)
        ]

    @property
    def answer(self) -> str:
        """The last result; for words, all of them in their order."""
        if self.steps[-1].operation == "first":
            return ", ".join(map(str, (*self.values, *_left(self.steps[-1], self.values))))
        return str(self.values[-1])

    def asked(self, place: int) -> str:
        """A step's calculation without its result."""
        step = self.steps[place]
        of = [self.values[operand.place] if isinstance(operand, Earlier) else operand for operand in step.of]
        if step.operation in _SIGNS:
            return f" {step.operation} ".join(map(str, of))
        words = of if step.operation != "first" else [*_left(step, self.values[:place])]
        return f"The {step.operation} of {', '.join(map(str, words[:-1]))} and {words[-1]}"

    def advice(self, place: int) -> str:
        """What a critique says of a wrong step: the calculation to do again, and no result."""
        asked = self.asked(place)
        return f"Work out {asked[0].lower()}{asked[1:]} again."


_SIGNS = ("+", "-", "*")


def plan(kind: str, question: str) -> tuple[Step, ...]:
    """The steps that lead to the answer.

    Args:
        kind: of `whet.tasks.basics.MAKERS`.
        question: as that kind asks it.
    """
    numbers = [int(digits) for digits in re.findall(r"[0-9]+", question)]
    if kind == "sum":
        return _sum(*numbers)
    if kind == "product":
        return _product(*numbers)
    if kind == "extreme":
        which = "smallest" if "smallest" in question else "largest"
        first, second, third = numbers
        return Step(which, (first, second)), Step(which, (Earlier(0), third))
    if kind == "next":
        return Step("-", (numbers[1], numbers[0])), Step("+", (numbers[-1], Earlier(0)))
    if kind == "sort":
        words = tuple(question.rpartition(": ")[2].split(", "))
        return Step("first", words), Step("first", (*words, Earlier(0)))
    is_less = any(event.partition(" {b}")[0] in question for event in LESS)
    return _difference(*numbers) if is_less else _sum(*numbers)


def work(steps: Sequence[Step], rng: random.Random | None = None, mistake: int | None = None) -> Worked:
    """The steps' results. One of them may be wrong; later steps then use it.

    Args:
        mistake: the place of the wrong one. It is near the right number, or another of the step's operands.
    """
    values: list[Value] = []
    for place, step in enumerate(steps):
        right = result_of(step, values)
        values.append(right if place != mistake or rng is None else _another(step, right, values, rng))
    return Worked(tuple(steps), tuple(values), mistake)


def corrupted(steps: Sequence[Step], rng: random.Random) -> Worked:
    """The steps with a mistake in one of them that changes the answer."""
    right = work(steps).answer
    places = rng.sample(range(len(steps)), len(steps))
    made = (work(steps, rng, place) for place in places)
    return next(worked for worked in made if worked.answer != right)


def result_of(step: Step, values: Sequence[Value]) -> Value:
    """The right result of a step's calculation.

    Args:
        values: the results that the steps before it wrote, at least.
    """
    if step.operation == "first":
        return min(_left(step, values))
    of = [values[operand.place] if isinstance(operand, Earlier) else operand for operand in step.of]
    first, second = (int(operand) for operand in of)
    if step.operation in _SIGNS:
        return {"+": first + second, "-": first - second, "*": first * second}[step.operation]
    return min(first, second) if step.operation == "smallest" else max(first, second)


def _another(step: Step, right: Value, values: Sequence[Value], rng: random.Random) -> Value:
    if step.operation in _SIGNS:
        return int(other_number(str(right), rng))
    if step.operation == "first":
        return rng.choice([word for word in _left(step, values) if word != right])
    of = [values[operand.place] if isinstance(operand, Earlier) else operand for operand in step.of]
    return next((value for value in of if value != right), int(right) + 1)


def _left(step: Step, values: Sequence[Value]) -> list[str]:
    """The words that are not yet in their place."""
    return [str(word) for word in step.of if not isinstance(word, Earlier) and word not in values]


def _sum(a: int, b: int) -> tuple[Step, ...]:
    if min(a, b) < 10 or not (a % 10 and b % 10):
        return (Step("+", (a, b)),)
    return Step("+", (a - a % 10, b - b % 10)), Step("+", (a % 10, b % 10)), Step("+", (Earlier(0), Earlier(1)))


def _difference(a: int, b: int) -> tuple[Step, ...]:
    if b < 10 or not b % 10:
        return (Step("-", (a, b)),)
    return Step("-", (a, b - b % 10)), Step("-", (Earlier(0), b % 10))


def _product(a: int, b: int) -> tuple[Step, ...]:
    a, b = max(a, b), min(a, b)
    if a < 11 or not a % 10:
        return (Step("*", (a, b)),)
    return Step("*", (a - a % 10, b)), Step("*", (a % 10, b)), Step("+", (Earlier(0), Earlier(1)))
