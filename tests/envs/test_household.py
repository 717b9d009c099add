"""Household games: items and levels, the simulator's sentences, experts, Java that ends; ALFWorld over our own game.

The first part needs nothing. The others need the extras `household` and `alfworld`.
"""

import gc
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import httpx
import pytest

from support.commands import whet
from support.env_server import env_server
from whet.config.environment_data import EnvironmentData
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.household.alfworld import ALFWORLD, GAMES, AlfWorld, group_of
from whet.envs.household.environment import COOKINGWORLD, TWC, Household
from whet.envs.household.items import LEVELS, item_of, splits
from whet.envs.java import sendable
from whet.envs.server.served import served_environments
from whet.methods.environment_tasks import load_environment_tasks
from whet.tasks.files import DataError
from whet.trajectories.published import read_published

DATA = Path(os.environ.get("WHET_DATA", "../shared/data")) / "agentgym/alfworld"
PLACES = {"train": "train", "test": "eval"}
"""Folders of the published lists, by split."""
HAS_GAMES = importlib.util.find_spec("textworld_express") is not None and shutil.which("java") is not None
HAS_ALFWORLD = all(importlib.util.find_spec(name) is not None for name in ("textworld", "alfworld"))


def needs(is_there, what):
    def marked(test):
        return pytest.mark.integration(pytest.mark.skipif(not is_there, reason=f"{what} is not installed")(test))

    return marked


with_java = needs(HAS_GAMES, "textworld-express, or Java,")
with_alfworld = needs(HAS_ALFWORLD, "alfworld")


# Items, without Java


def test_items_are_levels_and_seeds_of_three_folds():
    first, last, test = item_of("twc", 0), item_of("twc", 3999), item_of("cookingworld", 8005)
    assert (first.level.name, first.fold, first.seed) == ("1 room, 1 thing", "train", 0)
    assert (last.level.name, last.fold, last.seed) == ("3 rooms, 4 things", "train", 999)
    assert (test.level.name, test.fold, test.seed) == ("1 room, 3 ingredients", "test", 20_001)
    assert test.level.written() == (
        "numLocations=1, numIngredients=3, numDistractorItems=5, includeDoors=0, limitInventorySize=0"
    )
    for number in (-1, 12_000):
        with pytest.raises(EnvError, match="the items 0 to 11999"):
            item_of("twc", number)
    assert {name: (items[0], len(items)) for name, items in splits().items()} == {
        "train": (0, 4000), "validation": (4000, 4000), "test": (8000, 4000),
    }  # fmt: skip
    for game in LEVELS:
        groups = [ENVIRONMENTS.get(game).group(item) for item in range(4)]
        assert groups == [level.name for level in LEVELS[game]]


