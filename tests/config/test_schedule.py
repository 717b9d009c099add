"""What each kind of schedule says at each step, worked by hand, and that gates are plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from whet.config import Constant, Gate, Gated, Linear, Schedule, Steps, advanced, after_step, value_at

FROM_TREE: TypeAdapter[Schedule] = TypeAdapter(Schedule)


def over(schedule: Schedule, num_steps: int, *, whole: bool = False) -> list[Any]:
    return [value_at(schedule, step, whole=whole) for step in range(1, num_steps + 1)]


# --- by the step


def test_constant() -> None:
    assert over(Constant(value="soft"), 3) == ["soft"] * 3


def test_steps_hold_from_their_step_on() -> None:
    assert over(Steps(values=(5, 8, 10), at=(3, 4)), 6) == [5, 5, 8, 10, 10, 10]
    assert over(Steps(values=("a", "b"), at=(2,)), 3) == ["a", "b", "b"]
    assert over(Steps(values=(7,), at=()), 2) == [7, 7]


def test_linear_is_at_its_start_in_step_1_and_at_its_end_over_steps_later() -> None:
    assert over(Linear(start=0.0, end=1.0, over=4), 7) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert over(Linear(start=1.0, end=0.0, over=2, after=3), 6) == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]


def test_after_0_makes_the_first_step_the_first_part_of_the_way() -> None:
    assert over(Linear(start=0, end=1, over=4, after=0), 5) == [0.25, 0.5, 0.75, 1, 1]


def test_whole_numbers_are_rounded_halves_up_and_stay_whole() -> None:
    up = over(Linear(start=1, end=4, over=6), 7, whole=True)  # 1, 1.5, 2, 2.5, 3, 3.5, 4
    assert up == [1, 2, 2, 3, 3, 4, 4]
    down = over(Linear(start=4, end=1, over=6), 7, whole=True)  # halves go up on the way down too
    assert down == [4, 4, 3, 3, 2, 2, 1]
    assert over(Linear(start=-1, end=-2, over=2), 3, whole=True) == [-1, -1, -2]
    assert all(type(value) is int for value in up + down)
    assert over(Linear(start=1.0, end=2, over=4), 5, whole=True) == [1.0, 1, 2, 2, 2]
    assert value_at(Linear(start=10**15 - 1, end=10**15, over=2), 2, whole=True) == 10**15


def test_whole_numbers_with_ends_written_whole_are_still_parted_where_the_setting_is_none() -> None:
    assert over(Linear(start=0, end=1, over=2), 3) == [0, 0.5, 1]


@given(
    st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(1, 50), st.integers(0, 20), st.integers(1, 80),
)  # fmt: skip
def test_linear_keeps_between_its_ends_and_never_turns_back(
    start: float, end: float, num_steps: int, after: int, step: int
) -> None:
    schedule = Linear(start=start, end=end, over=num_steps, after=after)
    value, later = value_at(schedule, step), value_at(schedule, step + 1)
    assert min(start, end) <= value <= max(start, end)
    assert value <= later if start <= end else value >= later
    assert step > after or value == start
    assert step < after + num_steps or value == end


# --- by a metric


def test_a_gate_opens_in_the_step_after_the_metric_has_passed_often_enough() -> None:
    schedule = Gated(values=("a", "b", "c"), metric="acc", above=0.5, patience=2)
    gate, seen = Gate(), []
    for value in (0.6, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6):
        seen.append(value_at(schedule, 1, gate))
        gate = after_step(schedule, gate, {"acc": value})
    assert seen == ["a", "a", "a", "a", "b", "b", "c"]
    assert gate == Gate(2, 0)


@pytest.mark.parametrize(
    ("threshold", "value", "gate"),
    [
        ({"above": 0.5}, 0.51, Gate(0, 2)),
        ({"above": 0.5}, 0.5, Gate(0, 0)),  # at the threshold is not past it
        ({"below": 0.0}, -0.1, Gate(0, 2)),
        ({"below": 0.0}, 0.0, Gate(0, 0)),
        ({"above": 0.5}, None, Gate(0, 1)),  # not measured: as it was
        ({"below": 0.5}, float("nan"), Gate(0, 0)),
    ],
)
def test_thresholds(threshold: dict[str, float], value: float | None, gate: Gate) -> None:
    schedule = Gated(values=(1, 2), metric="m", patience=3, **threshold)
    assert after_step(schedule, Gate(0, 1), {"m": value}) == gate


def test_a_metric_that_is_absent_leaves_the_gate_as_it_is() -> None:
    schedule = Gated(values=(1, 2), metric="m", above=0, patience=2)
    assert after_step(schedule, Gate(0, 1), {"other": 1.0}) == Gate(0, 1)


def test_the_last_value_stays() -> None:
    schedule = Gated(values=(1, 2), metric="m", above=0)
    assert after_step(schedule, Gate(1), {"m": 1.0}) == Gate(1)
    assert after_step(Gated(values=(1,), metric="m", above=0), Gate(), {"m": 1.0}) == Gate()


def test_only_schedules_that_wait_have_gates() -> None:
    schedules: Mapping[str, Schedule] = {
        "a": Gated(values=(1, 2), metric="m", above=0),
        "b": Linear(start=0, end=1, over=2),
        "c": Gated(values=(1, 2), metric="n", below=0),
    }
    assert advanced(schedules, {}, {"m": 1.0}) == {"a": Gate(1), "c": Gate()}
    assert advanced(schedules, {"a": Gate(1)}, {"n": -1.0}) == {"a": Gate(1), "c": Gate(1)}


MEASURED = st.lists(st.dictionaries(st.sampled_from(["m", "n"]), st.none() | st.floats(-1, 1), max_size=2), max_size=30)


@given(MEASURED, st.integers(0, 30), st.integers(1, 3))
def test_gates_saved_on_the_way_and_read_back_give_the_same_values(
    measured: list[dict[str, float | None]], saved_at: int, patience: int
) -> None:
    schedules: Mapping[str, Schedule] = {
        "x": Gated(values=(1, 2, 3), metric="m", above=0.1, patience=patience),
        "y": Gated(values=("a", "b"), metric="n", below=-0.1, patience=patience),
    }

    def run(killed_at: int) -> list[Any]:
        gates: dict[str, Gate] = {}
        seen = []
        for step, metrics in enumerate(measured, start=1):
            if step == killed_at:
                text = json.dumps({key: asdict(gate) for key, gate in gates.items()})
                gates = {key: Gate(**saved) for key, saved in json.loads(text).items()}
            seen.append([value_at(schedules[key], step, gates.get(key, Gate())) for key in schedules])
            gates = advanced(schedules, gates, metrics)
        return [seen, gates]

    assert run(killed_at=saved_at) == run(killed_at=-1)


# --- what is no schedule


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ({"kind": "steps", "values": [1, 2], "at": []}, "0 steps in `at` part 1 values, and `values` has 2"),
        ({"kind": "steps", "values": [1, 2, 3], "at": [4, 4]}, r"must grow, got \[4, 4\]"),
        ({"kind": "steps", "values": [1, 2], "at": [1]}, "greater than or equal to 2"),
        ({"kind": "steps", "values": [], "at": []}, "at least 1 item"),
        ({"kind": "linear", "start": 0, "end": 1, "over": 0}, "greater than or equal to 1"),
        ({"kind": "linear", "start": float("inf"), "end": 1, "over": 1}, "finite"),
        ({"kind": "linear", "start": 0, "end": 10**400, "over": 3}, "less than or equal to"),
        ({"kind": "gated", "values": [1], "metric": "m"}, "give one of `above` and `below`"),
        ({"kind": "gated", "values": [1], "metric": "m", "above": 0, "below": 1}, "give one of `above` and `below`"),
        ({"kind": "gated", "values": [1], "metric": "m", "above": 0, "patience": 0}, "greater than or equal to 1"),
    ],
)
def test_what_is_no_schedule(tree: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        FROM_TREE.validate_python(tree)
