"""Published lists of item ids: the real files, and what is wrong with some."""

from __future__ import annotations

import json

import pytest

from whet.tasks.files import DataError
from whet.trajectories.published import overlaps, read_numbers

IDS = "agentgym/RL-ids"


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


def test_every_published_file_of_one_world_but_one_can_be_read(data_folder):
    """The trial names have digits after their last underscore: taken for numbers, they would be items that are none."""
    files = sorted((data_folder / IDS).glob("*/*.json"))
    bad = {}
    for path in files:
        try:
            assert read_numbers(path)
        except DataError as error:
            bad[path.name] = str(error)
    assert len(files) == 27
    assert bad.keys() == {"alfworld_train.json", "searchqa_test.json"}
    assert "named after a trial" in bad["alfworld_train.json"]
    assert "searchqa" in bad["searchqa_test.json"]


def test_trajectories_are_lists_of_items_too(data_folder):
    numbers = read_numbers(data_folder / "agentgym/AgentTraj-L/lmrlgym_maze_train.json")
    assert set(numbers) <= set(range(26))


def test_a_bad_file_says_where(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text('[{"item_id": "maze_1"}, {"item_id": "maze"}]')
    with pytest.raises(DataError, match=r"ids\.json, record 2: 'maze' does not end in an item's number"):
        read_numbers(path)
    with pytest.raises(DataError, match=r"none\.json"):
        read_numbers(tmp_path / "none.json")


def test_order_and_repetitions_are_kept(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([{"item_id": f"maze_{number}"} for number in (3, 1, 3)]))
    assert read_numbers(path) == (3, 1, 3)
    assert overlaps((3, 1, 3), (3, 3, 4)) == 1
