"""The columns of a task that a user's function asks for, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from whet.tasks.row_formats import QUESTION_NAMES, DataError
from whet.types import Task

OURS = ("completion", "answer", "prompt", "task_id", "info")
"""Names that every task has; they go before columns of these names."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The columns that a function's signature asks for."""

    needed: tuple[str, ...]
    welcome: tuple[str, ...]
    """Those with a default."""
    takes_rest: bool

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> Wishes:
        """Raises: ValueError where the function cannot be called by names, or never sees the reply."""
        if not callable(function):
            raise ValueError(f"the grader {name!r} is {type(function).__name__}: decorate a function")
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"the grader {name!r} takes {parameter.name} by position only: take out the slash")
        named = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        takes_rest = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        if not takes_rest and "completion" not in (parameter.name for parameter in named):
            raise ValueError(f"the grader {name!r} never sees the reply: give it a parameter named completion")
        return cls(
            needed=tuple(parameter.name for parameter in named if parameter.default is parameter.empty),
            welcome=tuple(parameter.name for parameter in named if parameter.default is not parameter.empty),
            takes_rest=takes_rest,
        )

    def arguments(self, reply: str, task: Task) -> dict[str, Any]:
        """The function's arguments for a reply and its task. A task without a reference gives no `answer`."""
        values = {**task.info, "completion": reply, "prompt": task.prompt, "task_id": task.id, "answer": task.answer}
        if task.answer is None:
            del values["answer"]  # a column of that name would be no reference
        questions = dict.fromkeys(QUESTION_NAMES, task.prompt)  # the question's column, by its own name
        whole = {**questions, **values, "info": dict(task.info)}
        named = {name: whole[name] for name in (*self.needed, *self.welcome) if name in whole}
        return (values if self.takes_rest else {}) | named

    def lacking(self, task: Task) -> str | None:
        """The first column that the function needs and the task's row has not. A reference is no column."""
        names = {*OURS, *QUESTION_NAMES, *task.info}
        return next((name for name in self.needed if name not in names), None)

    def check(self, title: str, tasks: Iterable[Task]) -> None:
        """Looks at all tasks before anything is graded.

        Raises: DataError with the column, the first row without it, and what that row has.
        """
        rows = list(tasks)
        lacking = [(name, task) for task in rows if (name := self.lacking(task)) is not None]
        if lacking:
            name, task = lacking[0]
            count = sum(other == name for other, _ in lacking)
            raise DataError(
                f"{missing_column(title, name, task)}; {count} of {len(rows)} rows lack it: add the column, or "
                "give the function's parameter a default"
            )


def missing_column(title: str, name: str, task: Task) -> str:
    """The sentence that a task lacks a column.

    Args:
        title: the function's.
    """
    there = ", ".join(dict.fromkeys((*OURS, *task.info)))
    question = " ".join(task.prompt.split())
    shown = question if len(question) <= 60 else f"{question[:57]}..."
    return f"the {title} asks for {name}, which task {task.id} lacks: it has {there} (its question is {shown!r})"
