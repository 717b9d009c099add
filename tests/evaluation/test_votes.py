"""Votes by equality of texts and by an equivalence, with a critic's verdicts and weights (spec, worked number 7)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.evaluation.critique import vote
from whet.evaluation.inference_scaling import certainty, filtered_vote, weighted_vote

SIX = ["12", "12", "12.0", "7", "7", "7"]
VOTED = st.lists(st.sampled_from(["1", "2", "3", None]), max_size=8)


def majority_vote(answers: list[str | None]) -> str | None:
    """The most frequent answer, of equally frequent ones the first: another way to count than `vote`."""
    counts = Counter(answer for answer in answers if answer is not None)
    return max(counts, key=counts.__getitem__, default=None)


def test_7_texts_vote_apart_and_equal_answers_together():
    assert SIX[vote(SIX)] == majority_vote(SIX) == "7"
    assert SIX[vote(["12"] * 3 + ["7"] * 3)] == "12"  # 3 against 3: the first seen wins


def test_7_answers_judged_wrong_have_no_vote():
    answers = ["7", "7", "7", "12", "12"]
    assert answers[filtered_vote(answers, ["wrong", "wrong", "correct", "correct", "correct"])] == "12"
    assert answers[filtered_vote(answers, ["wrong"] * 5)] == "7"
    assert answers[filtered_vote(answers, [None, None, None, "wrong", "correct"])] == "7"  # unread ones stay


def test_where_those_left_have_no_answer_all_vote():
    assert filtered_vote(["7", None], ["wrong", "correct"]) == 0


@pytest.mark.parametrize(
    ("weights", "winner"),
    [([0.4, 0.3, 0.9], "5"), ([0.5, 0.5, 1.0], "7"), ([0.0, 0.0, 0.0], "7"), ([1.0, 0.0, 0.0], "7")],
)
def test_weights_of_equal_answers_add_up(weights, winner):
    answers = ["7", "7", "5"]
    assert answers[weighted_vote(answers, weights)] == winner


def test_weights_that_are_sums_of_tenths_tie_exactly():
    answers = ["a", "b", "b", "b"]
    assert weighted_vote(answers, [0.3, 0.1, 0.1, 0.1]) == 0


def test_certainty():
    assert certainty(SIX) == 0.5
    assert certainty(["1", None]) == 0.5
    assert certainty([None]) == certainty([]) == 0.0


@given(VOTED)
def test_equal_weights_and_passing_verdicts_are_the_plain_majority(answers):
    plain = vote(answers)
    assert (None if plain is None else answers[plain]) == majority_vote(answers)
    assert weighted_vote(answers, [0.7] * len(answers)) == plain
    assert filtered_vote(answers, ["correct"] * len(answers)) == plain
    assert filtered_vote(answers, ["wrong"] * len(answers)) == plain


@given(VOTED, st.data())
def test_who_wins_has_the_most_weight(answers, data):
    weights = data.draw(st.lists(st.floats(0, 1), min_size=len(answers), max_size=len(answers)))
    winner = vote(answers, weights)
    if winner is None:
        assert set(answers) <= {None}
        return
    totals = {a: sum(w for b, w in zip(answers, weights, strict=True) if a == b) for a in answers if a is not None}
    assert totals[answers[winner]] == pytest.approx(max(totals.values()), abs=1e-8)
    assert winner == answers.index(answers[winner])
