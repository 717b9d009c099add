"""SciWorld: the published numbering, scores as rewards, Java that ends, the same episode in any order and process."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from whet.envs.protocol import EnvError
from whet.envs.sciworld.environment import SCIWORLD, SciWorldEnvironment
from whet.envs.sciworld.items import NUM_ITEMS, TASKS, group, split_of, splits, task_of
from whet.trajectories.published import overlaps, read_numbers

BOIL, CONDUCTIVITY, FIND_ANIMAL = 0, 1436, 3836


@pytest.fixture(scope="module")
def shared(java):
    """One world for all tests that leave it usable: starting Java takes seconds."""
    env = SciWorldEnvironment()
    yield env
    env.close()


def is_running(pid, patience=5.0):
    until = time.monotonic() + patience
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return Path(f"/proc/{pid}").exists()


def roll_out(env, item, actions):
    said = [env.reset(item)]
    for action in actions:
        said.append(env.step(action))
        if said[-1][2] or said[-1][3]:
            break
    return said


def play_expert(env, item):
    """The sum of rewards, and whether the world ended it."""
    env.reset(item)
    total, over = 0.0, False
    for thought, action in SCIWORLD.expert(env, seed=0):
        assert thought
        _, reward, over, truncated, _ = env.step(action)
        total += reward
        if over or truncated:
            break
    return total, over


# --- numbering, without Java ------------------------------------------------------------------------------------------


def test_items_are_all_variations_of_23_tasks():
    assert NUM_ITEMS == sum(task.num_variations for task in TASKS) == 4639
    assert len(TASKS) == 23
    assert [(task_of(item)[0].number, task_of(item)[1]) for item in (0, 29, 30, 119, 120, 4638)] == [
        *(("1-1", 0), ("1-1", 29), ("1-2", 0), ("1-4", 29), ("2-1", 0), ("8-2", 9)),
    ]
    for item in (-1, 4639):
        with pytest.raises(EnvError, match=f"no item {item}"):
            task_of(item)


def test_published_items_fall_into_the_published_subgroups(data_folder):
    test = read_numbers(data_folder / "agentgym/RL-ids/eval/sciworld_test.json")
    assert Counter(map(group, test)) == {"Measure": 53, "Test-Cond": 83, "Find": 44, "Chem-Mix": 5, "Lifespan": 15}
    assert len({task.group for task in TASKS}) == 8


def test_the_evaluation_list_was_drawn_without_task_2_3(data_folder):
    """The published lists share 61 items only since they were drawn from two numberings (AgentGym issue 49)."""
    train = read_numbers(data_folder / "agentgym/RL-ids/train/sciworld_train.json")
    test = read_numbers(data_folder / "agentgym/RL-ids/eval/sciworld_test.json")
    assert Counter(map(split_of, train)) == {"train": 2120}
    assert Counter(map(split_of, test)) == {"test": 107, "train": 66, "validation": 27}
    assert overlaps(train, test) == 61
    left_out = next(task for task in TASKS if task.number == "2-3")
    end = sum(task.num_variations for task in TASKS[: TASKS.index(left_out) + 1])
    start = end - left_out.num_variations
    meant = [number if number < start else number + left_out.num_variations for number in test]
    assert Counter(map(split_of, meant)) == {"test": 200}
    assert overlaps(train, meant) == 0
    # The training list cannot have been drawn so: its largest number is not an item without task 2-3.
    assert max(train) == 4632 > NUM_ITEMS - 300


def test_splits_are_quarters_of_each_task():
    """boil has 30 variations: 30 // 4 = 7, so 14 to train, 7 to validate, and 9 to test."""
    assert Counter(split_of(item) for item in range(30)) == {"train": 14, "validation": 7, "test": 9}
    items = [item for split in splits().values() for item in split]
    assert sorted(items) == list(range(NUM_ITEMS))


