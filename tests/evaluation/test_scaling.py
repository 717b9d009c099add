"""What more samples are worth: majorities by the number of chains, pass@k of refinements (spec section 9.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.episodes import exchange, segment_of
from whet.evaluation.scaling import measure_refinements, measure_samples, powers, scaling
from whet.types import Episode, Grade, Task


def answered(question: str, right: str, extracted: str) -> Episode:
    grade = Grade(score=float(extracted == right), extracted=extracted)
    return Episode(task=Task(id=question, prompt="q", answer=right), segments=(segment_of("actor", grade=grade),))


def test_spec_9_8_plain_answers():
    one = [answered("1", "5", text) for text in ("5", "5", "7")]
    two = [answered("2", "6", text) for text in ("1", "6", "1")]
    found = measure_samples([one, two])
    assert (found["pass_answer"], found["average_answer"], found["majority_answer"]) == (1.0, 0.5, 0.5)
    # One vote: 5 is right, 1 is not. Two votes: 5 twice; 1 and 6 are even, and 1 came first.
    assert scaling([one, two])["majority_answer"] == {"1": 0.5, "2": 0.5, "3": 0.5}


def test_pass_at_k_of_refinements_by_hand():
    one_in_four = exchange(0.0, [("wrong", [1.0, 0.0, 0.0, 0.0])])
    none = exchange(1.0, [("wrong", [0.0] * 4)])
    found = measure_refinements([one_in_four, none])
    assert found == {"pass@1": 0.125, "pass@2": 0.25, "pass@4": 0.5}


def test_an_answer_that_was_kept_counts_as_each_of_its_refinements():
    kept = exchange(1.0, [])
    found = measure_refinements([kept, exchange(0.0, [("wrong", [0.0, 1.0])])])
    assert found == {"pass@1": pytest.approx(0.75), "pass@2": 1.0}


def test_an_episode_whose_grading_failed_is_left_out():
    broken = replace(exchange(0.0, [("wrong", [None, 1.0])]), outcome="grader_error")
    assert measure_refinements([broken]) == {}
    assert measure_refinements([broken, exchange(0.0, [("wrong", [0.0, 1.0])])])["pass@2"] == 1.0


@pytest.mark.parametrize(("most", "found"), [(0, []), (1, [1]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_powers(most, found):
    assert powers(most) == found
