"""Benchmarks by name: what a user's class is held to, and ours on the first wrong step by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from whet.errors import WhetError
from whet.evaluation.first_error import FIRST_ERROR, PROCESSBENCH, first_error_tasks
from whet.evaluation.user_benchmarks import BENCHMARKS, Benchmark, BenchmarkError, Graded, benchmark, benchmark_of
from whet.methods.critique_data.formats import CritiqueRecord, processbench_of
from whet.tasks.prompts import CHAINS, ENGLISH
from whet.tasks.row_formats import DataError
from whet.types import Grade, Task

ROWS = [
    {"id": "a", "problem": "1 + 1 + 1", "steps": ["Step 1: 1 + 1 = 3", "Step 2: 3 + 1 = 4"], "label": 0},
    {"id": "b", "problem": "1 + 1 + 1", "steps": ["Step 1: 1 + 1 = 2", "Step 2: 2 + 1 = 4"], "label": 1},
    {"id": "c", "problem": "1 + 1 + 1", "steps": ["Step 1: 1 + 1 = 2", "Step 2: 2 + 1 = 3"], "label": -1},
]


class Good:
    """Questions with one word as an answer"""

    def tasks(self, rows):
        return [Task(id=row["id"], prompt=row["q"], answer=row["a"]) for row in rows]

    def grade(self, reply, task):
        return float(reply == task.answer)


@pytest.fixture
def good():
    before = dict(BENCHMARKS._entries)
    benchmark("good")(Good)
    yield BENCHMARKS.get("good")
    BENCHMARKS._entries.clear()
    BENCHMARKS._entries.update(before)


def with_(good: Benchmark, **methods) -> Benchmark:
    """The same with other methods."""
    cls = type("Other", (Good,), {name: staticmethod(method) for name, method in methods.items()})
    return benchmark_of("good", cls, "answer")


def graded(*scores: float | None) -> list[Graded]:
    return [Graded(Task(id=str(i), prompt="q"), "reply", Grade(score=score)) for i, score in enumerate(scores)]


def test_what_it_leaves_out_is_done_for_it(good):
    assert BENCHMARKS.entry("good").says == "Questions with one word as an answer"
    assert good.reads_file
    assert good.uses_prompts
    [task] = good.tasks([{"id": "1", "q": "who?", "a": "me"}])
    messages, prefill = good.messages(task, ENGLISH)
    assert (messages, prefill) == (ENGLISH.solve_messages("who?"), ENGLISH.solve_prefill)
    assert good.grade("me", task, None) == Grade(score=1.0)
    assert good.metrics(graded(1.0, 0.5, None)) == {"score": 0.75, "n": 3.0, "grader_errors": 1.0, "truncated": 0.0}
    assert good.metrics(graded(None))["score"] is None


def test_prompts_are_given_to_those_that_ask_for_them(good):
    task = Task(id="1", prompt="q")
    own = with_(good, messages=lambda task: f"{task.prompt}!")
    assert not own.uses_prompts
    assert own.messages(task, None) == ([{"role": "user", "content": "q!"}], "")
    asking = with_(good, messages=lambda task: "q", grade=lambda reply, task, prompts: float(prompts is CHAINS))
    assert asking.uses_prompts
    assert asking.grade("", task, CHAINS).score == 1
    assert with_(good, messages=lambda task, prompts: prompts.solve_messages("q")).uses_prompts


class Broken:
    """A number whose every use breaks."""

    def __float__(self):
        raise KeyError("mine")

    __str__ = __repr__ = __float__


class BrokenDict(dict):
    def items(self):
        raise KeyError("mine")


def raises(error):
    raise error


def test_a_grades_score_is_a_float_whatever_library_made_it(good):
    grade = with_(good, grade=lambda reply, task: Grade(score=np.float32(1))).grade("", Task(id="1", prompt="q"), None)
    assert type(grade.score) is float


def test_the_metrics_may_do_what_they_like_with_the_replies(good):
    metrics = with_(good, metrics=lambda graded: graded.clear() or {"x": 1}).metrics(graded(1.0, None))
    assert (metrics["n"], metrics["grader_errors"]) == (2, 1)


def test_an_argument_with_a_default_is_the_methods_own(good):
    strict = with_(good, grade=lambda reply, task, strict=True: float(strict is True))
    assert strict.grade("", Task(id="1", prompt="q"), CHAINS).score == 1
    named = with_(good, grade=lambda reply, task, prompts=None: float(prompts is CHAINS))
    assert named.grade("", Task(id="1", prompt="q"), CHAINS).score == 1


def broken(*arguments):
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (lambda reply, task: 2, r"grade has to return a number in \[0, 1\] or a Grade, not '2'"),
        (lambda reply, task: math.nan, "has to return a number"),
        (lambda reply, task: "1", "has to return a number"),
        (lambda reply, task: None, "has to return a number"),
        (lambda reply, task: Grade(score=1.5), "has to return a number"),
        (lambda reply, task: {}["x"], "raised KeyError: 'x' in grade; mend it"),
        (lambda reply, task: exit(), "raised SystemExit"),
        (lambda reply, task: Grade(score=None, reason="no judge"), "no judge"),
        (lambda reply, task: Grade(score="1"), "has to return a number"),
        (lambda reply, task: Grade(score=1.0, extracted=object()), "has to return a number"),
        (lambda reply, task: Grade(score=1.0, extracted="\ud800"), "has to return a number"),
        (lambda reply, task: Broken(), "has to return a number .* not one of type Broken"),
        (lambda reply, task: raises(WhetError("mine")), "the benchmark 'good' of .*: mine"),
        (lambda reply, task: raises(DataError("mine")), "the benchmark 'good' of .*: mine"),
    ],
)
def test_a_reply_that_cannot_be_graded_has_no_score_and_a_reason(good, method, says):
    grade = with_(good, grade=method).grade("x", Task(id="1", prompt="q"), None)
    assert grade.score is None
    assert re.search(says, grade.reason)
    assert "\n" not in grade.reason


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"tasks": lambda rows: 3}, "tasks has to return a list of whet.Task, not '3'"),
        ({"tasks": lambda rows: []}, "made no tasks"),
        ({"tasks": lambda rows: [Task(id="1", prompt="q")] * 2}, "gave two tasks the id '1'"),
        ({"tasks": lambda rows: rows[0]["none"]}, "raised KeyError: 'none' in tasks"),
        (
            {"tasks": lambda rows: [Task(id=1, prompt="q")]},
            r"task 1 has the id '1': give each task a text .* str\(number\)",
        ),
        ({"tasks": lambda rows: [Task(id=[1], prompt="q")]}, "task 1 has the id"),
        ({"tasks": lambda rows: [Task(id="", prompt="q")]}, "task 1 has the id"),
        ({"tasks": lambda rows: [Task(id="1", prompt=5)]}, "task 1 has the prompt '5', which is no text"),
        (
            {"tasks": lambda rows: [Task(id="1", prompt="\ud800")]},
            "which is no text of whole characters",
        ),
        (
            {"tasks": lambda rows: [Task(id="1", prompt="q", answer=5)]},
            "task 1 has the answer '5', which is no",
        ),
        ({"messages": lambda task: 5}, "messages has to return a text, or messages"),
        ({"messages": lambda task: [{"role": "user"}]}, "messages has to return a text, or messages"),
        ({"metrics": lambda graded: 5}, "metrics has to return numbers by name"),
        ({"metrics": lambda graded: {"": 5}}, "a metric cannot be named ''"),
        ({"metrics": lambda graded: {"a\nb": 5}}, "a metric cannot be named"),
        ({"metrics": lambda graded: {"x" * 999: 5}}, "a metric cannot be named"),
        ({"metrics": lambda graded: {"x": 1e300}}, "of at most 1e\\+09 in size"),
        ({"metrics": lambda graded: BrokenDict(x=1)}, "what metrics returns raised KeyError: 'mine'; give a dict"),
        ({"metrics": lambda graded: raises(WhetError("mine"))}, ": mine"),
        ({"metrics": lambda graded: {"n": 5}}, "a metric cannot be named 'n'"),
        ({"metrics": lambda graded: {"x": math.inf}}, "its metric 'x' is 'inf': give a finite number"),
        ({"metrics": lambda graded: 1 / 0}, "raised ZeroDivisionError: division by zero in metrics; mend it"),
    ],
)
def test_what_is_no_benchmark_is_a_sentence_that_names_it(good, method, says):
    other = with_(good, **method)
    arguments = {"tasks": ([{"id": "1"}],), "messages": (Task(id="1", prompt="q"), CHAINS), "metrics": (graded(1.0),)}
    [name] = method
    with pytest.raises(BenchmarkError, match=f"the benchmark 'good' of .*{says}") as error:
        getattr(other, name)(*arguments[name])
    assert isinstance(error.value, WhetError)
    assert "\n" not in str(error.value)


async def later(reply, task):
    return 1.0


@pytest.mark.parametrize(
    ("methods", "skill", "says"),
    [
        ({"tasks": None}, "answer", r"needs a method tasks\(self, rows\), or tasks\(self\)"),
        ({"tasks": lambda rows, more: []}, "answer", "needs a method tasks"),
        ({"grade": lambda reply: 1.0}, "answer", r"needs a method grade\(self, reply, task\)"),
        ({"metrics": 5}, "answer", r"needs a method metrics\(self, graded\)"),
        ({"grade": lambda reply, task, *, x: 1.0}, "answer", "nothing gives grade its x: give it a default"),
        ({"grade": later}, "answer", "write grade without async or yield"),
        ({}, "critique", r"needs a method messages\(self, task\)"),
        ({}, "sing", "has skill='sing'; choose of: answer, critique"),
    ],
)
def test_a_class_that_lacks_something_is_refused_as_it_is_registered(methods, skill, says):
    own = {name: staticmethod(each) if callable(each) else each for name, each in methods.items()}
    with pytest.raises(ValueError, match=f"the benchmark 'of a test':? {says}"):
        benchmark("of a test", skill=skill)(type("Bad", (Good,), own))
    assert "of a test" not in BENCHMARKS


def test_a_name_of_ours_is_refused():
    with pytest.raises(ValueError, match="there is a benchmark 'processbench' already, of whet: choose another name"):
        benchmark("processbench")(Good)


# --- ours -------------------------------------------------------------------------------------------------------------


def test_labelled_rows_become_tasks_and_what_is_none_is_said():
    [task, _, right] = first_error_tasks(ROWS)
    assert (task.id, task.answer, right.answer) == ("a", "0", "-1")
    assert "(0) Step 1: 1 + 1 = 3\n(1) Step 2" in task.prompt
    for row, says in (
        (
            {"problem": "q", "label": 0},
            "row 2 needs problem, a text, and steps, a list of texts; it has problem, la",
        ),
        (ROWS[0] | {"label": 2}, "row 2: label = 2 has to be the index of a step, or -1"),
        (ROWS[0] | {"label": True}, "row 2: label = True"),
    ):
        with pytest.raises(DataError, match=says):
            PROCESSBENCH.tasks([ROWS[0], row])


def test_what_a_run_of_critique_data_writes_is_read(tmp_path):
    record = CritiqueRecord(
        id="x", qid="x", dataset="d", question="1 + 1", gold="2", response="1 + 1 = 3", policies={}, source="given",
        right=False, error_step=0,
    )  # fmt: skip
    row = processbench_of(record, ["1 + 1 = 3\n"])
    [task] = first_error_tasks([row])
    assert (task.id, task.answer, task.info["right"], task.info["steps"]) == ("x", "0", False, ["1 + 1 = 3"])


def test_the_index_in_the_last_box_counts_and_f1_is_of_both_classes():
    tasks = PROCESSBENCH.tasks(ROWS)
    [message], prefill = PROCESSBENCH.messages(tasks[0], None)
    assert "1 + 1 + 1\n\n(0) Step 1: 1 + 1 = 3" in message["content"]
    assert not prefill
    replies = ["first \\boxed{1}, no: \\boxed{ 0 }", "none is \\boxed{-1}", "all right \\boxed{-1}"]
    found = [Graded(t, r, PROCESSBENCH.grade(r, t, None)) for t, r in zip(tasks, replies, strict=True)]
    assert [each.grade.score for each in found] == [1, 0, 1]
    metrics = PROCESSBENCH.metrics(found)
    assert (metrics["err"], metrics["cor"], metrics["f1"]) == (0.5, 1.0, pytest.approx(2 / 3))
    assert (metrics["unreadable"], metrics["n"], metrics["grader_errors"]) == (0, 3, 0)
    mute = PROCESSBENCH.grade("step 0", tasks[0], None)  # a miss of the model's, and no failure of ours
    assert (mute.score, mute.extracted) == (0.0, None)
    assert PROCESSBENCH.metrics([Graded(tasks[0], "step 0", mute)])["unreadable"] == 1


def test_a_critics_index_is_its_first_label_of_wrong():
    task = FIRST_ERROR.tasks(ROWS)[1]
    messages, _ = FIRST_ERROR.messages(task, CHAINS)
    assert messages == CHAINS.critique_messages(ROWS[1]["problem"], "\n".join(ROWS[1]["steps"]))
    first = "Step 1: 1 + 1 = 2, claimed 2: Correct\n"
    second = "Step 2: 2 + 1 = 3, claimed 4: Wrong, so write 3\n"
    for critique, index in (
        (first + second + CHAINS.closing(right=False), "1"),
        (first + CHAINS.closing(right=True), "-1"),
        (CHAINS.closing(right=True), "-1"),
        (first + CHAINS.closing(right=False), None),  # wrong, and no step is
        (first, None),
    ):
        assert FIRST_ERROR.grade(critique, task, CHAINS).extracted == index, critique
