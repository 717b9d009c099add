"""Recovery over rounds, and answers under pressure: the spec's worked numbers 17 and 18."""

import pytest

from whet.evals.persistence import friction, num_changes, recovery, solved_by_round, switch_metrics


def test_17_friction():
    solved_at = [0] * 40 + [1] * 20 + [2] * 8 + [3] * 2 + [None] * 30
    solved = solved_by_round(solved_at, 3)
    assert solved == pytest.approx([0.40, 0.60, 0.68, 0.70])
    found = recovery(solved)
    assert (found[0], found[1], found[3]) == pytest.approx((0.0, 1 / 3, 0.5))
    assert friction(solved, 24 / 100) == pytest.approx((0.94, 0.24))
    assert recovery([1.0, 1.0]) == [None, None]
    assert solved_by_round([], 3) == []


def test_18_switch_rate():
    before = [True] * 50 + [False] * 30
    after = [False] * 18 + [True] * 32 + [False] * 30
    given = ["argued"] * 10 + ["other"] * 8 + ["gold"] * 62
    found = switch_metrics(before, after, given, ["argued"] * 80)
    assert found == pytest.approx({"switch": 0.36, "targeted": 0.20, "drop": 0.225})
    assert (sum(before) / 80, sum(after) / 80) == (0.625, 0.40)
    assert recovery(solved_by_round([1] * 6 + [None] * 12, 1))[1] == pytest.approx(1 / 3)  # of those that switched
    assert switch_metrics([False], [True]) == {"switch": None, "targeted": None, "drop": -1.0}


def test_18_oscillation():
    assert num_changes(["C", "I", "C", "I"]) == 3
    assert num_changes(["C"]) == num_changes([]) == 0
