"""What the wire between `whet env serve` and its client keeps: numbers, tuples, item numbers, and equal states."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from whet.envs import ENVIRONMENTS
from whet.envs.maze import Maze
from whet.envs.wire import (
    UNSENT,
    Answer,
    WireError,
    description_json,
    encoded,
    info_json,
    items_json,
    items_of_json,
    state_digest,
)


def sent(data):
    return json.loads(encoded(data))


def test_an_answer_comes_back_equal_with_every_bit_of_its_reward():
    env = Maze()
    env.reset(12)
    stepped = env.step("move up")
    for reward in (0.1 + 0.2, -1e-308, 5e-324, 1 / 3, -0.0):
        answer = Answer(stepped[0], reward, *stepped[2:], turn=1, state="abc")
        back = Answer.of_json(sent(answer.as_json()))
        assert back == answer
        assert back.reward.hex() == reward.hex()


def test_an_info_has_what_json_can_hold_and_names_the_rest():
    class Opaque:
        pass

    info = {
        "score": np.float32(0.5),
        "board": np.arange(4).reshape(2, 2),
        "where": (1, 2),
        "bad": float("nan"),
        "half": "\ud800",
        "thing": Opaque(),
        3: "three",
    }
    assert sent(info_json(info)) == {
        "score": 0.5,
        "board": [[0, 1], [2, 3]],
        "where": [1, 2],
        UNSENT: ["bad", "half", "thing", "3"],
    }


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"observation": 3, "reward": 0, "terminated": False, "truncated": False, "info": {}, "turn": 0},
        {"observation": "a", "reward": "1", "terminated": False, "truncated": False, "info": {}, "turn": 0},
        {"observation": "a", "reward": float("inf"), "terminated": False, "truncated": False, "info": {}, "turn": 0},
        {"observation": "a", "reward": 0, "terminated": "no", "truncated": False, "info": {}, "turn": 0},
        {"observation": "a", "reward": 0, "terminated": False, "truncated": False, "info": [], "turn": 0},
        {"observation": "a", "reward": 0, "terminated": False, "truncated": False, "info": {}, "turn": True},
        {"observation": "a", "reward": 0, "terminated": False, "truncated": False, "info": {}, "turn": 0, "state": 1},
    ],
)
def test_an_answer_that_breaks_the_protocol_is_refused(data):
    with pytest.raises(ValueError, match=r"answer|observation|reward|terminated|info|turn|state"):
        Answer.of_json(data)


def test_an_error_comes_back_with_its_code_and_status():
    back = WireError.of_json(sent(WireError("expired", "its lease ran out").as_json()))
    assert (back.code, back.message, back.status) == ("expired", "its lease ran out", 410)
    for other in ({"detail": "Not Found"}, {"error": "gone"}, {"error": {"code": "new", "message": ""}}, [], None):
        with pytest.raises(ValueError, match="no error of this wire"):
            WireError.of_json(other)


def test_item_numbers_come_back_in_their_order():
    assert items_json(range(5, 50, 3)) == [[5, 50, 3]]
    assert items_of_json([[5, 50, 3]]) == range(5, 50, 3)
    for seed in range(500):
        chance = random.Random(seed)
        items = tuple(chance.randrange(12) for _ in range(chance.randrange(1, 9)))
        assert tuple(items_of_json(sent(items_json(items)))) == items
    for wrong in ([], [[0, 3]], [[0, 3, 0]], [[3, 0, 1]], [[-2, 3, 1]], [[0, 1.5, 1]], [[0, 2**70, 1]], "0-3", None):
        with pytest.raises(ValueError, match="items"):
            items_of_json(wrong)


def test_a_description_has_the_splits_and_subgroups_of_the_environment():
    for entry in ENVIRONMENTS:
        if entry.origin != "whet":  # what other tests of this process have registered may be broken on purpose
            continue
        info = entry.make()
        described = sent(description_json(info))
        for split, items in info.splits().items():
            assert tuple(items_of_json(described["splits"][split])) == tuple(items)
        if info.group is None:
            assert described["groups"] is None
            continue
        group_of = {item: group for group, items in described["groups"].items() for item in items_of_json(items)}
        items = {item for items in info.splits().values() for item in items}
        assert group_of == {item: info.group(item) for item in items}
    assert "You" in description_json(ENVIRONMENTS.get("maze"))["rules"]  # the text, and not the file's name


@dataclass(frozen=True)
class Place:
    row: int


def test_digests_of_states_are_equal_exactly_where_the_states_are():
    keys = [(1, "a"), (1, "b"), ("1", "a"), (1, ("a",)), frozenset({1, "a"}), 1.5, None, (), Place(1), Place(2), b"a"]
    assert len({state_digest(key) for key in keys}) == len(keys)
    assert state_digest((1, True)) == state_digest((1.0, 1))  # as Python says
    assert state_digest(-0.0) == state_digest(0)
    with pytest.raises(ValueError, match="__repr__"):
        state_digest((1, object()))


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_digest_is_the_same_in_another_process(hash_seed):
    program = "from whet.envs.wire import state_digest; print(state_digest((frozenset('abcd'), 'e', 2)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.stdout.strip() == state_digest((frozenset("abcd"), "e", 2))
