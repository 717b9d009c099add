"""Trackers beside a run: processes that the run starts, and never waits for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.commands import events, same_bits, whet
from whet.tracking import beside
from whet.tracking.beside import Beside

TINY = (
    *("num_steps=3", "prompts_per_step=2", "group_size=2", "validate_every=3", "num_threads=1", "checkpoint_every=1"),
    *("data.num_train=8", "data.num_validation=2", "data.num_test=2", "evaluation.num_samples=0"),
)


def wait_until(is_true, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _no_process_stays():
    yield
    for process in beside._left_behind:
        process.kill()
        process.wait()
    beside._left_behind.clear()


def test_a_tracker_that_dies_is_reported_once(run):
    told = []
    trackers = Beside(run.path, ["json"], told.append)  # a package, and no tracker: its process ends with an error
    trackers.start()
    wait_until(lambda: trackers.look() or told)
    trackers.look()
    trackers.close()
    [text] = told
    assert text.startswith("the tracker json ended with exit code 1 (TrackError: there is no tracker 'json'")
    assert f"see {run.path / 'tracking/json.log'}" in text


def test_a_missing_package_and_a_place_that_cannot_be_written(run):
    told = []
    Beside(run.path, ["no_such_tracker"], told.append).start()
    (run.path / "tracking").write_text("in the way")
    Beside(run.path, ["json"], told.append).start()
    assert "needs the package no_such_tracker" in told[0]
    assert "the tracker json cannot start (File exists); the run goes on without it" in told[1]


def test_it_follows_to_the_end_though_it_was_stopped_meanwhile(run, step):
    pytest.importorskip("tensorboard")
    told = []
    trackers = Beside(run.path, ["tensorboard"], told.append)
    trackers.start()
    process = trackers._processes["tensorboard"]
    state = run.path / "tracking/tensorboard.json"
    step("train", 1)
    wait_until(lambda: state.exists() and json.loads(state.read_text())["steps"])
    os.kill(process.pid, signal.SIGSTOP)
    for number in range(2, 200):
        step("train", number)
    started = time.monotonic()
    trackers.look()
    trackers.close()
    assert time.monotonic() - started < 1
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(timeout=60) == 0
    assert json.loads(state.read_text())["steps"] == {"train": 199}
    assert told == []


def test_it_ends_with_the_process_that_started_it(run, step):
    pytest.importorskip("tensorboard")
    step("train", 1)
    code = "import os, sys, time; from pathlib import Path; from whet.tracking.beside import Beside\n"
    code += f"b = Beside(Path({str(run.path)!r}), ['tensorboard'], print); b.start()\n"
    code += "print(b._processes['tensorboard'].pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    parent.kill()  # as a run that is killed
    parent.wait()
    parent.stdout.close()
    log = run.path / "tracking/tensorboard.log"
    wait_until(lambda: "sent 1 steps" in log.read_text())
    wait_until(lambda: not is_running(pid))


def test_a_tracker_that_hangs_ends_some_time_after_the_run(run, step):
    step("train", 1)
    code = "import sys; from pathlib import Path; from whet.tracking import process, protocol\n"
    code += "protocol.KINDS['json'] = 'support.lines_tracker:Hangs'; process.GIVE_UP_S = 0.5; process.POLL_S = 0.1\n"
    code += f"sys.exit(process.main(Path({str(run.path)!r}), 'json'))"
    places = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": places},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (run.path / "tracking/json/lines.jsonl").exists())  # it has begun, and hangs
    assert process.poll() is None
    _, errors = process.communicate(timeout=60)  # closes its input: the run has ended
    assert process.returncode == 1
    assert "gave up 0 s after the end of the run" in errors


def is_running(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.integration
def test_a_run_with_trackers_has_the_bits_of_one_without_and_resume_may_change_them(tmp_path):
    pytest.importorskip("tensorboard")
    plain, tracked = tmp_path / "plain", tmp_path / "tracked"
    whet("train", "grpo", *TINY, "--out", plain)
    whet("train", "grpo", *TINY, "track=[tensorboard]", "--out", tracked)
    same_bits(plain, tracked)
    state = tracked / "tracking/tensorboard.json"
    wait_until(lambda: state.exists() and json.loads(state.read_text())["summary"])
    assert json.loads(state.read_text())["steps"]["train"] == 3
    done = whet("train", "grpo", *TINY, "--out", tracked)  # the same run, though nothing tracks it now
    assert "is finished" in done.stdout
    (tracked / "summary.json").unlink()
    whet("resume", tracked, "track=[]")
    assert "track: []" in (tracked / "config.yaml").read_text()
    assert events(tracked, "tracker_failed") == []
