"""Grading of mathematics within limits: no reply can hang or kill the run. `mathgrade` has tests of its own."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import whet.grading
from mathgrade.published import SET_NAMES
from whet.grading import MathTaskGrader, PublishedGrader, make_grader
from whet.grading.maths import MathGrader
from whet.methods.solvers import solve_metrics
from whet.rollout.roles import written
from whet.sandbox.workers import Failure, WorkerError, WorkerPool
from whet.types import Episode, Grade, Task

SOURCE = Path(whet.grading.__file__).parents[2]


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout_s=20) as shared:
        yield shared


def test_order_reasons_and_what_was_extracted(grader):
    grades = grader.grade([("5", "5"), (r"\boxed{x}", "y"), ("", "5"), ("7", ""), (r"\boxed{7}", r"\frac{}{")])
    assert [grade.score for grade in grades] == [1.0, 0.0, 0.0, None, None]
    assert [grade.extracted for grade in grades] == ["5", "x", None, None, "7"]
    assert grades[3].reason == "the reference is empty"
    assert "cannot read the reference" in grades[4].reason
    assert grader.grade([]) == []


# --- what must not hang or kill the run -----------------------------------------------------------------------------


@pytest.mark.integration
def test_bombs_time_out_and_the_run_goes_on():
    bombs = [r"\boxed{9^{9^{9^9}}}", "The answer is 9**9**9**9", "\\boxed{" + "\\sqrt{" * 200 + "2" + "}" * 201]
    start = time.monotonic()
    with MathGrader(timeout_s=3.0) as grader:
        grades = grader.grade([*((bomb, "3") for bomb in bombs), (r"\boxed{4 - 1}", "3"), (bombs[0], "3")])
        processes = [worker._process for worker in grader._pool._workers]
    assert time.monotonic() - start < 60
    assert grades[0] == Grade(score=0.0, reason="timed out after 3 s", extracted="9^{9^{9^{9}}}", exhausted=True)
    assert grades[4] == grades[0]
    assert grades[3].score == 1.0
    assert [grade.score for grade in grades[1:3]] == [0.0, 0.0]
    assert grader.num_timeouts == 0
    assert all(process.returncode is not None for process in processes), "no process is left, dead or alive"


@pytest.mark.integration
def test_a_reference_that_exhausts_the_grader_is_nobodys_fault_but_its_own():
    bomb = "9^{9^{9^9}}"
    with MathGrader(timeout_s=3.0) as grader:
        late, right = grader.grade([(r"\boxed{3}", bomb), (r"\boxed{\frac{6}{2}}", r"\sqrt{9}")])
        assert (late.score, late.reason, late.exhausted, grader.num_timeouts) == (None, "timed out after 3 s", False, 1)
        assert right.score == 1.0


ECHO = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request.get("do") == "die":
        os._exit(3)
    if request.get("do") == "sleep":
        time.sleep(60)
    print(json.dumps({**request, "pid": os.getpid()}), flush=True)
"""


def echo_pool(**settings):
    return WorkerPool((sys.executable, "-S", "-E", "-c", ECHO), **{"num_workers": 2, "timeout_s": 3, **settings})


def test_pool_keeps_order_and_replaces_lost_workers():
    wishes = [None, "die", None, "sleep", None, None, "die"]
    with echo_pool() as pool:
        answers = pool.map([{"n": n, "do": wish} for n, wish in enumerate(wishes)])
        assert [answer["n"] for answer in answers if not isinstance(answer, Failure)] == [0, 2, 4, 5]
        kinds = [answer.kind for answer in answers if isinstance(answer, Failure)]
        assert kinds == ["died", "timeout", "died"]
        assert len({answer["pid"] for answer in pool.map([{"n": n} for n in range(50)])}) <= 2
        assert pool.map([{"n": 1, "text": "x" * 1_000_000}])[0]["n"] == 1
    assert not pool._workers
    assert pool.map([{"n": 2}])[0]["n"] == 2, "a closed pool starts anew"
    pool.close()


def test_pool_says_why_a_worker_does_not_start():
    broken = WorkerPool((sys.executable, "-c", "raise SystemExit('no such package')"), num_workers=1, timeout_s=1)
    with pytest.raises(WorkerError, match="no such package"):
        broken.map([{}])
    assert not broken._workers
    with pytest.raises(ValueError, match="at least 1"):
        echo_pool(num_workers=0)


