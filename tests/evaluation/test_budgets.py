"""Accuracy over tokens, its intervals, and levels of difficulty."""

from __future__ import annotations

from functools import partial

import pytest

from whet.evaluation.budgets import FEWEST, KINDS, Outcome, bootstrap, draws, point


def outcome(right: bool, answer: int = 10, critique: int = 5, unread: int = 0) -> Outcome:
    counts = {"answer": 2, "critique": 1, "refinement": 0}
    return Outcome(right, counts, {"answer": answer, "critique": critique, "refinement": 0}, 3, unread)


def test_a_point_by_hand():
    drawn = draws(4, seed=1)
    outcomes = [outcome(True), outcome(True, answer=30), outcome(False, unread=1), outcome(False)]
    found = point(100, outcomes, drawn, against=[outcome(False)] * 4)
    assert (found["accuracy"], found["n"], found["budget"]) == (0.5, 4, 100)
    assert (found["tokens"], found["tokens_answer"], found["tokens_critique"]) == (20.0, 15.0, 5.0)
    assert (found["answers"], found["critiques"], found["refinements"], found["calls"]) == (2, 1, 0, 3)
    assert found["unread"] == 0.25
    assert found["gain"] == 0.5
    assert found["gain_low"] <= 0.5 <= found["gain_high"]
    assert found["levels"] == {}


def test_a_level_with_few_questions_has_no_accuracy():
    outcomes = [outcome(i % 2 == 0) for i in range(FEWEST + 3)]
    levels = [1] * FEWEST + [5] * 3
    found = point(1, outcomes, draws(len(outcomes), 0), levels=levels)["levels"]
    assert found == {"1": {"n": FEWEST, "accuracy": 0.5}}


def test_all_right_is_not_certain():
    """Wilson's ends for 10 of 10: 10 / (10 + 1.96^2) and 1; for none of 10 mirrored."""
    outcome = partial(Outcome, counts=dict.fromkeys(KINDS, 1), tokens=dict.fromkeys(KINDS, 5), calls=1, unread=0)
    found = point(100, [outcome(right=True)] * 10, draws(10, 0))
    assert (found["low"], found["high"]) == pytest.approx((10 / (10 + 1.96**2), 1.0), abs=1e-3)
    found = point(100, [outcome(right=False)] * 10, draws(10, 0))
    assert (found["low"], found["high"]) == pytest.approx((0.0, 1 - 10 / (10 + 1.96**2)), abs=1e-3)


def test_the_bootstraps_interval_is_the_binomial_one_and_repeats():
    values = [1.0] * 300 + [0.0] * 100
    low, high = bootstrap(values, draws(400, seed=5))
    error = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert (low, high) == pytest.approx((0.75 - error, 0.75 + error), abs=0.006)
    assert bootstrap(values, draws(400, seed=5)) == (low, high)
    assert bootstrap([1.0] * 10, draws(10, 0)) == (1.0, 1.0)
