"""What every registered environment has to keep: a new one is tested by being registered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.envs import digest, world_of
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.checks import CHECKS, check
from whet.envs.scripted import some_items

SLOW = ("sciworld", "cookingworld", "twc")  # start Java; their own tests use other processes and hash seeds too
NAMES = [pytest.param(name, marks=[pytest.mark.integration] * (name in SLOW)) for name in ENVIRONMENTS.names()]


@pytest.fixture(params=NAMES)
def info(request):
    found = ENVIRONMENTS.get(request.param)
    try:
        world_of(request.param).close()
    except EnvError as error:
        pytest.skip(str(error))
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_it_keeps(info, name):
    assert check(info, name, num_items=2 if info.name in SLOW else 4) == []


@pytest.mark.parametrize(
    ("info", "hash_seed"),
    [
        pytest.param(*each.values, seed, marks=each.marks)
        for each in NAMES
        for seed in ("1", "12345")[each.values[0] in SLOW :]
    ],
    indirect=["info"],
)
def test_in_another_process_under_another_hash_seed(info, hash_seed):
    items = some_items(info)[:3]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.envs", info.name, *map(str, items)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert found.stdout.split() == digest(info.name, items), found.stderr[-2000:]


def test_its_name_stands_in_settings(info):
    assert info.name in ENVIRONMENTS
    with pytest.raises(ValueError, match="there is no environment 'textkraft'; did you mean 'textcraft'"):
        ENVIRONMENTS.get("textkraft")
