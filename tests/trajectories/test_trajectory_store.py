"""The store of trajectories: what goes in comes out, in order; queries filter; half a part is not there."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from whet.envs.protocol import EnvError
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories, with_source
from whet.trajectories.records import Message, Trajectory
from whet.trajectories.store import Query, Store

pytest.importorskip("pyarrow")


def episode(item, *, turns=1, **more):
    says = [
        Message("gpt" if n % 2 else "human", f"{item}: {n}", False if n == 1 else None) for n in range(3 + 2 * turns)
    ]
    return Trajectory(item_id=item, messages=tuple(says), **more)


ONES = (
    episode("textcraft_1", reward=1.0, success=True, source="expert", info={"seed": [7, None]}),
    episode("textcraft_1", reward=1.0, success=True, source="expert", info={"seed": [7, None]}),  # kept twice
    episode("babyai_2", turns=3, reward=0.25, success=False, source="policy"),
    episode("maze_3", turns=0),
)


def test_what_goes_in_comes_out_in_order(tmp_path):
    store = Store(tmp_path / "store")
    assert list(store.read()) == []
    assert store.append([]) is None
    for each in range(12):  # more than ten parts, so that names by digits matter
        store.append([replace(one, source=f"{one.source}{each}") for one in ONES])
    expected = [replace(one, source=f"{one.source}{each}") for each in range(12) for one in ONES]
    assert list(store.read()) == expected
    assert [path.name for path in store.parts()] == [f"part-{each:06d}.parquet" for each in range(12)]
    assert store.count() == {"babyai": 12, "maze": 12, "textcraft": 24}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Query(), [0, 1, 2, 3]),
        (Query(environments=["textcraft", "maze"]), [0, 1, 3]),
        (Query(success=True), [0, 1]),
        (Query(success=False), [2]),  # not recorded is not a failure
        (Query(least_turns=1, most_turns=2), [0, 1]),
        (Query(most_turns=0), [3]),
        (Query(least_reward=0.25), [0, 1, 2]),
        (Query(items=["babyai_2"]), [2]),
        (Query(sources=["policy"], least_turns=3), [2]),
        (Query(environments=["sciworld"]), []),
    ],
)
def test_queries(query, expected, tmp_path):
    store = Store(tmp_path)
    store.append(ONES[:2])
    store.append(ONES[2:])
    assert list(store.read(query)) == [ONES[each] for each in expected]
    assert sum(store.count(query).values()) == len(expected)


def test_names_come_in_lists():
    with pytest.raises(EnvError, match="environments of a query is the text 'maze'; give a list of names"):
        Query(environments="maze")


def test_what_is_no_part_does_not_count(tmp_path):
    store = Store(tmp_path)
    path = store.append(ONES)
    (tmp_path / ".part-000001.parquet.1.tmp").write_bytes(path.read_bytes()[:100])  # as a kill leaves it
    (tmp_path / "notes.txt").write_text("mine")
    assert list(store.read()) == list(ONES)
    (tmp_path / "part-000001.parquet").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(EnvError, match=r"part-000001\.parquet cannot be read"):
        list(store.read())
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "part-000001.parquet")
    with pytest.raises(EnvError, match=r"part-000001\.parquet is not a file of a trajectory store"):
        list(store.read())


def test_an_append_is_all_or_nothing(tmp_path):
    store = Store(tmp_path / "store")
    with pytest.raises(DataError, match="trajectory 2"):
        store.append([ONES[0], replace(ONES[1], messages=())])
    assert not (tmp_path / "store").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvError, match="cannot make the folder"):
        Store(tmp_path / "file").append(ONES)


def test_appends_at_one_time_are_all_kept(tmp_path):
    threads = [threading.Thread(target=Store(tmp_path).append, args=([episode(f"maze_{each}")],)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.item_id for each in Store(tmp_path).read()) == [f"maze_{each}" for each in range(8)]
    assert len(list(tmp_path.iterdir())) == 8


def test_published_trajectories_are_stored(data_folder, tmp_path):
    store = Store(tmp_path)
    found = {}
    for name in ("textcraft", "babyai", "lmrlgym_maze"):
        path = data_folder / f"agentgym/AgentTraj-L/{name}_train.json"
        found[name] = with_source(read_trajectories(path), "expert")
        store.append(found[name])
    assert store.count() == {"babyai": 481, "maze": 141, "textcraft": 247}
    assert tuple(store.read(Query(environments=["babyai"]))) == found["babyai"]
    long = [each for name in found for each in found[name] if each.num_turns >= 10]
    assert list(store.read(Query(least_turns=10))) == long


def test_without_pyarrow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("whet.trajectories.store.find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"make setup EXTRAS=data"):
        Store(tmp_path)
