"""Tasks that a reward is tried on, and golden and wrong answers to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.checks.attacks import Scene
from whet.tasks.chains import sample_chains
from whet.tasks.files import DataError, read_tasks
from whet.types import Task

NUM_SCENES = 6
"""Tasks that every attack is tried on."""
FORMS = (
    "The answer is {answer}",
    "{answer}",
    "\\boxed{{answer}}",
    "#### {answer}",
    "Answer: {answer}",
    "<answer>{answer}</answer>",
    "<think>I work it out.</think>\n<answer>{answer}</answer>",
    '{"answer": "{answer}"}',
)
"""Forms of a golden reply, tried in this order. Of the equally good ones the first counts."""


def built_in_tasks(count: int, grader: str = "") -> list[Task]:
    """Sums of two numbers; for the grader of the tiny world, its chains.

    Args:
        count: of tasks, at most 64.
    """
    if grader == "chains":
        chains = sample_chains("train", 0, min_steps=3, max_steps=6)
        return [
            Task(id=chain.text, prompt=chain.text, answer=str(chain.values[-1]), info={"kind": "chains"})
            for chain, _ in zip(chains, range(count), strict=False)
        ]
    pairs = [(137 + 29 * number, 246 + 17 * number) for number in range(count)]
    return [Task(id=f"sum/{a}+{b}", prompt=f"What is {a} + {b}?", answer=str(a + b), info={}) for a, b in pairs]


def tasks_of_file(file: Path, count: int, columns: Mapping[str, str] | None = None) -> list[Task]:
    """Rows of a user's file, evenly spaced.

    Args:
        columns: the user's names of `prompt`, `answer` and `solution`, as in `data.columns`.
    Raises: DataError.
    """
    tasks = [task for task in read_tasks(file, columns=columns, setting="--data").tasks if task.answer is not None]
    if len(tasks) < 2:
        raise DataError(f"{file} has {len(tasks)} row: give --data a file of at least two questions and answers")
    step = max(1, len(tasks) // count)
    return tasks[::step][:count]


def scenes_of(tasks: Sequence[Task], form: str) -> list[Scene]:
    """The tasks, each with wrong answers."""
    answers = list(dict.fromkeys(task.answer or "" for task in tasks))
    scenes = []
    for task in tasks:
        right = task.answer or ""
        others = tuple(answer for answer in answers if answer != right) or (f"{right}1",)
        scenes.append(Scene(task, wrong_answer(right, others), others, form))
    return scenes


def wrong_answer(right: str, others: Sequence[str]) -> str:
    """An answer that is wrong: with another last digit, or another task's."""
    if re.fullmatch(r"-?\d+(\.\d+)?", right):
        return f"{right[:-1]}{(int(right[-1]) + 3) % 10}"
    return others[0]


def common_answers(tasks: Sequence[Task]) -> list[str]:
    """The three most frequent answers, which a constant output would give."""
    return [answer for answer, _ in Counter(task.answer or "" for task in tasks).most_common(3)]
