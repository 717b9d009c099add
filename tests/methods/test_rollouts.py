"""What a step of training samples: whole groups, replies that go on from step to step, and dynamic sampling."""

from __future__ import annotations

from itertools import islice

import pytest

from support.benches import method_of
from support.commands import config_of
from whet.credit import differ
from whet.methods.sampling import batches_of, in_parts, whole
from whet.methods.solvers import solve_rollout
from whet.rollout.retries import EpisodeCounts, TooManyFaults
from whet.trainer.buffers import Queue
from whet.types import Grade, Task

SMALL = ("num_threads=1", "data.num_train=40", "data.num_validation=8", "data.num_test=8", "prompts_per_step=4",
         "group_size=4")  # fmt: skip


@pytest.fixture
def method(tmp_path):
    """A method on the shipped model, with a run that has not begun."""
    return lambda preset, *settings: method_of(config_of(preset, *SMALL, *settings), tmp_path / "run")


def replies(groups):
    return {group[0].task.id: [episode.segments[0] for episode in group] for group in groups}


def parts_of(made, queue, step, tasks):
    """A step of partial rollout, with the seeds of step 1: its replies are those of a whole step."""
    rollout = solve_rollout(made, "policy", "train", 1)
    return in_parts(rollout, made.run.runtime, tasks, made.config.group_size, queue=queue, step=step, budget=7)


def test_partial_rollout_writes_what_an_unbroken_one_would(method):
    """As long as the weights stay as they are; only the seams differ."""
    made, queue = method("grpo"), Queue()
    tasks = made.run.next_tasks(1, 4)
    unbroken = whole(solve_rollout(made, "policy", "train", 1), made.run.runtime, iter([tasks]), 4)
    parts = {}
    for step in range(1, 15):
        sampled = parts_of(made, queue, step, tasks if step == 1 else [])  # nothing new after step 1
        parts |= replies(sampled.groups)
    assert sampled.metrics["buffer/unfinished"] == 0
    assert len(queue) == 0
    assert parts.keys() == replies(unbroken.groups).keys() == {task.id for task in tasks}
    for task, group in replies(unbroken.groups).items():
        for one, other in zip(group, parts[task], strict=True):
            assert (one.tokens, one.text, one.stop_reason) == (other.tokens, other.text, other.stop_reason)
            assert one.grade == other.grade
            assert one.versions == other.versions  # one run, as one version wrote it all
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_partial_rollout_keeps_the_version_of_every_token(method):
    made, queue = method("grpo", "prompts_per_step=2"), Queue()
    done = []
    for step in range(1, 10):
        found = parts_of(made, queue, step, made.run.next_tasks(step, 2))
        done += [segment for group in replies(found.groups).values() for segment in group]
        made.run.loop.policies["policy"].version += 1
    assert done
    for segment in done:
        assert sum(count for _, count in segment.versions) == len(segment.tokens)
        assert all(count == 7 for _, count in segment.versions[:-1])
        versions = [version for version, _ in segment.versions]
        assert versions == list(range(versions[0], versions[0] + len(versions)))


def test_partial_rollout_whose_grading_ends_the_run_leaves_the_queue_as_it_was(method):
    """Its groups train after the resume, and no reply has grown twice."""
    made, queue = method("grpo", "sampling.max_new_tokens=14", "faults.budget=0.1"), Queue()
    tasks, runtime = made.run.next_tasks(1, 8), made.run.runtime
    parts_of(made, queue, 1, tasks)  # 7 of at most 14 tokens
    before, grade = {key: list(group) for key, group in queue.batches.items()}, runtime.grade
    runtime.grade = lambda asked: [Grade(score=None, reason="down") for _ in asked]
    with pytest.raises(TooManyFaults):
        parts_of(made, queue, 2, [])
    assert queue.batches == before
    runtime.grade, runtime.episode_counts = grade, EpisodeCounts()
    assert len(parts_of(made, queue, 2, []).groups) == len(before) == 8


def test_dynamic_sampling_keeps_groups_with_a_signal(method):
    made = method("dapo", "resample=5")
    batch = made._collect(1)
    groups = {}
    for row in batch.rows:
        groups.setdefault(row.group, []).append(row)
    assert 0 < len(groups) <= 4
    assert all(any(row.credit[-1] for row in rows) for rows in groups.values())
    assert batch.metrics["group/sampled"] >= len(groups)


def test_dynamic_sampling_never_asks_a_problem_twice_in_a_step(method):
    made = method("dapo", "resample=50", "data.num_train=10", "prompts_per_step=4", "group_size=2")
    names = [group[0].task.id for group in made._sampled(made.config, 3).groups if group]
    assert len(names) == len(set(names)) <= 10
    begun = [task.id for step in range(1, 6) for task in made.run.next_tasks(step, 4)]
    assert {begun.count(name) for name in begun} == {2}  # 20 places, 10 problems: twice round


def test_the_problems_that_dynamic_sampling_adds():
    tasks = [Task(id=str(n), prompt=str(n)) for n in range(10)]

    def drawn(step, resample=50):
        return [[task.id for task in batch] for batch in batches_of(tasks[:4], tasks, 0, step, resample)]

    assert drawn(2) == drawn(2)
    assert drawn(2) != drawn(3)
    assert drawn(2)[0] == ["0", "1", "2", "3"]
    names = [name for batch in drawn(2) for name in batch]
    assert len(set(names)) == len(names) == 10
    assert [len(batch) for batch in drawn(2)] == [4, 4, 2]
    assert [len(batch) for batch in drawn(2, resample=1)] == [4, 4]
    assert [len(batch) for batch in drawn(2, resample=0)] == [4]


def test_sampling_stops_once_enough_groups_have_a_signal(method):
    made = method("dapo", "prompts_per_step=2")
    asked = []

    def batches():
        for batch in batches_of(made.run.next_tasks(1, 2), made.run.tasks["train"], 0, 1, 15):
            asked.append(batch)
            yield batch

    found = whole(solve_rollout(made, "policy", "train", 1), made.run.runtime, batches(), 4, teaches=differ)
    mixed = [len({e.segments[0].grade.score for e in group}) > 1 for group in found.groups]
    assert sum(mixed) >= 2
    assert sum(mixed[: -len(asked[-1])]) < 2  # without the last batch there were too few
    assert found.metrics["group/sampled"] == len(mixed) == sum(map(len, asked))
    again = whole(solve_rollout(made, "policy", "train", 1), made.run.runtime, islice(batches(), 1), 4)
    assert "group/sampled" not in again.metrics
