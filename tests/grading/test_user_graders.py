"""Graders of a user's own, in real worker processes: what they get, what they may give, and all that can go wrong."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.grading import GRADERS, from_trl, grader, make_grader
from whet.plugins import PluginError, load_plugins
from whet.registry import UnknownName
from whet.types import Task

PLUGINS = Path(__file__).parents[1] / "plugins"
TASK = Task(id="t1", prompt="1 + 1?", answer="2", info={"kind": "sum", "colour": "red"})


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    load_plugins([PLUGINS / "my_grader.py", PLUGINS / "all_sorts.py"])


@pytest.fixture(scope="module")
def sorts():
    made = make_grader("sorts", timeout_s=10, num_workers=2)
    yield made
    made.close()


def grades(name, *replies, task=TASK, **settings):
    made = make_grader(name, **{"timeout_s": 10, "num_workers": 1} | settings)
    try:
        return made.grade([(reply, task) for reply in replies])
    finally:
        made.close()


def test_a_number_is_the_score():
    assert [each.score for each in grades("mine", "It is 2", "It is 3", "")] == [1.0, 0.0, 0.0]


def test_a_grade_is_taken_whole_and_the_rest_of_the_info_is_given():
    (grade,) = grades("mine:graded", "2")
    assert (grade.score, grade.extracted) == (0.5, "2")
    assert grade.reason == "t1: 2, ['colour', 'kind', 'prompt']"


def test_arguments_are_given_by_name(sorts):
    (grade,) = grades("needs_colour", "x")
    assert grade.reason == "red 1 2"
    (grade,) = grades("needs_colour", "x", task=Task(id="t2", prompt="?", info={"colour": "blue", "size": 3}))
    assert grade.reason == "blue 3 none"  # it has a default for a missing reference
    (grade,) = grades("needs_colour", "x", task=Task(id="t3", prompt="?", answer="2"))
    assert grade.score is None
    assert "'needs_colour' (needs_colour) asks for colour, which task t3 lacks: it has completion, " in grade.reason
    (grade,) = grades("whole", "x")
    assert grade.reason == "['colour', 'kind'] ['answer', 'colour', 'kind', 'prompt', 'task_id']"
    (grade,) = grades("mine", "x", task=Task(id="t4", prompt="?"))
    assert (grade.score, grade.reason) == (None, "task t4 has no reference answer")
    (grade,) = grades("whole", "x", task=Task(id="t5", prompt="?", info={"set": {1}}))
    assert "cannot be given task t5" in grade.reason


@pytest.mark.parametrize(
    ("reply", "score"),
    [("right", 1.0), ("numpy", 0.25), ("print", 0.5), ("child", 0.5), ("read", 0.5), ("fork", 0.5)],
)
def test_what_is_a_score(sorts, reply, score):
    """What a child that the function forked would answer is nobody's score."""
    grades = sorts.grade([(reply, TASK), ("numpy", TASK), ("numpy", TASK)])
    assert [(grade.score, grade.reason) for grade in grades] == [(score, ""), (0.25, ""), (0.25, "")]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("nan", "gave nan (no number); it must return a number from 0 to 1"),
        ("two", "gave 2.0 (outside of [0, 1]); it must"),
        ("text", "gave '1.0'; it must return a number"),
        ("none", "gave None (no reason); it must"),
        ("array", "gave array([1., 1., 1.]) ("),
        ("grade", "gave Grade(score=1.5"),
        ("silent", "exhausted=False) (no reason); it must"),
        ("raise", "raised KeyError: 'missing' (all_sorts.py, line 29)"),
        ("exit", "raised SystemExit: 0 (all_sorts.py"),
        ("die", "ended its process, or ran it out of memory"),
        ("unknown \udcff", "raised KeyError"),
    ],
)
def test_what_is_none(sorts, reply, says):
    bad, good = sorts.grade([(reply, TASK), ("right", TASK)])
    assert bad.score is None
    assert says in bad.reason
    assert bad.reason.startswith("the grader 'sorts' (sorts) ")
    assert "\n" not in bad.reason
    assert good.score == 1.0


def test_it_may_say_that_it_could_not_tell(sorts):
    (grade,) = sorts.grade([("unsure", TASK)])
    assert (grade.score, grade.reason) == (None, "the judge was away")


@pytest.mark.integration
def test_an_endless_call_is_killed_and_costs_one_limit():
    made = make_grader("sorts", timeout_s=3.0, num_workers=2)
    made.grade([("right", TASK)] * 2)  # started
    began = time.monotonic()
    endless, asleep, right = made.grade([(reply, TASK) for reply in ("endless", "sleep", "right")])
    assert time.monotonic() - began < 60
    processes = [worker._process for worker in made._pool._workers]
    made.close()
    assert (endless.score, asleep.score, right.score) == (None, None, 1.0)
    assert endless.reason == "the grader 'sorts' (sorts) timed out after 3 s; raise data.timeout_s if it needs longer"
    assert made.num_timeouts == 2
    assert all(process.poll() is not None for process in processes)


