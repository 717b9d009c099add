"""Which refinements are kept, and how attempts are shared out."""

from __future__ import annotations

from whet.methods.self_improve.improving import allot_refinements, kept_refinements


def test_each_critique_keeps_its_own_wherever_it_stands():
    """Published code looks at neighbours in a worker's list, so that a critique at a boundary may keep twice."""
    kept = [kept_refinements([True, True, True], [False] * 3, 1) for _ in range(2)]
    assert kept == [[0], [0]]


def test_copies_of_a_refinement_count_as_often_as_they_come_as_published():
    assert kept_refinements([True, True, True], [False] * 3, 2) == [0, 1]


def test_only_what_is_right_and_no_shortcut_is_kept():
    assert kept_refinements([None, False, True, True], [False, False, True, False], 4) == [3]


def test_attempts_go_by_failures_with_a_floor_and_a_cap():
    assert allot_refinements({"a": 4, "b": 1, "c": 0}, 10, None) == {"a": 8, "b": 2}
    assert allot_refinements({"a": 4, "b": 1}, 10, 5) == {"a": 5, "b": 2}
    assert allot_refinements({"a": 1, "b": 1, "c": 1}, 1, None) == {"a": 1, "b": 1, "c": 1}  # the floor
    assert allot_refinements({"a": 1, "b": 1, "c": 1}, 4, None) == {"a": 2, "b": 1, "c": 1}  # what rounding leaves over
    assert allot_refinements({"a": 0}, 10, None) == {}