def test_scores_are_read_as_published():
    """A client's reward of 40 after steps of 35 and 5; only 100 is a success; below 0 counts as 0."""
    assert [SCIWORLD.score(reward) for reward in (-100, 0, 40, 100)] == [0, 0, 0.4, 1]
    assert [SCIWORLD.is_success(reward) for reward in (-100, 1, 99, 100)] == [False, False, False, True]
    assert SCIWORLD.kept_above == 99


def test_without_scienceworld_or_java_it_says_what_to_install(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "scienceworld.constants", None)
        with pytest.raises(EnvError, match=r"make setup EXTRAS=sciworld"):
            SciWorldEnvironment().reset(0)
    pytest.importorskip("scienceworld")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvError, match="install a Java runtime"):
        SciWorldEnvironment().reset(0)


# --- the world --------------------------------------------------------------------------------------------------------


def test_before_reset_a_step_is_an_error():
    env = SciWorldEnvironment()
    with pytest.raises(EnvError, match="reset"):
        env.step("look around")
    env.close()
    with pytest.raises(EnvError, match="1 or more"):
        SciWorldEnvironment(max_moves=0)


def test_the_first_observation_is_the_task_and_the_room(shared):
    observation, info = shared.reset(BOIL)
    task, room = observation.split("\n", 1)
    assert task.startswith("Your task is to boil water. ")
    assert room.startswith("This room is called the hallway. In it, you see: \n\tthe agent\n")
    assert {"look around", "focus on OBJ", "pour OBJ in OBJ"} <= set(info["actions"])
    assert info["score"] == 0


def test_an_episode_earns_its_score(shared):
    assert play_expert(shared, BOIL) == (100, True)
    with pytest.raises(EnvError, match="reset"):
        shared.step("look around")


def test_a_fatal_mistake_is_minus_100_in_all(shared):
    """From whatever was earned before: in the kitchen, focusing on the stove is not focusing on water."""
    said = roll_out(shared, BOIL, ["open door to kitchen", "go to kitchen", "look around", "focus on stove", "wait"])
    assert sum(step[1] for step in said[1:]) == said[-1][4]["score"] == -100
    assert [step[2] for step in said[1:]] == [False, False, False, True]


@pytest.mark.parametrize("action", ["", " ", "dance", "go to the moon", "\ud800", "\0", "Action:\nlook", "é" * 4000])
def test_what_makes_no_sense_is_answered(shared, action):
    shared.reset(FIND_ANIMAL)
    says, reward, terminated, truncated, info = shared.step(action)
    assert (reward, terminated, truncated, info["invalid"]) == (0, False, False, True)
    assert says == "No known action matches that input."
    assert "invalid" not in shared.step("look around")[4]


def test_time_is_limited(shared):
    """`wait` takes ten moments, and acting one: the tenth is at 110."""
    said = roll_out(shared, FIND_ANIMAL, ["wait"] * 99)
    assert len(said) - 1 == 10
    assert said[-1][2:4] == (False, True)


def test_reset_leaks_nothing_and_gold_goes_on_where_it_was(shared):
    actions = ["open door to kitchen", "go to kitchen", "look around", "wait1", "look around"]
    first = roll_out(shared, BOIL, actions)
    play_expert(shared, FIND_ANIMAL)
    roll_out(shared, CONDUCTIVITY, ["wait", "reset task", "focus on air"])
    assert roll_out(shared, BOIL, actions) == first
    roll_out(shared, BOIL, actions[:2])
    shared.gold_actions()
    assert shared.actions == tuple(actions[:2])
    assert [shared.step(action) for action in actions[2:]] == first[3:]


def test_a_fork_goes_its_own_way_and_no_java_is_left(java):
    env = SciWorldEnvironment()
    env.reset(BOIL)
    env.step("open door to kitchen")
    other = env.fork()
    pids = [each._simulator.pid for each in (env, other)]
    assert len(set(pids)) == 2
    assert other.state_key() == env.state_key()
    mine = env.step("go to kitchen")
    assert other.state_key() != env.state_key()
    assert other.step("go to kitchen") == mine
    env.close()
    env.close()
    assert not is_running(pids[0], 0)
    with pytest.raises(EnvError, match="reset"):
        env.step("look around")
    del other
    gc.collect()
    assert not is_running(pids[1], 0)