def test_what_a_function_prints_fills_no_disk():
    made = make_grader("sorts", timeout_s=20, num_workers=1)
    assert [each.score for each in made.grade([("chatty", TASK)] * 3)] == [0.5] * 3
    (worker,) = made._pool._workers
    assert worker._errors.seek(0, 2) < 1_000_000
    made.close()


def test_the_first_failure_is_said_once(caplog):
    with caplog.at_level(logging.WARNING):
        grades("sorts", "nan", "two")
    (record,) = caplog.records
    assert "gave nan" in record.getMessage()


def test_trls_and_verls_functions():
    right, wrong, none = grades("trl", "2", "3", "?")
    assert (right.score, wrong.score, none.score) == (1.0, 0.0, None)
    assert none.reason == "trl_style gave no reward"
    (grade,) = grades("verl", "2", task=Task(id="v", prompt="?", answer="2", info={"kind": "sum", "level": 3}))
    assert (grade.score, grade.extracted) == (1.0, "sum 3")
    assert GRADERS.entry("trl").says == "Pays 2 for the answer."


def trl(function, **settings):
    return asyncio.run(from_trl(function, **settings)("the reply", "the prompt", answer="2", level=3))


def test_trls_signature():
    seen = {}

    def plain(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return [0.5]

    assert trl(plain).score == 0.5
    assert seen == {"answer": ["2"], "level": [3], "prompts": ["the prompt"], "completions": ["the reply"]}
    assert trl(lambda completions, level: [float(level[0] == 3)]).score == 1.0  # it takes what it names
    assert trl(lambda completions: [-1], span=(-3, 1)).score == 0.5
    for rewards, says in [([2.0], "outside of its span 0 to 1"), ([float("nan")], "outside"), ([1, 1], "not a list"),
                          (1.0, "not a list with one reward")]:  # fmt: skip
        with pytest.raises(ValueError, match=says):
            trl(lambda completions, rewards=rewards: rewards)

    def chat(completions):
        return [float(completions[0][0]["content"] == "the reply")]

    assert trl(chat, messages=True).score == 1.0
    with pytest.raises(TypeError, match=r"is adapted by from_trl\(\.\.\., messages=True\)"):
        trl(chat)
    with pytest.raises(ValueError, match="asks for completion_ids, which only TRL's trainer has"):
        from_trl(lambda completions, completion_ids: [1.0])


def test_a_file_that_changed_meanwhile_is_not_run(tmp_path):
    text = "from whet.grading import grader\n\n@grader('changed')\ndef f(completion):\n    return 1.0\n"
    file = tmp_path / "changed.py"
    file.write_text(text)
    load_plugins([file])
    assert grades("changed", "x")[0].score == 1.0
    file.write_text(text.replace("1.0", "0.0"))
    with pytest.raises(PluginError, match=r"'changed' \(f\): .*changed\.py has changed since it was loaded") as error:
        grades("changed", "x")
    assert "\n" not in str(error.value)


def test_a_module_of_an_installed_package(tmp_path, monkeypatch):
    text = "from whet.grading import grader\n\ngrader('installed')(lambda completion, answer: completion == answer)\n"
    (tmp_path / "installed_grader.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("installed_grader")
    assert GRADERS.entry("installed").origin == "installed_grader"
    assert [each.score for each in grades("installed", "2", "3")] == [1.0, 0.0]


def test_a_function_of_a_script_has_no_file_to_be_found_in(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from whet.grading import grader, make_grader\n"
        "@grader('scripted')\ndef f(completion): return 1.0\n"
        "make_grader('scripted')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "was registered by a script or a notebook" in done.stderr
    assert "put it into a file of its own" in done.stderr


def test_names():
    assert {"chains", "math_verify", "published:aqua", "reasoning_gym", "mine"} <= set(GRADERS.names())
    assert (GRADERS.entry("chains").origin, GRADERS.entry("mine").origin) == ("whet", str(PLUGINS / "my_grader.py"))
    assert GRADERS.entry("mine").says == "Right where the last word is the answer."
    with pytest.raises(UnknownName, match="there is no grader 'minee'; did you mean 'mine'"):
        make_grader("minee")
    with pytest.raises(ValueError, match="there is a grader 'chains' already, of whet"):
        grader("chains")(lambda completion: 1.0)
