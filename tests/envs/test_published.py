"""Published lists of item ids: the real files, and what is wrong with some."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from whet.envs.protocol import EnvError
from whet.envs.published import PublishedItem, overlaps, parse_item_id, read_items, read_numbers

IDS = "agentgym/RL-ids"


@pytest.mark.parametrize(
    ("item_id", "begins", "number"),
    [
        ("textcraft_12", "textcraft", 12),
        ("lmrlgym_maze_12", "lmrlgym_maze", 12),
        ("triviaqa_12545", "triviaqa", 12545),
        ("tool_academia_0", "tool_academia", 0),
    ],
)
def test_an_id_is_a_name_and_a_number(item_id, begins, number):
    assert parse_item_id(item_id) == PublishedItem(begins, number)


@pytest.mark.parametrize("item_id", ["", "maze", "_3", "maze_", "maze_-1", "maze_1.5", "maze_²", "maze_ 3", "maze_x"])
def test_what_is_no_id_is_said(item_id):
    with pytest.raises(EnvError, match="is no item id"):
        parse_item_id(item_id)


@pytest.mark.parametrize(
    ("name", "num_train", "num_test", "shared"),
    [
        ("sciworld", 2120, 200, 61),
        ("lmrlgym_wordle", 955, 25, 21),
        ("lmrlgym_maze", 215, 25, 10),
        ("textcraft", 374, 100, 0),
        ("babyai", 810, 90, 0),
    ],
)
def test_published_lists_share_items(data_folder, name, num_train, num_test, shared):
    train = read_numbers(data_folder / IDS / f"train/{name}_train.json")
    test = read_numbers(data_folder / IDS / f"eval/{name}_test.json")
    assert (len(train), len(test)) == (num_train, num_test)
    assert overlaps(train, test) == overlaps(test, train) == shared


def test_every_published_file_but_one_can_be_read(data_folder):
    """The trial names have digits after their last underscore: taken for numbers, they would be items that are none."""
    files = sorted((data_folder / IDS).glob("*/*.json"))
    bad = []
    for path in files:
        try:
            assert read_items(path)
        except EnvError as error:
            bad.append((path.name, str(error)))
    assert len(files) == 27
    [(name, reason)] = bad
    assert name == "alfworld_train.json"
    assert "mappings_train.json" in reason


def test_trajectories_are_lists_of_items_too(data_folder):
    numbers = read_numbers(data_folder / "agentgym/AgentTraj-L/lmrlgym_maze_train.json")
    assert set(numbers) <= set(range(26))


def test_searchqa_ids_carry_their_source(data_folder):
    path = data_folder / IDS / "eval/searchqa_test.json"
    sources = Counter(item.begins for item in read_items(path))
    assert sum(sources.values()) == 400
    assert {"triviaqa", "popqa", "hotpotqa", "bamboogle"} <= set(sources)
    with pytest.raises(EnvError, match="read_items"):
        read_numbers(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ('{"item_id": "maze_1"}', "holds a dict"),
        ('[{"item_id": "maze_1"}, {"id": 2}]', "record 1 of .* has no item_id"),
        ('[{"item_id": "maze"}]', "record 0: 'maze' is no item id"),
        ("[1]", "record 0 of .* has no item_id"),
    ],
)
def test_a_bad_file_says_where(tmp_path, text, reason):
    path = tmp_path / "ids.json"
    path.write_text(text)
    with pytest.raises(EnvError, match=reason):
        read_items(path)


def test_no_file(tmp_path):
    with pytest.raises(EnvError, match="cannot read"):
        read_items(tmp_path / "none.json")


def test_order_and_repetitions_are_kept(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([{"item_id": f"maze_{number}"} for number in (3, 1, 3)]))
    assert read_numbers(path) == (3, 1, 3)
    assert overlaps((3, 1, 3), (3, 3, 4)) == 1
