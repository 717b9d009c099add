"""The prompts and demonstrations of SPC's game. A generator plants an error into the last step of a partial solution,
and a critic judges that step."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from whet.tasks.chains import Chain, criticise, critique_text, parse_chain, steps_text
from whet.tasks.demonstrations import COLLEAGUE, COLLEAGUE_MANNER, TEXTBOOK, Demonstration, solution_steps
from whet.tasks.planting import NUMBER, with_other_number
from whet.tasks.prompts import CHAINS, Prompts
from whet.tasks.row_formats import DataError
from whet.types import Task

NUM_TRIES = 100
"""Worked solutions to try before the error that none can be spoiled."""

_PLANT = (
    "Below are a question and the first steps of a right solution. Rewrite the last step, on one line and in the same "
    "style, so that it holds one subtle mistake.\n\n{question}"
)
_JUDGE = (
    "Below are a question and the first steps of a solution. All but the last are right. Say in a sentence or two what "
    "the last step does and whether it holds, and close with one line of the form:\n"
    "VERDICT: [RIGHT/WRONG]\n\n{question}\n\n{answer}"
)


def sneaky(prompts: Prompts) -> Prompts:
    """The game in these prompts. `solve` asks for the last step anew, with an error; its question holds the right steps
    (see `with_steps`). `critique` asks for a judgment of the last step."""
    if prompts == CHAINS:
        return replace(CHAINS, solve=CHAINS.refine.replace("{critique}", "{question}"))
    labels = {"VERDICT": prompts.verdict_line, "RIGHT": prompts.right, "WRONG": prompts.wrong}
    judge = re.sub("|".join(labels), lambda match: labels[match[0]], _JUDGE)
    return replace(prompts, solve=_PLANT, critique=judge, solve_prefill="", critique_marker="")


def with_steps(task: Task, steps: Sequence[str]) -> Task:
    """The task with the first steps of a solution in its prompt."""
    return replace(task, prompt="\n".join([task.prompt, *steps]))


def first_steps(task: Task, rng: random.Random) -> list[str]:
    """The first steps of a right solution, one of them or more."""
    steps = right_steps(task)
    return steps[: rng.randrange(len(steps)) + 1]


def spoilable(steps: Sequence[str]) -> Sequence[str]:
    """The steps up to the last one with a number, which can be changed; none where no step has one."""
    count = max((place for place, step in enumerate(steps, 1) if NUMBER.search(step)), default=0)
    return steps[:count]


def right_steps(task: Task) -> list[str]:
    """A right solution, step by step.

    Raises: DataError where the task has no worked solution.
    """
    return right_chain_steps(task) if task.info.get("kind") == "chains" else solution_steps(task)


def right_chain_steps(task: Task) -> list[str]:
    """The right solution of a question of the tiny world, step by step. Raises: ValueError where it is none."""
    chain = parse_chain(task.prompt)
    return steps_text(chain, chain.values)


def game_demonstrations(
    side: str, tasks: Sequence[Task], count: int, prompts: Prompts, rng: random.Random
) -> list[Demonstration]:
    """Demonstrations for a side of the game (`generator` or `critic`), of tasks drawn at random."""
    show = plant_demonstration if side == "generator" else judge_demonstration
    demonstrations: list[Demonstration] = []
    for task in [rng.choice(tasks) for _ in range(count)]:
        made = show(task, prompts, rng)
        for _ in range(NUM_TRIES):
            if made is not None:
                break
            made = show(rng.choice(tasks), prompts, rng)
        if made is None:
            raise DataError(f"none of {NUM_TRIES} worked solutions has a step with a number, to plant an error in")
        demonstrations.append(made)
    return demonstrations


def plant_demonstration(task: Task, prompts: Prompts, rng: random.Random) -> Demonstration | None:
    """How an error is planted: in the tiny world mostly as the careless textbook errs, else as another number. None: no
    step has one."""
    steps = spoilable(first_steps(task, rng))
    if not steps:
        return None
    messages = sneaky(prompts).solve_messages(with_steps(task, steps).prompt)
    return Demonstration("solve", tuple(messages), "", _spoiled(task, steps, rng), f"task {task.id}")


def judge_demonstration(task: Task, prompts: Prompts, rng: random.Random) -> Demonstration | None:
    """A judgment of the last step, planted half the time; in the tiny world by the careless colleague. None: an error
    was to be planted, and no step has a number."""
    steps: Sequence[str] = first_steps(task, rng)
    is_planted = rng.random() < 0.5
    if is_planted and not (steps := spoilable(steps)):
        return None
    shown = [*steps[:-1], _spoiled(task, steps, rng)] if is_planted else list(steps)
    messages = sneaky(prompts).critique_messages(task.prompt, "\n".join(shown))
    judgment = _judgment(task, shown, is_planted, prompts, rng)
    return Demonstration("critique", tuple(messages), "", judgment, f"task {task.id}")


def _judgment(task: Task, shown: Sequence[str], is_planted: bool, prompts: Prompts, rng: random.Random) -> str:
    if task.info.get("kind") != "chains":
        return f"The last step says: {shown[-1]}\n{prompts.closing(right=not is_planted)}"
    whole = parse_chain(task.prompt)
    chain = Chain(whole.start, whole.operations[: len(shown)])
    claimed = [int(step[-1]) for step in shown]
    critique = criticise(chain, claimed, COLLEAGUE, COLLEAGUE_MANNER, rng)
    return critique_text(chain, critique, prompts.closing(right=critique.verdict))


def _spoiled(task: Task, steps: Sequence[str], rng: random.Random) -> str:
    """The last step with another number at its end."""
    if task.info.get("kind") == "chains":
        whole = parse_chain(task.prompt)
        values = whole.values
        before, right = (values[len(steps) - 2] if len(steps) > 1 else whole.start), values[len(steps) - 1]
        wrong = TEXTBOOK.write(before, whole.operations[len(steps) - 1], rng)
        wrong = wrong if wrong != right else (right + rng.randrange(1, 10)) % 10
        return f"{steps[-1][:-1]}{wrong}"
    wrong_step = with_other_number(steps[-1], rng)
    assert wrong_step is not None
    return wrong_step