def test_without_the_package_or_java_it_says_what_to_install(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr("whet.envs.household.simulator.find_spec", lambda name: None)
        with pytest.raises(EnvError, match="make setup EXTRAS=household"):
            Household("twc")
    monkeypatch.setattr("whet.envs.household.simulator.find_spec", lambda name: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvError, match="install a Java runtime"):
        Household("twc")


def test_half_a_character_can_be_sent():
    assert sendable("a\ud800é") == "a?é"


def test_settings_are_checked():
    if not HAS_GAMES:
        pytest.skip("textworld-express, or Java, is not installed")
    with pytest.raises(EnvError, match="list_actions is 'some': give twc first, all or none"):
        Household("twc", "some")


# The games


@pytest.fixture(scope="module")
def kitchen():
    env = Household("cookingworld")
    yield env
    env.close()


@pytest.fixture(scope="module")
def house():
    env = Household("twc")
    yield env
    env.close()


def roll_out(env, info, item):
    """Reward, turns, and all that was said."""
    said = [env.reset(item)]
    total = 0.0
    for thought, action in info.expert(env):
        said += [(thought, action), env.step(action)]
        total += said[-1][1]
        if said[-1][2] or len(said) > 200:
            break
    return total, len(said) // 2, said


@with_java
def test_the_first_observation_has_the_task_and_the_actions(house):
    observation, info = house.reset(8001)
    room, task, listed = observation.rsplit("\n", 2)
    assert room.startswith("You are in the ")
    assert task == "Your task is to pick up objects, then place them in their usual locations in the environment."
    assert listed == f"AVAILABLE ACTIONS: {','.join(info['actions'])}"
    assert list(info["actions"]) == sorted(info["actions"])
    assert {"look around", "inventory"} < set(info["actions"])
    assert "AVAILABLE" not in house.step("look around")[0]


@with_java
def test_other_lists_by_setting():
    for setting, shown in (("all", [True, True]), ("none", [False, False])):
        env = Household("twc", setting)
        said = [env.reset(0)[0], env.step("inventory")[0]]
        assert ["AVAILABLE ACTIONS: " in text for text in said] == shown
        env.close()


@with_java
def test_an_episode_by_hand(house):
    """Two things: each earns a quarter when it is taken, and a quarter when it is in its place."""
    house.reset(1)
    actions = [action for _, action in iterate(house, TWC)]
    house.reset(1)
    rewards = [house.step(action)[1] for action in actions]
    assert sorted(reward for reward in rewards if reward) == [0.25] * 4
    assert sum(rewards) == 1.0
    with pytest.raises(EnvError, match="reset"):
        house.step("look around")


def iterate(env, info):
    for thought, action in info.expert(env):
        yield thought, action
        if env.step(action)[2]:
            return


@with_java
def test_spoiling_an_ingredient_ends_the_game(kitchen):
    kitchen.reset(8000)
    gold = kitchen.gold_actions()
    cooked = next(action for action in gold if action.startswith("cook "))
    for action in gold[: gold.index(cooked)]:
        total = kitchen.step(action)
    devices = [action for action in total[4]["actions"] if action.startswith(cooked.partition(" in ")[0])]
    _, reward, terminated, truncated, _ = kitchen.step(next(action for action in devices if action != cooked))
    assert (reward, terminated, truncated) == (0.0, True, False)


@with_java
@pytest.mark.parametrize(
    "action", ["", " ", "\x00", "fly", "\ud800", "TAKE KNIFE", "x" * 10_000, "look around\nlook around"]
)
def test_what_makes_no_sense_is_answered(kitchen, action):
    kitchen.reset(3)
    state = kitchen.state_key()
    observation, reward, terminated, truncated, info = kitchen.step(action)
    assert observation.startswith("Unknown action")
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, True)
    assert kitchen.state_key() == state


@with_java
@pytest.mark.parametrize("info", [COOKINGWORLD, TWC], ids=lambda info: info.name)
def test_experts_and_a_constant_agent(info, kitchen, house):
    env = kitchen if info is COOKINGWORLD else house
    items = Random(0).sample(info.splits()["test"], 200)
    episodes = [roll_out(env, info, item)[:2] for item in items]
    assert [total for total, _ in episodes] == pytest.approx([1.0] * 200)
    assert sum(turns <= info.max_turns for _, turns in episodes) >= 194
    env.reset(8000)
    assert [env.step("look around")[1] for _ in range(20)] == [0.0] * 20


@with_java
def test_a_way_opens_nothing_that_it_has_opened(kitchen):
    """The simulator's way to this item's meal opens the cupboard, and then again, which is no action any more."""
    kitchen.reset(11399)
    gold = kitchen.gold_actions()
    assert gold.count("open kitchen cupboard") == 1
    assert not any(kitchen.step(action)[4].get("invalid") for action in gold)
    assert kitchen.latest.is_won


@with_java
def test_the_tidying_expert_goes_on_from_where_it_is(house):
    for item in (3, 8003, 8007):
        house.reset(item)
        total = sum(house.step(action)[1] for action in sorted(house.latest.actions)[-2:])
        for _, action in TWC.expert(house):
            _, reward, terminated, _, _ = house.step(action)
            total += reward
            if terminated:
                break
        assert total == pytest.approx(1.0)


@with_java
def test_a_fork_goes_its_own_way_and_no_java_is_left(house):
    env = Household("twc")
    env.reset(7)
    env.step("look around")
    other = env.fork()
    assert other.state_key() == env.state_key()
    pids = [each._simulator.pid for each in (env, other)]
    assert len(set(pids)) == 2
    mine = env.step("inventory")
    assert other.state_key() != env.state_key()
    assert other.step("inventory") == mine
    env.close()
    assert not Path(f"/proc/{pids[0]}").exists()
    with pytest.raises(EnvError, match="reset"):
        env.step("inventory")
    del other
    gc.collect()
    until = time.monotonic() + 5
    while Path(f"/proc/{pids[1]}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pids[1]}").exists()


PROGRAM = """
import hashlib, sys
from whet.envs import ENVIRONMENTS
for name in ("cookingworld", "twc"):
    info = ENVIRONMENTS.get(name)
    env = info.make()
    for item in map(int, sys.argv[1:]):
        said = [env.reset(item)]
        for move in info.expert(env):
            said += [move, env.step(move[1])]
            if said[-1][2]:
                break
        print(name, item, hashlib.sha256(repr(said).encode()).hexdigest())
    env.close()
"""


