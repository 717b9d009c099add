"""The store: queues of rows, episodes and tasks come back from a checkpoint equal and in order, and so do theirs."""

import json
from dataclasses import replace

import pytest

from support.episodes import exchange, reply, segment_of
from support.rows import row_of
from whet.credit.rewards import outcome, rewarded
from whet.trainer.buffers import Queue, Store, decoded, encoded
from whet.types import Episode, Grade, Row, Task

PLAIN = row_of(
    (5, 6), (7, 8, 9), (1.0, -0.5, 0.1), logprobs=(-0.1, -0.2, -1e-30), versions=((3, 1), (4, 2)), group="t/0"
)
ROWS = [
    PLAIN,
    row_of((5,), (7,), 0.3),  # no logprobs
    replace(PLAIN, ref_logprobs=(-1.0, -2.0, -3.0), temperature=0.7, weight=1 / 3, share=1 / 7),
    row_of((5, 6), (), kind="empty"),
    replace(
        PLAIN, kind="pair", bundle="Ünïcode \u2028 \n b", extra={"rate": 0.1, "rank": 2.0}, policy="critic", versions=()
    ),
    Row(policy="p", tokens=(5, 6, 7, 8, 9), trains=(1, 4), credit=(1.0, 2.0), logprobs=None, ref_logprobs=(0.1, 0.2)),
]


def saved(store, folder):
    folder.mkdir()
    store.save(folder)
    found = Store()
    found.load(folder)
    return found


def twice(store, tmp_path):
    """What a checkpoint gives back, and what a checkpoint of that does; the files are the same."""
    once = saved(store, tmp_path / "once")
    again = saved(once, tmp_path / "again")
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "once", tmp_path / "again")
    )
    assert first.keys() == second.keys()
    assert [file for file in first if first[file] != second[file]] == []
    return [once, again]


def test_rows_round_trip(tmp_path):
    store = Store()
    store.rows("replay").put("2", ROWS[:2])
    store.rows("replay").put("10", ROWS[2:])
    store.rows("replay").put("3", [])
    store.rows("none")
    for found in twice(store, tmp_path):
        queue = found.rows("replay")
        assert list(queue.batches) == ["2", "10", "3"]  # in the order they were put in, not by name
        assert queue.batches == store.rows("replay").batches
        assert list(queue) == ROWS
        for got, row in zip(queue, ROWS, strict=True):
            assert (got.weight, got.temperature, got.versions) == (row.weight, row.temperature, row.versions)
            for name in ("tokens", "trains", "credit", "logprobs", "ref_logprobs"):
                one, other = getattr(got, name), getattr(row, name)
                assert (one is None) == (other is None)
                assert one is None or (one.dtype == other.dtype and one.tobytes() == other.tobytes())
        assert len(found.rows("none")) == 0
        with pytest.raises(ValueError, match="read-only"):
            next(iter(queue)).credit[0] = 1


EPISODES = [
    exchange(0.0, [("wrong", [1.0, 0.0]), (None, [])]),  # refinements go on from the answer
    *rewarded([reply(1.0), reply(0.25, task="Ünïcode \u2028 \x85 \n q")], "solver", {"outcome": outcome()}),
    replace(reply(None), reason="the grader broke"),
    Episode(
        task=Task(id="w", prompt="q", info={"level": 3, "nested": {"a": [1, 2.5, None, True]}}),
        segments=(segment_of(tokens=(), logprobs=(), versions=(), parsed={"verdict": None, "extracted": "4"},
                             stop_reason="length", seed=2**64 - 1),),
        outcome="unfinished",
    ),
    Episode(task=Task(id="e", prompt=""), segments=(), outcome="env_error", reason="it hung"),
]  # fmt: skip


