"""Benchmarks on the first wrong step of a solution: rows in ProcessBench's layout (arXiv:2412.06559).

`processbench` asks any model for the index. `first_error` asks a critic in its own words, and reads its critique step
by step. Rows are those of ProcessBench, or `first_errors.json` of a run that makes critique data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from whet.evaluation.benchmarks import processbench
from whet.evaluation.critique import Metrics
from whet.evaluation.user_benchmarks import Graded, benchmark_of
from whet.grading.step_critiques import read_critique
from whet.tasks.prompts import Message, Prompts
from whet.tasks.row_formats import DataError
from whet.types import Grade, Task

_BOX = re.compile(r"\\boxed\{\s*(-?\d+)\s*\}")


def first_error_tasks(rows: Sequence[Mapping[str, Any]]) -> list[Task]:
    """Labelled rows as tasks, whose answer is the step that is wrong first (-1: none).

    Raises: DataError where a row is none of ProcessBench's layout.
    """
    return [_task(row, number) for number, row in enumerate(rows, 1)]


def _task(row: Mapping[str, Any], number: int) -> Task:
    problem, steps, label = (row.get(name) for name in ("problem", "steps", "label"))
    if not isinstance(problem, str) or not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise DataError(f"row {number} needs problem, a text, and steps, a list of texts; it has {', '.join(row)}")
    if type(label) is not int or not -1 <= label < len(steps):
        raise DataError(f"row {number}: label = {label!r} has to be the index of a step, or -1 where none is wrong")
    numbered = [f"({place}) {step}" for place, step in enumerate(steps)]
    return Task(
        id=str(row.get("id", number)),
        prompt="\n".join([problem, "", *numbered]),
        answer=str(label),
        info={
            "kind": "first_error",
            "problem": problem,
            "steps": list(steps),
            "right": row.get("final_answer_correct"),
        },
    )


def first_error_metrics(graded: Sequence[Graded]) -> Metrics:
    """`err`, `cor`, `f1` of ProcessBench, and `unreadable`, the share of replies without an index."""
    labels = [int(each.task.answer or -1) for each in graded]
    read = [None if each.grade.extracted is None else int(each.grade.extracted) for each in graded]
    unreadable = sum(index is None for index in read) / len(read) if read else None
    return processbench(labels, read) | {"unreadable": unreadable}


def _grade(index: int | None, task: Task) -> Grade:
    if index is None:
        return Grade(score=0.0, reason="no index can be read")
    return Grade(score=float(str(index) == task.answer), extracted=str(index))


class ProcessBench:
    """The index of the first wrong step, asked of any model (2412.06559)"""

    def tasks(self, rows: Sequence[Mapping[str, Any]]) -> list[Task]:
        return first_error_tasks(rows)

    def messages(self, task: Task) -> str:
        return (
            "A problem, and a solution in numbered steps:\n\n"
            f"{task.prompt}\n\n"
            "Check the steps in order. Which one is the first that is wrong? Give its number, or -1 if all steps are "
            "right. Close with the number in \\boxed{}."
        )

    def grade(self, reply: str, task: Task) -> Grade:
        """The last box counts."""
        boxes = _BOX.findall(reply)
        return _grade(int(boxes[-1]) if boxes else None, task)

    def metrics(self, graded: Sequence[Graded]) -> Metrics:
        return first_error_metrics(graded)


class FirstError:
    """The first wrong step, read from a critic's own critique step by step"""

    def tasks(self, rows: Sequence[Mapping[str, Any]]) -> list[Task]:
        return first_error_tasks(rows)

    def messages(self, task: Task, prompts: Prompts) -> list[Message]:
        return prompts.critique_messages(task.info["problem"], "\n".join(task.info["steps"]))

    def grade(self, reply: str, task: Task, prompts: Prompts) -> Grade:
        """A verdict against its own labels cannot be read; without labels, one of right says that no step is wrong."""
        critique = read_critique(reply, prompts)
        index: int | None = critique.first_wrong
        if index == -1 and critique.verdict != "correct":
            index = None
        return _grade(index, task)

    def metrics(self, graded: Sequence[Graded]) -> Metrics:
        return first_error_metrics(graded)


PROCESSBENCH = benchmark_of("processbench", ProcessBench, "answer")
FIRST_ERROR = benchmark_of("first_error", FirstError, "critique")
