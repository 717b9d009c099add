"""The maze: the published starts and sentences, the recorded walks to the letter, and the shortest way."""

from __future__ import annotations

import ast
import json
import time
from collections import Counter

import pytest

from whet.envs.maze import FAILURE, GOAL, LAYOUT, MAX_MOVES, MAZE, STARTS, SUCCESS, Maze, distances
from whet.envs.protocol import EnvError


def walk(item, actions, seed=0):
    env = Maze()
    said = [env.reset(item, seed=seed)]
    for action in actions:
        said.append(env.step(action))
        if said[-1][2] or said[-1][3]:
            break
    return said


def test_recorded_walks_are_answered_to_the_letter(data_folder):
    """The first message ends in the first observation; the record leaves out what the last step was answered."""
    records = json.loads((data_folder / "agentgym/AgentTraj-L/lmrlgym_maze_train.json").read_text())
    equal = 0
    for record in records:
        turns = record["conversations"]
        turns = ast.literal_eval(turns) if isinstance(turns, str) else turns
        heard = [turn["value"] for turn in turns[2:] if turn["from"] == "human"]
        actions = [turn["value"].split("Action:")[1].strip() for turn in turns[2:] if turn["from"] == "gpt"]
        said = walk(int(record["item_id"].rsplit("_", 1)[1]), actions)
        seen = [step[0] for step in said]
        assert heard[0].endswith(f"state:\n{seen[0]}")
        assert seen[1:-1] == heard[1:]
        assert said[-1][:4] == (SUCCESS, 1.0, True, False)
        equal += 1
    assert equal == len(records) == 141


def test_a_walk_by_hand():
    said = walk(15, ["move up", "move right", "jump", "move down", "move down", "move down"])
    goal, here = "The goal is at position 8, 6.", "Your current position is at position"
    assert [step[0] for step in said] == [
        f"{goal} {here} 5, 5. There are walls above you, below you.\n",
        f"{goal} {here} 5, 5. There are walls above you, below you.\n",
        f"{goal} {here} 5, 6. There is a wall above you.\n",
        f"{goal} {here} 5, 6. There is a wall above you.\n",
        f"{goal} {here} 6, 6. There are walls to your right, to your left.\n",
        f"{goal} {here} 7, 6. There are walls to your right, to your left.\n",
        "Success\n",
    ]
    assert [step[1] for step in said[1:]] == [0, 0, 0, 0, 0, 1]
    assert [step[4].get("invalid", False) for step in said[1:]] == [True, False, True, False, False, False]


@pytest.mark.parametrize("item", [-1, 26, 1000])
def test_there_are_26_items(item):
    with pytest.raises(EnvError, match=f"no item {item}"):
        Maze().reset(item)


def test_starts_are_the_free_cells_once_each():
    free = {(row, column) for row, line in enumerate(LAYOUT) for column, mark in enumerate(line) if mark == "."}
    assert len(LAYOUT) == 10
    assert {len(line) for line in LAYOUT} == {13}
    assert set(STARTS) == free
    assert len(STARTS) == len(free) == 26
    assert STARTS[25] == GOAL == (8, 6)


def test_on_the_goal_any_step_that_stays_is_a_success():
    """As published: an action that makes no sense wins there."""
    assert walk(25, ["dance"])[-1][:4] == (SUCCESS, 1.0, True, False)
    assert walk(25, ["move up", "move down"])[-1][:4] == (SUCCESS, 1.0, True, False)


def test_the_step_after_fifty_fails():
    said = walk(0, ["move up"] * 99)
    assert len(said) - 1 == MAX_MOVES + 1 == 51
    assert said[-1][:4] == (FAILURE, 0.0, False, True)
    assert not said[-2][3]


def test_before_and_after_an_episode_a_step_is_an_error():
    env = Maze()
    with pytest.raises(EnvError, match="reset"):
        env.step("move up")
    env.reset(18)
    env.step("move down")
    with pytest.raises(EnvError, match="reset"):
        env.step("move up")
    assert env.reset(0) == Maze().reset(0)


@pytest.mark.parametrize("item", range(26))
def test_the_expert_takes_the_shortest_way(item):
    env = Maze()
    env.reset(item)
    steps = rewards = 0
    for thought, action in MAZE.expert(env, seed=0):
        _, reward, terminated, _, _ = env.step(action)
        steps, rewards = steps + 1, rewards + reward
        assert thought.endswith(".")
        if terminated:
            break
    assert rewards == 1
    assert steps == max(1, distances()[STARTS[item]])


def test_the_longest_way_has_12_moves():
    """(1, 1) to (1, 3): 2; to (5, 3): 4; to (5, 6): 3; to (8, 6): 3."""
    assert distances()[1, 1] == 2 + 4 + 3 + 3 == 12
    assert max(distances().values()) == 12


def test_actions_are_those_that_are_not_invalid():
    for item in range(26):
        for action in ("move left", "move right", "move up", "move down"):
            env = Maze()
            _, info = env.reset(item)
            invalid = env.step(action)[4].get("invalid", False)
            assert invalid == (action not in info["actions"])


def test_a_fork_goes_its_own_way():
    env = Maze()
    env.reset(16)
    other = env.fork()
    assert other.state_key() == env.state_key()
    other.step("move down")
    assert other.state_key() != env.state_key()
    env.step("move down")
    assert other.state_key() == env.state_key()
    assert other.step("move down") == env.step("move down")


def test_the_picture_shows_walls_goal_and_agent():
    picture = Maze().reset(0)[1]["picture"]
    assert [len(row) for row in picture] == [13] * 10
    assert Counter(name for row in picture for name in row) == {"wall": 104, "": 24, "goal": 1, "agent": 1}
    assert picture[1][1] == "agent"
    assert picture[8][6] == "goal"


def test_splits_are_disjoint_and_the_published_ones_are_not(data_folder):
    splits = MAZE.splits()
    assert not set(splits["train"]) & set(splits["test"])
    for split, path in (("published_train", "train/lmrlgym_maze_train"), ("published_test", "eval/lmrlgym_maze_test")):
        records = json.loads((data_folder / f"agentgym/RL-ids/{path}.json").read_text())
        assert set(splits[split]) == {int(record["item_id"].rsplit("_", 1)[1]) for record in records}
    assert len(set(splits["published_train"]) & set(splits["published_test"])) == 10


def test_speed():
    env, begun, steps = Maze(), time.process_time(), 0
    while steps < 20_000:
        env.reset(0)
        for _ in range(MAX_MOVES):
            env.step("move right")
            steps += 1
    assert steps / (time.process_time() - begun) > 18_000
