"""The run's store: queues of rows, episodes and tasks that come back from disk as they were."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.commands import ENVIRONMENT
from whet.trainer.buffers import Queue, Store
from whet.types import Episode, Grade, Row, Segment, Task

TASK = Task(id="7 + 5", prompt="7 + 5", answer="2", info={"kind": "chains", "parts": [1, 2.5, None]})


def a_row(number, **changes):
    row = Row(
        policy="policy", tokens=(1, 2, number), trains=(1, 2), credit=(0.1 * number, 1 / 3),
        logprobs=(-math.pi * number, -1e-9), group=f"g{number}", versions=((number, 1), (number + 1, 1)),
    )  # fmt: skip
    return replace(row, **changes)


def a_segment(**changes):
    segment = Segment(
        role="solver", policy="policy", added=(1, 2), tokens=(5, 6, 7), logprobs=(-0.5, -math.pi, -1e-9),
        versions=((0, 2), (3, 1)), text="x", stop_reason="length", temperature=0.7, seed=2**63 + 1, parent=None,
        group={"task": "7 + 5"},
    )  # fmt: skip
    return replace(segment, **changes)


def through_disk(store, folder):
    folder.mkdir()
    store.save(folder)
    again = Store()
    again.load(folder)
    return again


def test_a_queue_hands_out_the_oldest_batch_or_the_one_that_is_named():
    queue = Queue()
    for step in range(4):
        queue.put(str(step), [a_row(step)])
    queue.put("1", [a_row(9)])  # replaced, in its place
    assert [row.tokens[-1] for row in queue] == [0, 9, 2, 3]
    assert queue.take() == [a_row(0)]
    assert queue.take("2") == [a_row(2)]
    assert list(queue.batches) == ["1", "3"]
    assert len(queue) == 2
    queue.clear()
    with pytest.raises(KeyError):
        queue.take()
    with pytest.raises(KeyError):
        queue.take("1")


def test_rows_come_back_from_disk_bit_by_bit(tmp_path):
    store = Store()
    batches = {
        str(n): [
            a_row(n),
            a_row(n, logprobs=None, ref_logprobs=(1.5, 0.1), versions=()),
            a_row(n, kind="pair", bundle=f"b{n}", extra={"rank": 1 / 3, "share": 0.0}, weight=0.1, temperature=0.6),
            a_row(n, trains=(), credit=(), logprobs=()),
        ]
        for n in range(5)
    }
    for key, rows in batches.items():
        store.rows("replay").put(key, rows)
    store.rows("other").put("a", [a_row(7)])
    again = through_disk(store, tmp_path / "store")
    assert again.rows("replay").batches == batches
    assert list(again.rows("replay").batches) == list(batches)
    assert again.rows("other").take() == [a_row(7)]
    for row in again.rows("replay"):
        assert (row.tokens.dtype, row.trains.dtype, row.credit.dtype) == (np.int32, np.int32, np.float32)
    assert len(again.rows("new")) == 0


def test_an_empty_batch_keeps_its_place_in_the_queue(tmp_path):
    store = Store()
    store.rows("replay").put("1", [])
    store.rows("nothing")
    again = through_disk(store, tmp_path / "store")
    again.rows("replay").put("2", [a_row(1)])
    assert again.rows("replay").take() == []
    assert again.rows("replay").take() == [a_row(1)]
    assert len(again.rows("nothing")) == 0


def test_episodes_come_back_from_disk(tmp_path):
    answer = a_segment(text="a\u2028b", grade=Grade(score=0.5, reason="half", extracted="2", exhausted=True))
    critique = a_segment(role="critic", prefix=answer, added=(9,), parent=0, parsed={"verdict": None}, versions=())
    elsewhere = a_segment(
        prefix=a_segment(tokens=(8,), logprobs=(-1.0,), versions=((0, 1),)), parent=1, rewards={"total": -1.0}
    )
    whole = Episode(task=TASK, segments=(answer, critique), outcome="truncated", reason="because")
    odd = Episode(task=TASK, segments=(answer, critique, elsewhere), outcome="unfinished")
    store = Store()
    store.episodes("unfinished").put("3/7 + 5", [whole, odd])
    store.episodes("unfinished").put("4/7 + 5", [])
    again = through_disk(store, tmp_path / "store").episodes("unfinished")
    [back, oddly] = again.batches["3/7 + 5"]
    assert back == whole
    assert back.segments[1].prefix is back.segments[0]  # what is shared stays shared
    assert [s.context for s in oddly.segments] == [s.context for s in odd.segments]
    assert oddly.segments[2] == replace(elsewhere, prefix=None, added=elsewhere.context)
    assert again.batches["4/7 + 5"] == []


def test_tasks_come_back_from_disk(tmp_path):
    store = Store()
    store.tasks("hard").put("stage1", [TASK, replace(TASK, id="other", answer=None, info={})])
    again = through_disk(store, tmp_path / "store")
    assert again.tasks("hard").batches == store.tasks("hard").batches


def test_what_was_there_before_is_gone_where_a_store_is_loaded(tmp_path):
    store = Store()
    store.rows("kept").put("1", [a_row(1)])
    (tmp_path / "store").mkdir()
    store.save(tmp_path / "store")
    kept = store.rows("kept")
    kept.put("2", [a_row(2)])
    store.tasks("later").put("1", [TASK])
    store.load(tmp_path / "store")
    assert list(store.rows("kept").batches) == ["1"]
    assert store.rows("kept") is kept  # who holds a queue holds what was loaded
    assert len(store.tasks("later")) == 0


SAVE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_queues import Store, a_row
store = Store()
store.rows("replay").put("1", [a_row(1), a_row(2)])
Path({folder!r}).mkdir()
store.save(Path({folder!r}))
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    """This one, twice, and a new one, whose strings hash otherwise."""
    code = SAVE.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "other"))
    tests = Path(__file__).parents[1]
    paths = f"{tests}:{ENVIRONMENT.get('PYTHONPATH', '')}"
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT | {"PYTHONPATH": paths}, check=True, timeout=60)
    for name in ("first", "second"):
        store = Store()
        store.rows("replay").put("1", [a_row(1), a_row(2)])
        (tmp_path / name).mkdir()
        store.save(tmp_path / name)
    saved = {(tmp_path / name / "rows" / "replay.safetensors").read_bytes() for name in ("first", "second", "other")}
    assert len(saved) == 1
