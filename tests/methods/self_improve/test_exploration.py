"""How hard questions are, and what exploring found: by arithmetic, and by the worked numbers of the specification."""

from __future__ import annotations

import math

import pytest

from whet.evaluation.difficulty import by_level, level_of, level_shares, tail_narrowing
from whet.methods.self_improve.exploration_metrics import (
    Explored,
    answer_class,
    answer_entropy,
    coverage_by_level,
    dissimilarity,
    distinct_2,
    exploration,
    normalised,
    num_distinct,
)


def explored(num_right, num_kept, num_wrong=None, level=None, tokens=10, samples=4):
    wrong = samples - num_right if num_wrong is None else num_wrong
    return Explored(samples, num_right, wrong, wrong, num_kept, level, tokens)


ROUND = [explored(right, kept) for right, kept in zip([4, 2, 0, 0], [0, 1, 1, 0], strict=True)]
"""N = 4; right per question [4, 2, 0, 0]; one refinement after each of the 10 critiques; kept [0, 1, 1, 0]."""


def test_the_worked_numbers_of_a_round():
    found = exploration(ROUND)
    assert sum(each.num_critiques for each in ROUND) == sum(each.num_refinements for each in ROUND) == 10
    assert (found["coverage_answers"], found["coverage"]) == (0.5, 0.75)
    assert (sum(e.num_right for e in ROUND), sum(e.num_solutions for e in ROUND)) == (6, 8)
    assert found["yield_answers"] == 6 / 16 == 0.375
    assert found["yield"] == pytest.approx(8 / 26)
    assert found["yield_calls"] == pytest.approx(8 / 36)
    assert found["recovered"] == 1 / 2
    assert found["yield_tokens"] == 1000 * 8 / 40


def test_a_question_whose_samples_all_failed_says_nothing():
    assert exploration([*ROUND, Explored(0, 0, 0, 0, 0)]) == exploration(ROUND)
    assert set(exploration([Explored(0, 0, 0, 0, 0)]).values()) == {None}


def test_where_every_question_is_solved_nothing_is_recovered():
    assert exploration([explored(4, 0)])["recovered"] is None


def test_coverage_of_each_level():
    found = coverage_by_level(
        [explored(0, 1, level=5), explored(0, 0, level=5), explored(4, 0, level=1), explored(4, 0)]
    )
    assert found == {"coverage_level_1": 1.0, "coverage_level_5": 0.5}


@pytest.mark.parametrize(
    ("right", "samples", "level"),
    [(10, 10, 1), (9, 10, 1), (8, 10, 2), (4, 5, 2), (6, 10, 3), (4, 10, 4), (3, 10, 4), (2, 10, 5), (0, 10, 5),
     (1, 5, 5), (0, 0, None), (81, 100, 1), (80, 100, 2)],
)  # fmt: skip
def test_levels_are_open_below_and_closed_above(right, samples, level):
    assert level_of(right, samples) == level


def test_more_right_than_there_are_is_refused():
    with pytest.raises(ValueError, match="3 of 2"):
        level_of(3, 2)


def test_means_by_level_leave_out_what_has_none():
    found = by_level({"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0}, {"a": 5, "b": 5, "c": 1})
    assert (found["level_5"], found["n_level_5"]) == (0.5, 2.0)
    assert (found["level_1"], found["n_level_1"]) == (1.0, 1.0)
    assert (found["level_3"], found["n_level_3"]) == (None, 0.0)


def test_the_tail_narrows_where_hard_questions_are_learnt_less_than_they_are_there():
    assert level_shares([1, 1, 4, 5])[1] == 0.5
    assert tail_narrowing([1, 1, 1, 4], [1, 1, 4, 5]) == 0.25 / 0.5
    assert tail_narrowing([1, 2, 4, 5], [1, 2, 4, 5]) == 1.0
    assert tail_narrowing([], [4]) is None
    assert tail_narrowing([1], [1]) is None


def test_solutions_are_told_apart_by_their_equations():
    one = "First 48/2 = 24 clips.\nThen 48 + 24 = 72.\nThe answer is 72"
    assert normalised(one) == ("48/2=24", "48+24=72")
    assert normalised("So $48 / 2 = $24, and 48+24=72 in all") == normalised(one)
    assert normalised("1,000 + 1 = 1,001") == ("1000+1=1001",)
    assert normalised("It is Seven") == ("it", "is", "seven")
    assert num_distinct([one, "48/2=24, 48+24=72", "24 + 48 = 72"]) == 2


def test_diversity_by_hand():
    assert distinct_2(["a b c", "a b d"]) == 3 / 4  # ab bc ab bd
    assert distinct_2(["a"]) is None
    assert dissimilarity(["a b c", "a b c"]) == 0.0
    assert dissimilarity(["a b c", "a b d"]) == pytest.approx(1 - 1 / 3)
    assert dissimilarity(["a b"]) is None


def test_entropy_counts_equal_answers_once():
    classes = [
        answer_class("12", is_right=True),
        answer_class("12.0", is_right=True),
        answer_class("7", is_right=False),
    ]
    assert answer_entropy(classes) == pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))
    assert answer_entropy(classes[:2]) == 0.0
    assert answer_entropy([]) is None