def test_java_ends_with_a_killed_parent(java):
    program = (
        "import time; from whet.envs.sciworld.environment import SciWorldEnvironment; env = SciWorldEnvironment(); "
        "env.reset(0); print(env._simulator.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert is_running(pid, 0)
        parent.send_signal(signal.SIGKILL)
    assert not is_running(pid)


def test_a_simulator_that_dies_is_an_error(java):
    env = SciWorldEnvironment()
    env.reset(BOIL)
    os.kill(env._simulator.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="make a new environment"):
        env.step("look around")
    env.close()


def test_gold_paths_of_all_tasks_reach_100(shared):
    """Every tenth of a test variation of each task and a training one of some."""
    ends = [sum(task.num_variations for task in TASKS[: index + 1]) for index in range(len(TASKS))]
    items = [end - 1 for end in ends] + [end - task.num_variations for end, task in zip(ends, TASKS, strict=True)][::3]
    items = items[:30:10]  # all 30 reach it; each starts a Java process of its own
    assert [play_expert(shared, item) for item in items] == [(100, True)] * len(items)


PROGRAM = """
import hashlib, sys
from whet.envs.sciworld.environment import SCIWORLD, SciWorldEnvironment
wait = [f"{verb} {place}" for place in ("kitchen", "outside", "greenhouse") for verb in ("open door to", "go to")]
env = SciWorldEnvironment()
for item in map(int, sys.argv[1:]):
    said = [env.reset(item)]
    for thought, action in SCIWORLD.expert(env):
        said.append(env.step(action))
        if said[-1][2] or said[-1][3]:
            break
    said.append(env.reset(item))
    for action in [*wait, "wait", "look around", "go to outside", "wait", "look around"]:
        said.append(env.step(action))
    print(item, hashlib.sha256(repr(said).encode()).hexdigest())
env.close()
"""


def test_any_order_and_another_process_play_the_same(java):
    """scienceworld as it starts Java itself does not: the cups on its table change places."""
    items = [str(item) for item in (CONDUCTIVITY, FIND_ANIMAL)]
    said = []
    for order, seed in ((items, "1"), (items[::-1], "2")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *order], env=env, capture_output=True, check=True, text=True
        )
        said.append(sorted(done.stdout.splitlines()))
    assert len(said[0]) == len(items)
    assert said[0] == said[1]


def test_steps_are_those_of_scienceworld_and_quicker(shared):
    own = pytest.importorskip("scienceworld").ScienceWorldEnv()
    shared.reset(FIND_ANIMAL)
    actions = shared.gold_actions()
    begun = time.perf_counter()
    ours = roll_out(shared, FIND_ANIMAL, actions)
    middle = time.perf_counter()
    task, variation = task_of(FIND_ANIMAL)
    own.load(task.name, variation)
    assert ours[0][0].startswith(own.get_task_description())
    theirs = [own.step("look around"), *(own.step(action) for action in actions[: len(ours) - 1])]
    ended = time.perf_counter()
    gc.collect()  # py4j tells Java of what is collected: now, and not while Java ends
    own.close()
    own._gateway.java_process.wait(10)
    del own
    gc.collect()
    assert [step[4]["score"] for step in ours[1:]] == [step[3]["score"] for step in theirs[1:]]
    assert [sorted(step[0].splitlines()) for step in ours[1:]] == [sorted(step[0].splitlines()) for step in theirs[1:]]
    assert middle - begun < ended - middle


def test_reads_as_json(shared):
    """What a step says can be written down."""
    shared.reset(BOIL)
    json.dumps(shared.step("look around"))
