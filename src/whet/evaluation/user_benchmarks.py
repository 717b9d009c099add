"""`@whet.benchmark`: tasks, how a model is asked, how its replies are graded, and which numbers come of them.

`whet eval MODEL --benchmark NAME` measures a model by one. Ours (`first_error`) register as a user's do. Free of torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, TypeVar, get_args

from whet.errors import WhetError, text_of
from whet.evaluation.critique import Metrics
from whet.evaluation.time_limit import TimeLimitPassed, time_limit
from whet.plugins import line_of, said
from whet.registry import Registry
from whet.tasks.prompts import Message, Prompts
from whet.types import MAX_REWARD, Grade, Task, as_reward, in_brief, is_whole

Skill = Literal["answer", "critique"]
"""What a model is asked for."""
F = TypeVar("F", bound=Callable[[], Any])
COUNTS = ("n", "grader_errors", "truncated")
"""Metrics that every benchmark has; none of its own may have such a name."""
MAX_NAME = 60
"""Characters of a metric's name."""


class BenchmarkError(WhetError):
    """A benchmark broke, or gave something else than was asked of it."""


@dataclass(frozen=True, slots=True)
class Graded:
    """One reply and what the benchmark made of it."""

    task: Task
    reply: str
    grade: Grade
    is_truncated: bool = False
    """Cut off at the token limit."""


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark: the user's class, held to what `benchmark` asks of it."""

    name: str
    thing: Any = field(repr=False)
    """An instance of the class."""
    skill: Skill
    reads_file: bool
    """Whether its tasks are made of the rows of a file."""

    @property
    def uses_prompts(self) -> bool:
        """Whether it asks or reads by the templates of the model's run."""
        return not hasattr(self.thing, "messages") or any(
            _num_arguments(method) > count for method, count in ((self.thing.messages, 1), (self.thing.grade, 2))
        )

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that it reads, besides those that name it and its plug-ins."""
        file = ("file",) if self.reads_file else ()
        prompts = ("prompts",) if self.uses_prompts else ()
        return (*file, "limit", "policy", *prompts, "max_new_tokens", "timeout_s", "device", "dtype")

    def tasks(self, rows: Sequence[Mapping[str, Any]]) -> list[Task]:
        """Args: rows: of the file, where it reads one.

        Raises: BenchmarkError where these are no tasks with different ids; DataError of a row.
        """
        tasks = self._called("tasks", *([rows] if self.reads_file else []))
        tasks = list(tasks) if isinstance(tasks, Sequence) else tasks
        if not isinstance(tasks, list) or not all(isinstance(task, Task) for task in tasks):
            raise BenchmarkError(f"{self._whose}: tasks has to return a list of whet.Task, not {in_brief(tasks)}")
        if not tasks:
            raise BenchmarkError(f"{self._whose} made no tasks: give a file with rows that it takes")
        for number, task in enumerate(tasks, 1):
            if problem := _task_problem(task):
                raise BenchmarkError(f"{self._whose}: task {number} has {problem}")
        ids = [task.id for task in tasks]
        if twice := next((name for name in ids if ids.count(name) > 1), None) if len(set(ids)) < len(ids) else None:
            raise BenchmarkError(f"{self._whose} gave two tasks the id {twice!r}: give each one of its own")
        return tasks

    def messages(self, task: Task, prompts: Prompts | None) -> tuple[list[Message], str]:
        """What the model reads, and what its reply begins with.

        Raises: BenchmarkError.
        """
        if not hasattr(self.thing, "messages"):
            assert prompts is not None, "asked for where there is no messages"
            return prompts.solve_messages(task.prompt), prompts.solve_prefill
        messages = self._called("messages", task, prompts)
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if not isinstance(messages, Sequence) or not messages or not all(map(_is_message, messages)):
            raise BenchmarkError(
                f"{self._whose}: messages has to return a text, or messages with role and content, not "
                f"{in_brief(messages)}, for task {task.id[:60]!r}"
            )
        return list(messages), ""

    def grade(self, reply: str, task: Task, prompts: Prompts | None, *, timeout_s: float = 5.0) -> Grade:
        """Never raises: what breaks or takes too long is a grade without a score, which is counted and left out.

        Args:
            timeout_s: seconds that it may take.
        """
        try:
            with time_limit(timeout_s):
                return self._graded(reply, task, prompts)
        except TimeLimitPassed:
            return Grade(
                score=None,
                reason=f"{self._whose}: grade took longer than {timeout_s:g} s; mend it, or raise timeout_s",
            )

    def _graded(self, reply: str, task: Task, prompts: Prompts | None) -> Grade:
        try:
            grade = self._called("grade", reply, task, prompts)
        except BenchmarkError as error:
            return Grade(score=None, reason=str(error))
        except WhetError as error:  # the benchmark's own, or our refusal to end the process
            return Grade(score=None, reason=f"{self._whose}: {text_of(error)}")
        if isinstance(grade, Grade) and _is_text(grade.reason) and _is_text(grade.extracted or ""):
            if grade.score is None:
                return grade
            score = as_reward(grade.score)
            if score is not None and 0 <= score <= 1:
                return replace(grade, score=score)
        score = as_reward(grade)
        if score is None or not 0 <= score <= 1:
            return Grade(
                score=None,
                reason=f"{self._whose}: grade has to return a number in [0, 1] or a Grade, not {in_brief(grade)}",
            )
        return Grade(score=score)

    def metrics(self, graded: Sequence[Graded]) -> Metrics:
        """Its own metrics over the replies that have a score, and the counts of `COUNTS`.

        Raises: BenchmarkError where they are no finite numbers, or None, by name.
        """
        scored = [each for each in graded if each.grade.score is not None]
        if hasattr(self.thing, "metrics"):
            numbers = self._own_metrics(scored)
        else:
            numbers = {"score": fmean(each.grade.score or 0.0 for each in scored) if scored else None}
        return numbers | {
            "n": float(len(graded)),
            "grader_errors": float(len(graded) - len(scored)),
            "truncated": fmean(each.is_truncated for each in graded) if graded else None,
        }

    def _own_metrics(self, scored: Sequence[Graded]) -> dict[str, float | None]:
        """Raises: BenchmarkError."""
        try:
            metrics = self._called("metrics", list(scored))  # a copy: it may sort or empty its own
        except BenchmarkError:
            raise
        except WhetError as error:
            raise BenchmarkError(f"{self._whose}: {text_of(error)}") from error
        if not isinstance(metrics, Mapping):
            raise BenchmarkError(f"{self._whose}: metrics has to return numbers by name, not {in_brief(metrics)}")
        try:
            values = dict(metrics.items())
        except Exception as error:  # a user's class
            raise BenchmarkError(f"{self._whose}: what metrics returns raised {said(error)}; give a dict") from error
        numbers: dict[str, float | None] = {}
        for name, value in values.items():
            if not isinstance(name, str) or not _is_metric_name(name):
                raise BenchmarkError(f"{self._whose}: a metric cannot be named {in_brief(name)}: choose another name")
            number = None if value is None else as_reward(value)
            if value is not None and number is None:
                raise BenchmarkError(
                    f"{self._whose}: its metric {name!r} is {in_brief(value)}: give a finite number of at most "
                    f"{MAX_REWARD:g} in size, or None where there is nothing to divide by"
                )
            numbers[name] = number
        return numbers

    @property
    def _whose(self) -> str:
        return f"the benchmark {self.name!r} of {BENCHMARKS.entry(self.name).origin}"

    def _called(self, name: str, *arguments: Any) -> Any:
        """Raises: BenchmarkError where it breaks; its own WhetError as it is."""
        method = getattr(self.thing, name)
        try:
            return method(*arguments[: _num_arguments(method)])
        except (KeyboardInterrupt, TimeLimitPassed, WhetError):
            raise
        except BaseException as error:  # SystemExit and CancelledError too
            where = line_of(error, BENCHMARKS.entry(self.name).origin)
            raise BenchmarkError(f"{self._whose}{where} raised {said(error)} in {name}; mend it") from error


BENCHMARKS: Registry[Benchmark] = Registry("benchmark")
"""The benchmarks that `whet eval --benchmark` takes."""


def benchmark(name: str, *, skill: Skill = "answer", says: str = "") -> Callable[[F], F]:
    """Registers a benchmark, for `whet eval MODEL --benchmark NAME`:

        @whet.benchmark("sums")
        class Sums:
            def tasks(self, rows):
                return [Task(id=row["id"], prompt=row["question"], answer=row["sum"]) for row in rows]

            def grade(self, reply, task):
                return float(reply.strip() == task.answer)

    `tasks(self, rows)` makes tasks of a file's rows; `tasks(self)` needs no file. `grade(self, reply, task)` gives a
    number in [0, 1], or a `Grade`. Two methods are free to be there: `messages(self, task)` says how a model is asked,
    as a text or as messages; without it, by the prompts of its run. `metrics(self, graded)` gives numbers by name, of
    the replies that have a score; without it there is `score`, their mean. `messages` and `grade` may take the prompts
    as one more argument.

    Args:
        skill: what the model is asked for. Of a run it says which policy is measured, and with which limits.
        says: what it is, in a line. Empty: the docstring's first one.
    Raises: ValueError where the class lacks a method, or one cannot be called like that.
    """

    def register(cls: F) -> F:
        says_of = says or (cls.__doc__ or "").strip().partition("\n")[0]
        BENCHMARKS.add(name, benchmark_of(name, cls, skill), says=says_of)
        return cls

    return register


def benchmark_of(name: str, cls: Callable[[], Any], skill: Skill) -> Benchmark:
    """A benchmark of a class.

    Raises: ValueError where it lacks a method, or one cannot be called like that.
    """
    if skill not in get_args(Skill):
        raise ValueError(f"the benchmark {name!r} has skill={skill!r}; choose of: {', '.join(get_args(Skill))}")
    thing = cls()
    for method, counts, is_needed in (
        ("tasks", (0, 1), True),
        ("grade", (2, 3), True),
        ("messages", (1, 2), skill == "critique"),
        ("metrics", (1,), False),
    ):
        if not hasattr(thing, method) and not is_needed:
            continue
        function = getattr(thing, method, None)
        if not callable(function) or _num_arguments(function) not in counts:
            raise ValueError(f"the benchmark {name!r} needs a method {_FORMS[method]}")
        if missing := _needed_keywords(function):
            raise ValueError(f"the benchmark {name!r}: nothing gives {method} its {missing[0]}: give it a default")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ValueError(f"the benchmark {name!r}: write {method} without async or yield, as it returns its result")
    return Benchmark(name, thing, skill, reads_file=_num_arguments(thing.tasks) == 1)


_FORMS = {
    "tasks": "tasks(self, rows), or tasks(self)",
    "grade": "grade(self, reply, task), or grade(self, reply, task, prompts)",
    "messages": "messages(self, task), or messages(self, task, prompts)",
    "metrics": "metrics(self, graded)",
}
_ARGUMENTS = ("rows", "reply", "task", "prompts", "graded")
"""The names in `_FORMS`."""


def _num_arguments(method: Callable[..., Any]) -> int:
    """Those that are given by position. A last one with a default is the method's own, unless `_FORMS` has its name."""
    parameters = inspect.signature(method).parameters.values()
    given = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    while given and given[-1].default is not inspect.Parameter.empty and given[-1].name not in _ARGUMENTS:
        given.pop()
    return len(given)


def _needed_keywords(method: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(method).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]


def _task_problem(task: Task) -> str:
    """What keeps a task from being asked and kept, as the object of `has`. Empty: nothing."""
    if not _is_text(task.id) or not task.id:
        return f"the id {in_brief(task.id)}: give each task a text of its own, such as str(number)"
    for name, value in (("prompt", task.prompt), ("answer", "" if task.answer is None else task.answer)):
        if not _is_text(value):
            return f"the {name} {in_brief(value)}, which is no text of whole characters: write it as text"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_whole(value)


def _is_metric_name(name: str) -> bool:
    return name not in COUNTS and name.isprintable() and bool(name.strip()) and len(name) <= MAX_NAME


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, Mapping)
        and message.keys() == {"role", "content"}
        and message["role"] in ("system", "user", "assistant")
        and isinstance(message["content"], str)
        and is_whole(message["content"])
    )


_FIRST_ERROR = "whet.evaluation.first_error"
BENCHMARKS.late(
    "processbench", f"{_FIRST_ERROR}:PROCESSBENCH", says="ProcessBench: a solution's first wrong step (2412.06559)"
)
BENCHMARKS.late("first_error", f"{_FIRST_ERROR}:FIRST_ERROR", says="the same, read from a critic's own critique")