def test_episodes_round_trip(tmp_path):
    store = Store()
    store.episodes("unfinished").put("1/b", EPISODES[2:])
    store.episodes("unfinished").put("1/a", EPISODES[:2])
    for found in twice(store, tmp_path):
        queue = found.episodes("unfinished")
        assert queue.batches == store.episodes("unfinished").batches
        assert list(queue.batches) == ["1/b", "1/a"]
        answer, _, refinement, *_ = queue.batches["1/a"][0].segments
        assert refinement.prefix is answer  # kept once
        assert refinement.context == (*answer.context, *answer.tokens, 21)
        assert [e.segments[0].rewards for e in queue.batches["1/b"][:1]] == [{"outcome": 0.25, "total": 0.25}]


def test_a_chain_of_prefixes_keeps_each_token_once():
    """A dialogue of ten turns: were each whole context written out, the text would grow with its square."""
    segments = [segment_of("agent", added=(5,) * 50)]
    for turn in range(9):
        segments.append(segment_of("agent", added=(6, 7), parent=turn, prefix=segments[-1]))
    episode = Episode(task=Task(id="t", prompt="q"), segments=tuple(segments))
    shown = json.loads(json.dumps(encoded(episode)))
    assert sum(len(each["added"]) for each in shown["segments"]) == 50 + 9 * 2
    assert decoded(shown) == episode
    assert [each.context for each in decoded(shown).segments] == [each.context for each in segments]


def test_a_prefix_that_is_not_of_the_episode_is_written_out():
    """An answer that got its grade, or its reward, after others went on from it is another record."""
    episode = exchange(0.0, [("wrong", [1.0])])
    answer, critique, refinement = episode.segments
    graded = replace(episode, segments=(replace(answer, grade=Grade(score=1.0)), critique, refinement))
    found = decoded(json.loads(json.dumps(encoded(graded))))
    assert found.segments[2].prefix is None
    assert found.segments[2].context == refinement.context
    assert found.segments[2].tokens == refinement.tokens
    assert found.segments[:2] == graded.segments[:2]
    assert decoded(json.loads(json.dumps(encoded(found)))) == found


def test_tasks_round_trip(tmp_path):
    store = Store()
    tasks = [Task(id=f"t/{i}", prompt=f"What is {i}?\n", answer=str(i), info={"from": "a \u2029 b"}) for i in range(5)]
    store.tasks("recycled").put("b", tasks[3:])
    store.tasks("recycled").put("a", [*tasks[:3], Task(id="x", prompt="")])
    for found in twice(store, tmp_path):
        assert found.tasks("recycled").batches == store.tasks("recycled").batches
        assert [task.id for task in found.tasks("recycled")] == ["t/3", "t/4", "t/0", "t/1", "t/2", "x"]


def test_loading_forgets_what_was_there(tmp_path):
    store = Store()
    store.tasks("old").put("a", [Task(id="t", prompt="")])
    saved(Store(), tmp_path / "empty")
    store.load(tmp_path / "empty")
    assert len(store.tasks("old")) == 0


def test_first_in_first_out():
    queue: Queue[Task] = Queue()
    tasks = [Task(id=str(i), prompt="") for i in range(4)]
    for key, batch in (("b", tasks[:2]), ("a", tasks[2:3]), ("c", tasks[3:])):
        queue.put(key, batch)
    queue.put("a", tasks[:1])  # in its place
    assert [task.id for task in queue] == ["0", "1", "0", "3"]
    assert (len(queue), queue.take("a"), queue.take(), len(queue)) == (3, tasks[:1], tasks[:2], 1)
    queue.clear()
    with pytest.raises(KeyError):
        queue.take()
    with pytest.raises(KeyError):
        queue.take("a")


def test_what_was_put_in_is_the_queues_own():
    batch = [Task(id="t", prompt="")]
    queue: Queue[Task] = Queue()
    queue.put("a", batch)
    batch.clear()
    assert len(queue.take("a")) == 1


def test_a_store_makes_a_queue_where_it_is_first_asked_for():
    store = Store()
    assert store.rows("a") is store.rows("a")
    assert store.rows("a") is not store.rows("b")
    assert store.episodes("a") is not store.rows("a")
