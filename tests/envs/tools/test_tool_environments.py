"""What holds for all environments of tools: items, experts, baselines, hostile actions, other processes, rules."""

import json
import os
import random
import subprocess
import sys
from hashlib import sha256

import pytest

from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.protocol import ACTIONS, INVALID
from whet.envs.rules import rules_text
from whet.envs.scripted import expert_episode
from whet.envs.tools.calls import FORMAT_ERROR, described, written
from whet.trajectories.function_calls import FUNCTIONS
from whet.trajectories.tools import tools_of

NAMES = ("weather", "movie", "academia", "sheet", "todo")
NUM_TOOLS = {"weather": 19, "movie": 16, "academia": 9, "sheet": 20, "todo": 12}
ITEMS = [*range(150), *range(800, 850)]


@pytest.fixture(params=NAMES)
def info(request):
    return ENVIRONMENTS.get(request.param)


def test_the_expert_reaches_every_goal_within_the_turns(info):
    env = info.make()
    kinds = set()
    for item in ITEMS:
        episode, reward = expert_episode(env, info, item, seed=item)
        assert reward == 1.0, (item, env.goal.text)
        assert len(episode) <= info.max_turns
        kinds.add(info.group(item))
    assert len(kinds) >= 10


def played(info, choose, items=ITEMS):
    """Mean reward and share of successes of an agent that chooses among the listed actions."""
    env, rewards = info.make(), []
    for item in items:
        rng = random.Random(f"tools {item}")
        _, about = env.reset(item)
        total = 0.0
        for _ in range(info.max_turns):
            _, reward, terminated, _, about = env.step(choose(rng, about[ACTIONS]))
            total += reward
            if terminated:
                break
        rewards.append(total)
    return sum(rewards) / len(rewards), sum(map(info.is_success, rewards)) / len(rewards)


def test_who_reads_nothing_reaches_few_goals(info):
    """A sheet gives part of the reward to whoever opens it; yes-or-no questions are guessed in half of all cases."""
    by_chance, successes = played(info, lambda rng, listed: rng.choice(listed))
    constant, constant_successes = played(info, lambda rng, listed: listed[0])
    assert successes < 0.15
    assert constant_successes < 0.1
    assert by_chance < (0.7 if info.name == "sheet" else 0.15)
    assert constant < (0.7 if info.name == "sheet" else 0.1)


HOSTILE = (
    "", "look", "Action: finish", "finish", "x" * 100_000, "finish with Action Input: " + "x" * 100_000,
    "Action: finish with Action Input: {", "finish with Action Input: []", "with Action Input: {}" * 4000,
    "nothing with Action Input: {}", "__init__ with Action Input: {}", "state with Action Input: {}",
    "copy with Action Input: {}", "Action:" * 10_000, "check_valid_actions with Action Input: {\"x\": 1}",
    "finish with Action Input: " + "[" * 10_000, "finish with Action Input: {\"answer\": " + "9" * 9000 + "}",
)  # fmt: skip
VALUES = (
    None, True, -1, 0, 10**12, -(10**12), 1.5, 1e300, "", "B3", "ZZ999", "2021-02-30", "9999-12-31", "1" * 400,
    "(a+)+$", "[", [], [[]], [[None]], [["a"] * 40] * 300, {"a": 1}, ["x", 1, None], "\u202e", "\x00", "Sheet1",
)  # fmt: skip


def test_hostile_actions_are_answered(info):
    env = info.make()
    rng = random.Random(0)
    env.reset(0)
    texts = list(HOSTILE)
    for _ in range(1500):
        tool = env.tools[rng.choice(sorted(env.tools))]
        given = {each.name: rng.choice(VALUES) for each in tool.arguments if rng.random() < 0.95}
        texts.append(written(tool.name, given)[:30_000])
    for item, text in enumerate(texts):
        if env.has_ended:
            env.reset(item % 100)
            if info.name == "sheet":
                env.step(written("open_sheet", {"name": sorted(env.service.sheets)[0]}))
        observation, reward, terminated, truncated, about = env.step(text)
        assert observation
        assert len(observation) < 100_000
        assert -1 <= reward <= 1
        assert not truncated
        assert terminated == env.has_ended
        hash(env.state_key())
        assert not about.get(INVALID) or observation == FORMAT_ERROR or "ERROR | " in observation


def digest(name, items):
    """Of the expert's episodes."""
    info = ENVIRONMENTS.get(name)
    env, said = info.make(), {}
    for item in items:
        first, _ = env.reset(item)
        lines = [first]
        for thought, action in info.expert(env, seed=3):
            lines += [thought, action, *map(repr, env.step(action)[:3])]
            if env.has_ended:
                break
        said[item] = sha256("\n".join(lines).encode()).hexdigest()
    return said


@pytest.mark.parametrize("hash_seed", ["1", "4321"])
def test_equal_episodes_in_another_process_order_and_hash_seed(hash_seed):
    items = list(range(30))
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from test_tool_environments import *;"
        f"print(json.dumps({{name: digest(name, {items[::-1]}) for name in NAMES}}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, os.path.dirname(__file__)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    for name, other in json.loads(found.stdout).items():
        assert {int(item): said for item, said in other.items()} == digest(name, items)


def test_the_rules_list_the_tools(info):
    env = info.make()
    env.reset(0)
    assert described(list(env.tools.values())) in rules_text(info.rules)
    assert len(env.tools) == NUM_TOOLS[info.name]
    assert list(FUNCTIONS[info.name]) == list(env.tools)
    for schema, tool in zip(tools_of(info.name), env.tools.values(), strict=True):
        assert schema["function"]["name"] == tool.name
        assert list(schema["function"]["parameters"]["properties"]) == [each.name for each in tool.arguments]


def test_the_expert_repeats_a_call_that_another_one_replaced(info):
    env = info.make()
    for item in range(20):
        env.reset(item)
        total = 0.0
        for turn, (_, action) in enumerate(info.expert(env, seed=0)):
            replaced = turn % 3 == 1 and not action.startswith("finish")
            total += env.step("check_valid_actions with Action Input: {}" if replaced else action)[1]
            if env.has_ended:
                break
        assert total == 1.0


def test_raw_replies_are_actions_too(info):
    """The published servers get the whole reply."""
    env, other = info.make(), info.make()
    env.reset(4)
    other.reset(4)
    for thought, action in info.expert(env, seed=0):
        assert env.step(action) == other.step(f"Thought: {thought}\n\nAction: {action}")
        if env.has_ended:
            break


def test_items_that_are_none_are_refused(info):
    env = info.make()
    for item in (-1, 1000):
        with pytest.raises(EnvError, match=f"{info.name} has the items 0 to 999"):
            env.reset(item)
    env.reset(0)
    env.close()
    with pytest.raises(EnvError, match="call `reset` first"):
        env.step("")


def test_no_two_items_are_one(info):
    env = info.make()
    goals = {env.reset(item)[0] for item in range(300)}
    states = {repr(vars(env.find(item).begins)) for item in range(100)}
    assert len(states) == 100
    assert len(goals) > (200 if info.name != "todo" else 150)
