"""The servers of others, driven by whet's clients. They need a checkout or a Python of their own, so CI skips them:

WHET_AGENTGYM: a checkout of AgentGym, whose TextCraft server runs in this Python (it needs gymnasium and fastapi).
WHET_OPENENV: a Python in which OpenEnv 0.10 is installed, beside ruamel.yaml and pydantic, which whet's part needs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from whet.config.environment_data import RemoteEnvironment
from whet.envs import ENVIRONMENTS
from whet.envs.checks import check_env
from whet.envs.remote.errors import Full
from whet.envs.remote.info import remote_info
from whet.envs.scripted import NOISE
from whet.envs.textcraft.environment import TextCraft

pytestmark = pytest.mark.integration


def setting(name: str) -> Path:
    if name not in os.environ:
        pytest.skip(f"{name} is not set: it names what the docstring says")
    return Path(os.environ[name])


@contextmanager
def running(*command: str, port: int, cwd: Path, path: str) -> Iterator[str]:
    """The address of a server, once it listens."""
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=quiet, stderr=quiet)
    try:
        for _ in range(600):
            assert process.poll() is None, f"{command} has ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


CIRCULAR = ("iron ingot", "iron nugget", "honey bottle", "honey block")
"""Items that are made of each other: which of them has a recipe depends on the order of the authors' disk."""


@pytest.fixture(scope="module")
def textcraft() -> Iterator[str]:
    """AgentGym's own TextCraft server."""
    folder, port = setting("WHET_AGENTGYM") / "agentenv-textcraft", free_port()
    uvicorn = ("-m", "uvicorn", "agentenv_textcraft.server:app", "--host", "127.0.0.1", "--port", str(port))
    with running(sys.executable, *uvicorn, port=port, cwd=folder, path=str(folder)) as url:
        yield f"agentgym+{url}"


def actions_of(here: TextCraft, rng: Random) -> Iterator[str]:
    """The expert's actions, with others between them that can or cannot be done."""
    for _, action in ENVIRONMENTS.get("textcraft").expert(here, seed=0):  # type: ignore[misc]
        if rng.random() < 0.3:
            yield rng.choice([*NOISE[3:5], "inventory", *here._actions])
        yield action


def test_episodes_on_agentgyms_server_are_those_in_process(textcraft):
    """All test items and some others, with the commands that their server draws. Ours knows the item by its goal."""
    info = remote_info("textcraft", RemoteEnvironment(url=textcraft))
    recipes = setting("WHET_AGENTGYM") / "agentenv-textcraft" / "agentenv_textcraft" / "recipes"
    here, there = TextCraft(recipes), info.make()
    num_equal = num_solved = num_left_out = 0
    items = [*info.splits()["test"], *info.splits()["train"][::10]]
    for item in items:
        observation, _ = there.reset(item)
        lines = observation.splitlines()
        goal, commands = lines[-1].removeprefix("Goal: craft ").removesuffix("."), lines[1:-2]
        if goal not in here.table.depths:
            num_left_out += 1
            continue
        assert here.begin(goal, commands)[0] == observation
        for action in actions_of(here, Random(item)):
            if any(name in action for name in CIRCULAR):
                num_left_out += 1
                break
            ours, theirs = here.step(action), there.step(action)
            # Their inventory ends in a space, which the records lack.
            assert (theirs[0].rstrip(), *theirs[1:4]) == (ours[0].rstrip(), *ours[1:4]), (item, action)
            num_equal += 1
            if ours[2]:
                num_solved += 1
                break
    there.close()
    assert num_solved + num_left_out == len(items)
    assert num_left_out < 0.2 * len(items)
    print(f"{num_equal} answers equal in {len(items)} items, {num_solved} solved, {num_left_out} left out")


def test_agentgyms_server_keeps_the_protocol(textcraft):
    assert check_env(remote_info("textcraft", RemoteEnvironment(url=textcraft))) == []


@pytest.fixture(scope="module")
def openenv() -> Iterator[str]:
    """OpenEnv's own server, with whet's TextCraft behind it and room for 4."""
    python, port = setting("WHET_OPENENV"), free_port()
    tests = Path(__file__).parents[1]
    program = str(tests / "programs" / "openenv_textcraft.py")
    with running(str(python), program, str(port), "4", port=port, cwd=tests, path=str(tests.parent / "src")) as url:
        yield f"openenv+ws{url.removeprefix('http')}"


def test_episodes_on_openenvs_server_are_those_in_process(openenv):
    here, there = ENVIRONMENTS.get("textcraft"), remote_info("textcraft", RemoteEnvironment(url=openenv))
    one, other, num_equal = here.make(), there.make(), 0
    for split, items in here.splits().items():
        for index in range(0, len(items), 5):
            begun = one.reset(items[index], seed=index)
            assert other.reset(there.splits()[split][index], seed=index)[0] == begun[0]
            for _, action in here.expert(one, seed=0):
                ours = one.step(action)
                assert other.step(action)[:4] == ours[:4]
                num_equal += 1
                if ours[2]:
                    break
    other.close()
    assert num_equal > 300
    print(f"{num_equal} answers equal")


def test_openenvs_server_keeps_the_protocol_and_its_capacity_is_waited_for(openenv):
    assert check_env(remote_info("textcraft", RemoteEnvironment(url=openenv))) == []
    info = remote_info("textcraft", RemoteEnvironment(url=openenv, wait_s=0.5))
    envs = [info.make() for _ in range(5)]
    for env in envs[:4]:
        env.reset(0)
    with pytest.raises(Full):
        envs[4].reset(0)
    envs[0].close()
    assert envs[4].reset(0)[0] == envs[1].reset(0)[0]
    for env in envs[1:]:
        env.close()