def test_memory_is_limited():
    with MathGrader(timeout_s=20, memory_gib=0.05) as grader, pytest.raises(WorkerError):
        grader.grade([(r"\boxed{x + 1}", "1 + x")])


SCRIPT = r"""
import os, sys
from whet.grading.maths import MathGrader
assert "torch" not in sys.modules and "sympy" not in sys.modules
grader = MathGrader(timeout_s=100)
grader.grade([(r"\boxed{x + 1}", "1 + x")])
print(grader._pool._workers[0]._process.pid, flush=True)
if sys.argv[1] == "bomb":
    grader.grade([(r"\boxed{9^{9^{9^9}}}", "3")])
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("ending", ["exit", "bomb"])
def test_workers_end_with_the_program_and_on_ctrl_c(ending):
    with subprocess.Popen(
        (sys.executable, "-c", SCRIPT, ending),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    ) as program:
        pid = int(program.stdout.readline())
        if ending == "bomb":
            time.sleep(0.3)
            program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=20)
    assert ("KeyboardInterrupt" in errors) is (ending == "bomb")
    assert not is_alive(pid)


def test_the_worker_does_not_import_torch():
    worker = SOURCE / "whet" / "grading" / "math_worker.py"
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print('torch' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", code, worker), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- graders of tasks -----------------------------------------------------------------------------------------------


def test_math_task_grader():
    grader = MathTaskGrader()
    known, unknown = Task(id="a", prompt="?", answer="5"), Task(id="b", prompt="?")
    grades = grader.grade([("5", known), ("5", unknown), ("6", known)])
    assert [grade.score for grade in grades] == [1.0, None, 0.0]
    assert grades[1].reason == "task b has no reference answer"
    grader.close()


@pytest.mark.parametrize("set_name", SET_NAMES)
def test_grader_accepts_its_gold_answer_and_rejects_others(set_name):
    answer = {"aqua": "C", "mathqa": "C", "math": r"\frac{1}{2}"}.get(set_name, "12")
    task = Task(id="1", prompt="?", answer=answer)
    replies = [f"The answer is {answer}.", "", "The answer is 1, or B, or 3."]
    assert [grade.score for grade in PublishedGrader(set_name).grade([(reply, task) for reply in replies])] == [1, 0, 0]
    assert PublishedGrader(set_name).grade([("5", Task(id="2", prompt="?"))])[0].score is None


@pytest.mark.parametrize(
    ("reply", "score", "extracted"),
    [
        ("7 + 5 = 2\nThe answer is 2", 1.0, "2"),
        ("The answer is 2", 1.0, "2"),
        ("The answer is 1\nThe answer is 3", 0.0, "3"),
        ("The answer is 2.", 0.0, None),
        ("The answer is 12", 0.0, None),
        ("The answer is 1 2 3", 0.0, None),
        ("The answer is 2\n7 + 5", 0.0, None),
        ("7 + 5 = 2\nThe answer is", 0.0, None),
        ("2", 0.0, None),
        ("", 0.0, None),
    ],
)
def test_chain_grader(reply, score, extracted):
    (grade,) = make_grader("chains").grade([(reply, Task(id="a", prompt="7 + 5", answer="2"))])
    assert (grade.score, grade.extracted) == (score, extracted)


def test_make_grader_knows_its_names():
    assert isinstance(make_grader("math_verify", timeout_s=1, num_workers=2), MathTaskGrader)
    assert make_grader("published:gsm8k").grade([("The answer is 5", Task(id="a", prompt="?", answer="5"))])[0].score
    with pytest.raises(ValueError, match=r"no grader 'maths'; did you mean 'math_verify'\? There are: chains, basics,"):
        make_grader("maths")


def test_exhausted_replies_are_counted_and_wrong():
    bomb, right = Grade(score=0.0, reason="timed out after 3 s", exhausted=True), Grade(score=1.0)
    task = Task(id="a", prompt="?", answer="3")
    replies = [replace(written("solver", "3", policy="p"), grade=grade) for grade in (bomb, right)]
    episodes = [Episode(task=task, segments=(reply,)) for reply in replies]
    found = solve_metrics(episodes)
    assert (found["acc"], found["reply_exhausted"], found["grader_errors"]) == (0.5, 1.0, 0.0)
