"""Which units begin, which train, and when an update waits: by hand, and as laws over random orders."""

from __future__ import annotations

import random

import pytest

from whet.rollout.async_units import log_problem, read_log
from whet.rollout.unit_schedule import Batch, RecordedSchedule, UnitSchedule


def begin_all(schedule: UnitSchedule) -> list[int]:
    units = []
    while schedule.may_begin():
        units.append(schedule.begin())
    return units


def test_an_update_waits_for_a_unit_that_would_come_out_too_old():
    schedule = UnitSchedule(size=2, max_age=1, num_steps=9)
    assert begin_all(schedule) == [0, 1, 2, 3]  # steps 1 and 2 train on two each; a fifth would be two steps old
    schedule.end(2)
    assert not schedule.is_ready()  # one of two
    schedule.end(3)
    assert schedule.is_ready()  # 0 and 1 train in step 2, one step old
    assert schedule.take() == [(2, 1), (3, 1)]
    assert not schedule.may_begin()  # while step 1 trains: 0 and 1 fill step 2, and a unit of step 1 is too old for 3
    schedule.trained()
    assert begin_all(schedule) == [4, 5]
    schedule.end(4)
    schedule.end(5)
    assert schedule.has_enough
    assert not schedule.is_ready()  # 0 and 1 would be two steps old in step 3
    schedule.end(1)
    assert not schedule.is_ready()
    schedule.end(0)
    assert schedule.take() == [(0, 1), (1, 1)]  # the oldest, though 4 and 5 ended before them


def test_an_update_leaves_no_more_old_units_than_the_next_ones_can_train_on():
    schedule = UnitSchedule(size=2, max_age=2, num_steps=9)
    assert begin_all(schedule) == [0, 1, 2, 3, 4, 5]
    for unit in (4, 5):
        schedule.end(unit)
    assert schedule.take() == [(4, 1), (5, 1)]
    schedule.trained()
    assert begin_all(schedule) == [6, 7]
    for unit in (6, 7):
        schedule.end(unit)
    assert not schedule.is_ready()  # 0 to 3 would all be due in step 3, which trains on two
    schedule.end(3)
    assert not schedule.is_ready()  # three of them would be left
    schedule.end(2)
    assert schedule.take() == [(2, 1), (3, 1)]


def drive(schedule: UnitSchedule, rng: random.Random, workers: int, dies: float = 0.0) -> dict[int, Batch]:
    """Units end in a random order, some far later than others, also while a step trains."""
    batches: dict[int, Batch] = {}
    under_way: list[int] = []
    slow: set[int] = set()

    def turn() -> None:
        while schedule.may_begin() and len(under_way) < workers:
            under_way.append(schedule.begin())
            if rng.random() < 0.1:
                slow.add(under_way[-1])
        fast = [unit for unit in under_way if unit not in slow or rng.random() < 0.02]
        if fast or not schedule.is_ready():
            unit = rng.choice(fast or under_way)
            under_way.remove(unit)
            if rng.random() < dies:
                schedule.lose(unit)
            else:
                schedule.end(unit)

    while schedule.step <= schedule.num_steps:
        while not schedule.is_ready():
            turn()
        batches[schedule.step] = schedule.take()
        for _ in range(rng.randrange(12) if under_way else 0):
            if under_way:
                turn()
        schedule.trained()
    return batches


@pytest.mark.parametrize("max_age", [1, 2, 3, 7])
@pytest.mark.parametrize("dies", [0.0, 0.1])
def test_no_unit_is_trained_on_too_old_and_none_is_thrown_away(max_age, dies):
    size, steps = 4, 500
    schedule = UnitSchedule(size, max_age, steps)
    batches = drive(schedule, random.Random(max_age), workers=3 * size, dies=dies)
    ages = [step - begun for step, batch in batches.items() for _, begun in batch]
    assert min(ages) == 0
    assert max(ages) == max_age  # the bound is reached, so it is what holds the ages down
    assert sorted(unit for batch in batches.values() for unit, _ in batch) == list(range(size * steps))
    assert not schedule.open
    assert (schedule.num_lost > 0) == (dies > 0)


def test_a_recorded_order_is_repeated_whatever_ends_first():
    size, steps = 4, 40
    batches = drive(UnitSchedule(size, 2, steps), random.Random(5), workers=9)
    again = RecordedSchedule(size, 2, steps, record=batches)
    assert drive(again, random.Random(6), workers=2, dies=0.1) == batches
    rows = [{"step": step, "units": [list(pair) for pair in batch]} for step, batch in batches.items()]
    assert read_log(rows) == batches
    assert log_problem(batches, size, 2, steps) is None


def test_units_that_a_checkpoint_has_go_on_and_those_under_way_begin_again():
    schedule = UnitSchedule(size=2, max_age=1, num_steps=9)
    schedule.restore(step=4, num_begun=10, ended={7: 3}, unended=[9, 8])
    assert begin_all(schedule) == [8, 9, 10]  # with unit 7 they fill steps 4 and 5
    assert schedule.open == {7: 3, 8: 4, 9: 4, 10: 4}
    schedule.end(9)
    assert schedule.take() == [(7, 3), (9, 4)]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({1: [(0, 1), (1, 1)]}, "lacks step 2: num_steps = 2"),
        ({1: [(0, 1)], 2: [(1, 1)]}, "its step 1 trains on 1 units, and here a step has 2"),
        ({1: [(0, 1), (1, 1)], 2: [(1, 1), (2, 2)]}, "its step 2 trains on unit 1 again"),
        ({1: [(0, 1), (1, 2)], 2: [(2, 1), (3, 2)]}, "its unit 1 begins in step 2 and trains in step 1"),
        ({1: [(0, 1), (1, 1)], 2: [(2, 0), (3, 2)]}, "its unit 2 begins in step 0 and trains in step 2"),
    ],
)
def test_a_log_that_cannot_be_repeated_is_refused(record, problem):
    assert problem in str(log_problem(record, 2, 1, 2))


def test_a_log_of_older_rollouts_is_refused():
    record = {1: [(0, 1)], 2: [(1, 2)], 3: [(2, 1)]}
    assert log_problem(record, 1, 2, 3) is None
    assert log_problem(record, 1, 1, 3) == "its unit 2 is 2 steps old, and off_policy.max_age is 1"