@with_java
def test_any_order_and_another_process_play_the_same():
    items = [str(item) for item in (2, 3, 4006, 8001, 8003)]
    said = []
    for order, seed in ((items, "1"), (items[::-1], "2")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", PROGRAM, *order]
        done = subprocess.run(command, env=env, capture_output=True, check=True, text=True)
        said.append(sorted(done.stdout.splitlines()))
    assert len(said[0]) == 10
    assert said[0] == said[1]


# ALFWorld


def test_without_games_it_says_what_to_give(tmp_path):
    with pytest.raises(EnvError, match=r"give data=FOLDER.*mappings=FOLDER"):
        AlfWorld()
    with pytest.raises(EnvError, match="there is no folder"):
        AlfWorld(tmp_path, mappings=tmp_path)
    (tmp_path / GAMES).mkdir()
    with pytest.raises(EnvError, match="agentenv-alfworld/configs"):
        AlfWorld(tmp_path, mappings=tmp_path)
    (tmp_path / "mappings_train.json").write_text("[]")
    with pytest.raises(EnvError, match="names 0 games, and the published file 2420"):
        AlfWorld(tmp_path, mappings=tmp_path)


def test_published_numbers_are_games(tmp_path):
    """Item 2419 is the last training game, and 2420 the first one of the evaluation."""
    if not DATA.exists():
        pytest.skip(f"{DATA} is not there: AgentGym's mappings are for tests only")
    (tmp_path / GAMES).mkdir()
    env = AlfWorld(tmp_path, mappings=DATA)
    games = env._games
    assert len(games) == 2620
    assert [games[item].parts[-4] for item in (0, 2419, 2420, 2619)] == ["train"] * 2 + ["valid_train"] * 2
    assert games[2420].parts[-3:] == (
        "pick_cool_then_place_in_recep-Mug-None-CoffeeMachine-23", "trial_T20190908_143209_571893", "game.tw-pddl",
    )  # fmt: skip
    assert group_of(games[0]) == "look_at_obj_in_light"
    info = ALFWORLD.settled({"data": tmp_path, "mappings": DATA})
    assert info.group(2420) == "pick_cool_then_place_in_recep"
    assert {name: len(items) for name, items in info.splits().items()} == {"train": 2420, "test": 200}
    with pytest.raises(EnvError, match="the items 0 to 2619"):
        env.reset(2620)
    training_list = DATA.parent / "RL-ids/train/alfworld_train.json"
    assert sorted(read_published(training_list, info.named_items)) == [("alfworld", item) for item in range(2420)]
    lists = [f"--{split}={DATA.parent / f'RL-ids/{place}/alfworld_{split}.json'}" for split, place in PLACES.items()]
    shown = whet("env", "splits", "alfworld", f"data={tmp_path}", f"mappings={DATA}", *lists).stdout
    assert "0 of the 200 items" in " ".join(shown.split())
    with pytest.raises(DataError, match=r"record 1: .* is named after a trial of ALFWorld.*mappings=FOLDER"):
        read_published(training_list)


def test_a_run_trains_on_the_published_list_of_trials(tmp_path):
    if not DATA.exists():
        pytest.skip(f"{DATA} is not there: AgentGym's mappings are for tests only")
    (tmp_path / GAMES).mkdir()
    settings = {"alfworld": {"data": str(tmp_path), "mappings": str(DATA)}}
    published = str(DATA.parent / "RL-ids/train/alfworld_train.json")
    data = EnvironmentData(env="alfworld", settings=settings, train_items=[published], num_validation=20)
    problems = load_environment_tasks(data)
    assert [len(problems.tasks[split]) for split in ("train", "validation", "test")] == [2400, 20, 200]


@with_alfworld
def test_a_game_that_is_not_there_is_named(tmp_path):
    env = alfworld_with(tmp_path)
    with pytest.raises(EnvError, match=r"there is no game .*game.tw-pddl"):
        env.reset(1)


PROBLEM = """(define (problem tidy) (:domain alfred)
(:objects agent1 - agent  MugType - otype  CabinetType DeskType - rtype
 loc_bar_1 loc_bar_2 loc_bar_3 - location  Mug_bar__plus_01 - object
 Cabinet_bar__plus_01 Desk_bar__plus_01 - receptacle)
(:init (= (total-cost) 0)
 (receptacleType Cabinet_bar__plus_01 CabinetType) (receptacleType Desk_bar__plus_01 DeskType)
 (objectType Mug_bar__plus_01 MugType) (canContain CabinetType MugType) (canContain DeskType MugType)
 (pickupable Mug_bar__plus_01) (openable Cabinet_bar__plus_01) (atLocation agent1 loc_bar_3)
 (receptacleAtLocation Cabinet_bar__plus_01 loc_bar_1) (receptacleAtLocation Desk_bar__plus_01 loc_bar_2)
 (inReceptacle Mug_bar__plus_01 Cabinet_bar__plus_01) (objectAtLocation Mug_bar__plus_01 loc_bar_1))
(:goal (and (exists (?r - receptacle) (exists (?o - object)
 (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DeskType))))))
(:metric minimize (total-cost)))"""
"""A mug in a closed cabinet, and a desk: the smallest game that opens, takes and puts."""


def alfworld_with(folder):
    """An environment whose item 0 is a game of ours, by the rules and the grammar of the package."""
    rules = Path(importlib.util.find_spec("alfworld").origin).parent / "data"
    game = {
        "pddl_domain": (rules / "alfred.pddl").read_text(),
        "grammar": (rules / "alfred.twl2").read_text().replace("UNKNOWN GOAL", "put a mug in desk"),
        "pddl_problem": PROBLEM,
        "solvable": True,
    }
    place = folder / GAMES / "train/pick_and_place_simple-Mug-None-Desk-1/trial_1"
    place.mkdir(parents=True)
    (place / "game.tw-pddl").write_text(json.dumps(game))
    entries = [{"task_type": place.parent.name, "task_id": f"trial_{number}"} for number in range(1, 2421)]
    (folder / "mappings_train.json").write_text(json.dumps(entries))
    (folder / "mappings_test.json").write_text("[]")
    return AlfWorld(folder, mappings=folder)


@with_alfworld
def test_alfworld_plays(tmp_path):
    env = alfworld_with(tmp_path)
    observation, info = env.reset(0)
    assert observation == (
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, and a desk 1.\n"
        "Your task is to: put a mug in desk.\n"
        "AVAILABLE ACTIONS: go to cabinet 1,go to desk 1,inventory,look"
    )
    assert info["actions"] == ("go to cabinet 1", "go to desk 1", "inventory", "look")
    state = env.state_key()
    for action in ("dance", "", "\x00", "take mug 1 from cabinet 1", "x" * 10_000):
        observation, reward, terminated, truncated, info = env.step(action)
        assert (observation, reward, terminated, truncated) == ("Nothing happens.", 0.0, False, False)
        assert info["invalid"] is True
    assert env.state_key() == state
    assert env.step("go to cabinet 1")[0] == "The cabinet 1 is closed."  # the published server cuts what is before
    other = env.fork()
    said = []
    for _, action in ALFWORLD.expert(env):
        said.append(env.step(action))
        assert other.step(action) == said[-1]
        assert other.state_key() == env.state_key()
        if said[-1][2]:
            break
    assert [step[0] for step in said[1:]] == [
        "You pick up the mug 1 from the cabinet 1.", "On the desk 1, you see nothing.",
        "You put the mug 1 in/on the desk 1.",
    ]  # fmt: skip
    assert said[-1][1:4] == (1.0, True, False)
    with pytest.raises(EnvError, match="reset"):
        env.step("look")
    env.close()
    other.close()


@with_alfworld
def test_alfworld_is_served_in_its_dialect(tmp_path):
    env = alfworld_with(tmp_path)
    observation, info = env.reset(0)
    settings = {"data": str(tmp_path), "mappings": str(tmp_path)}
    served = served_environments(["alfworld"], {"alfworld": settings})
    with env_server("maze", more=served) as (address, _):

        def post(path, **body):
            return httpx.post(f"{address}/agentgym/alfworld/{path}", json=body).json()

        id = post("create")["id"]
        text, _, listed = observation.rpartition("\nAVAILABLE ACTIONS: ")
        assert post("reset", id=id, game=0, world_type="Text") == {
            "id": id, "observation": text, "available_actions": listed.split(","),
            "task_type": "pick_and_place_simple-Mug-None-Desk-1/trial_1",
        }  # fmt: skip
        says, _, _, _, info = env.step("go to desk 1")
        assert post("step", id=id, action="go to desk 1") == {
            "observation": says, "reward": 0, "done": False, "available_actions": list(info["actions"]),
        }  # fmt: skip
        listed = httpx.get(f"{address}/agentgym/alfworld/available_actions", params={"id": id}).json()
        assert listed == list(info["actions"])
        assert "the items 0 to 2419" in post("reset", id=id, game=9999, world_type="Text")["error"]
    env.close()
