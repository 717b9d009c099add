"""What every registered environment has to keep: a new one is tested by being registered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.worlds import NOISE, digest, episode, expert_episode, some_items, world_of
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.formats import PARSERS

NAMES = ENVIRONMENTS.names()


@pytest.fixture(params=NAMES)
def info(request):
    found = ENVIRONMENTS.get(request.param)
    try:
        world_of(request.param).close()
    except EnvError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def world(info):
    world = info.make()
    yield world
    world.close()


def test_what_it_says_of_itself(info):
    splits = info.splits()
    assert {"train", "test"} <= splits.keys()
    assert not set(splits["train"]) & set(splits["test"])
    assert all(len(items) == len(set(items)) for items in splits.values())
    least, greatest = info.rewards
    assert least <= info.success_above < greatest
    assert info.score(greatest) == 1.0
    assert info.score(least) == max(0.0, least / info.scale)
    assert info.parser in PARSERS
    assert info.max_turns > 0


def test_same_item_and_seed_same_episode_in_any_order(info, world):
    items = some_items(info)[:4]
    forth = {item: episode(world, info, item, 1) for item in items}
    back = {item: episode(world, info, item, 1) for item in reversed(items)}
    assert forth == back
    other = info.make()
    try:
        assert episode(other, info, items[-1], 1) == forth[items[-1]]
    finally:
        other.close()


@pytest.mark.parametrize("hash_seed", ["1", "12345"])
def test_in_another_process_under_another_hash_seed(info, hash_seed):
    items = some_items(info)[:3]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "support.worlds", info.name, *map(str, items)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert found.stdout.split() == digest(info.name, items), found.stderr[-2000:]


def test_any_text_is_answered(info, world):
    item = some_items(info)[0]
    for noise in NOISE:
        world.reset(item, seed=0)
        observation, reward, terminated, truncated, about = world.step(noise)
        assert isinstance(observation, str)
        assert observation
        assert isinstance(about, dict)
        assert (type(terminated), type(truncated)) == (bool, bool)
        assert info.rewards[0] <= reward <= info.rewards[1]


def test_it_is_asked_between_beginning_and_end_only(info):
    world = info.make()
    with pytest.raises(EnvError):
        world.step("look")
    with pytest.raises(EnvError):
        world.reset(-1)
    world.close()


def test_a_reset_in_the_middle_leaks_nothing(info, world):
    first, second, *_ = some_items(info)
    fresh = episode(world, info, second, 3)
    episode(world, info, first, 2)
    world.reset(first, seed=5)
    world.step(NOISE[3])
    assert episode(world, info, second, 3) == fresh


def test_a_fork_goes_its_own_way(info, world):
    item = some_items(info)[0]
    if info.expert is None:
        pytest.skip("it has no expert")
    actions = [action for _, action in expert_episode(world, info, item, 4)[0]]
    world.reset(item, seed=4)
    for action in actions[:1] if len(actions) > 2 else []:
        world.step(action)
    rest = actions[1:] if len(actions) > 2 else actions
    other = world.fork()
    try:
        assert other.state_key() == world.state_key()
        before = world.state_key()
        said = [other.step(action)[:4] for action in rest]
        assert world.state_key() == before
        assert [world.step(action)[:4] for action in rest] == said
        assert other.state_key() == world.state_key()
        hash(world.state_key())
    finally:
        other.close()


def test_its_expert_succeeds_and_repeats(info, world):
    if info.expert is None:
        pytest.skip("it has no expert")
    items = some_items(info)[:4]
    played = [expert_episode(world, info, item, 0) for item in items]
    assert any(info.is_success(reward) for _, reward in played)
    assert all(info.rewards[0] <= reward <= info.rewards[1] for _, reward in played)
    assert [expert_episode(world, info, item, 0) for item in items] == played
    ended = next(item for item, (_, reward) in zip(items, played, strict=True) if info.is_success(reward))
    expert_episode(world, info, ended, 0)
    with pytest.raises(EnvError):  # the episode is over
        world.step("look")


def test_its_name_stands_in_settings(info):
    assert info.name in ENVIRONMENTS
    with pytest.raises(ValueError, match="there is no environment 'textkraft'; did you mean 'textcraft'"):
        ENVIRONMENTS.get("textkraft")
