"""Code that a run calls cannot end its process: `os._exit`, `os.abort` and `sys.exit` are failures, never success."""

from __future__ import annotations

import os
import posix
import subprocess
import sys
import threading

import pytest

from support.commands import ENVIRONMENT, whet
from support.counter import AsyncCounter, Counter, info_of
from whet.exits import ProcessExit, exits_refused
from whet.rollout.driver import Ask
from whet.rollout.environments import Act, Begin, Environments
from whet.rollout.free import roll_out_free
from whet.rollout.services import Fault

WAYS = {
    "os._exit": lambda: os._exit(0),
    "os.abort": lambda: os.abort(),
    "SystemExit": lambda: sys.exit(0),
    "KeyboardInterrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
}


def ending(base, way):
    """An environment that ends the process where it is asked to."""

    class Ending(base):
        def step(self, action):
            if action == "end":
                WAYS[way]()
            return Counter.step(self, action)

    class AsyncEnding(base):
        async def step(self, action):
            if action == "end":
                WAYS[way]()
            return Counter.step(self, action)

    return AsyncEnding if base is AsyncCounter else Ending


async def acted(info, action):
    begin = Begin(info, 3, 0, {"share": 0})
    await Ask("environment", begin)
    try:
        return (await Ask("environment", Act(begin.lease, action))).observation
    except Fault as fault:
        return fault.failure


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", [Counter, AsyncCounter])
def test_an_environment_that_ends_the_process_is_a_failure_and_the_others_go_on(base, way):
    info, envs = info_of(ending(base, way)), Environments(timeout_s=20)
    with exits_refused():
        actions = ["go", "end", "go", "end", "go"]
        answers = roll_out_free([acted(info, action) for action in actions], {"environment": envs})
        again = roll_out_free([acted(info, "go")], {"environment": envs})  # the loop of coroutines is still there
    envs.close()
    assert [answers[0], answers[2], answers[4], *again] == ["2 to go"] * 4
    for failure in (answers[1], answers[3]):
        assert failure.kind == "env_error"
        assert way in failure.reason


def test_outside_the_block_the_functions_are_what_they_were():
    before = os._exit, posix._exit, os.abort
    with exits_refused(), exits_refused():
        assert os._exit is posix._exit is not before[0]
    assert (os._exit, posix._exit, os.abort) == before


def test_a_forked_child_ends_as_it_likes():
    with exits_refused():
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_it_holds_in_threads_and_says_where():
    raised = []

    def end():
        try:
            os._exit(0)
        except ProcessExit as error:
            raised.append(str(error))

    with exits_refused():
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    assert f"os._exit(0) in {__file__}, line " in raised[0]


PLUGIN = """
import asyncio, os, sys
from whet import reward

def end():
    {call}

{at_import}

@reward("ends")
def ends(episode, index):
    end()
"""


@pytest.mark.parametrize(
    ("call", "at_import"),
    [
        ("os._exit(0)", ""), ("os._exit(0)", "end()"), ("sys.exit()", ""), ("sys.exit()", "end()"),
        ("raise GeneratorExit", ""), ("raise asyncio.CancelledError", "end()"),
    ],
)  # fmt: skip
def test_no_plug_in_ends_a_run_with_the_code_of_success(tmp_path, random_model, call, at_import):
    plugin = tmp_path / "ends.py"
    plugin.write_text(PLUGIN.format(call=call, at_import=at_import))
    done = whet(
        "train", "grpo", f"policy.path={random_model}", "num_threads=1", "data.num_train=8", "data.num_validation=2",
        "data.num_test=2", "num_steps=1", "prompts_per_step=2", "group_size=2", f"plugins=[{plugin}]",
        "rewards.ends=1", "--out", tmp_path / "run", check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("whet: ")]
    assert len(said) == 1
    assert "ends.py" in said[0]
    assert {"os": "os._exit(0)", "sy": "SystemExit"}.get(call[:2], call.rpartition(".")[2][-5:]) in said[0]


OURS = """
import whet.run.launch
from whet import reward

whet.run.launch.start = None  # as a mistake of ours would be: nothing of the plug-in is on the way to it

@reward("idle")
def idle(episode, index):
    return 0.0
"""


def test_our_own_mistakes_have_a_code_of_their_own_whatever_stands_in_the_arguments(tmp_path):
    """In a real process: `\\xff` is no UTF-8, and stands in the sentence and in the lines above it."""
    (tmp_path / "ours.py").write_text(OURS)
    command = [
        sys.executable, "-m", "whet.cli", "train", "grpo", "num_steps=1", f"plugins=[{tmp_path / 'ours.py'}]", "--out",
        os.fsencode(tmp_path) + b"/run\xff",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 70, done.stderr
    lines = done.stderr.decode().splitlines()  # whole characters
    assert lines[-1].startswith("whet: this is a mistake in whet")
    assert "/run?" in lines[-1]
    assert "'NoneType' object is not callable" in lines[-2]
