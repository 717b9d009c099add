"""Metrics of critique rounds and of K samples: the spec's worked records, the paper's tables, and identities."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.credit.rewards import judged_right
from whet.evaluation.critique import (
    DENOMINATORS,
    Exchange,
    average_at_k,
    critique_metrics,
    majority_at_k,
    mean_interval,
    no_critic_metrics,
    pass_at_k,
    vote,
)

TEN_RECORDS = [
    Exchange(True, True, "correct"),
    Exchange(True, True, "correct"),
    Exchange(True, True, "wrong"),
    Exchange(True, False, "wrong"),
    Exchange(True, False, "correct"),
    Exchange(False, True, "wrong"),
    Exchange(False, True, "wrong"),
    Exchange(False, False, "wrong"),
    Exchange(False, False, "correct"),
    Exchange(False, True, None),
]
EXCHANGES = st.lists(st.builds(Exchange, st.booleans(), st.booleans(), st.sampled_from(["correct", "wrong", None])))


def test_spec_9_7_metrics_on_ten_records():
    expected = {
        "acc": 0.5,
        "acc_refine": 0.6,
        "delta": 0.1,
        "c2c": 0.3,
        "c2i": 0.2,
        "i2c": 0.3,
        "i2i": 0.2,
        "c2i_of_correct": 0.4,
        "i2c_of_incorrect": 0.6,
        "acc_dis": 0.6,
        "acc_dis_correct": 3 / 5,
        "acc_dis_incorrect": 3 / 5,
        "acc_dis_parsed": 6 / 9,
        "acc_dis_parsed_correct": 3 / 5,
        "acc_dis_parsed_incorrect": 3 / 4,
        "unparsed": 0.1,
        "relevance": 4 / 6,
        "relevance_correct": 2 / 3,
        "relevance_incorrect": 2 / 3,
        "n": 10,
        "n_correct": 5,
        "n_incorrect": 5,
    }
    assert critique_metrics(TEN_RECORDS) == pytest.approx(expected)


def test_every_metric_says_what_it_is_divided_by():
    assert list(critique_metrics(TEN_RECORDS)) == list(DENOMINATORS) == list(no_critic_metrics([True]))
    assert all(DENOMINATORS.values())


@settings(deadline=None)
@given(EXCHANGES)
def test_spec_5_1_delta_identity(exchanges):
    metrics = critique_metrics(exchanges)
    if not exchanges:
        assert metrics.pop("n") == metrics.pop("n_correct") == metrics.pop("n_incorrect") == 0
        assert set(metrics.values()) == {None}
        return
    assert metrics["delta"] == pytest.approx(metrics["i2c"] - metrics["c2i"])
    assert metrics["delta"] == pytest.approx(metrics["acc_refine"] - metrics["acc"])
    assert metrics["c2c"] + metrics["c2i"] + metrics["i2c"] + metrics["i2i"] == pytest.approx(1)
    assert metrics["acc_dis"] <= (metrics["acc_dis_parsed"] or 0) + 1e-12  # strict is never kinder


def test_zero_denominators_are_none():
    all_correct = critique_metrics([Exchange(True, True, None)] * 3)
    assert all_correct["i2c"] == 0.0  # over all questions: a true zero
    for name in ("i2c_of_incorrect", "acc_dis_incorrect", "acc_dis_parsed", "relevance", "relevance_incorrect"):
        assert all_correct[name] is None
    assert (all_correct["acc_dis"], all_correct["unparsed"]) == (0.0, 1.0)


def test_without_refinements_only_the_judgment_is_measured():
    judged_only = critique_metrics([Exchange(True, None, "correct"), Exchange(False, None, "correct")])
    assert (judged_only["acc"], judged_only["acc_dis"], judged_only["n"]) == (0.5, 0.5, 2)
    for name in ("acc_refine", "delta", "c2i", "i2c", "c2c", "i2i", "c2i_of_correct", "relevance"):
        assert judged_only[name] is None


def test_a_missing_refinement_is_no_wrong_refinement():
    with pytest.raises(ValueError, match="1 of 2 exchanges"):
        critique_metrics([Exchange(True, None, "correct"), Exchange(True, False, "correct")])


def test_no_critic_row():
    row = no_critic_metrics([True, False, True, True])
    assert (row["acc"], row["acc_refine"], row["delta"], row["c2i"], row["i2c"]) == (0.75, 0.75, 0, 0, 0)
    assert {row[name] for name in row if name.startswith(("acc_dis", "relevance", "unparsed"))} == {None}
    assert row["n"] == 4


def test_metric_and_reward_agree_on_a_right_judgment():
    for answer_correct, verdict in product((True, False), ("correct", "wrong", None)):
        assert Exchange(answer_correct, None, verdict).judged_right is judged_right(verdict, answer_correct)


def test_spec_9_8_k_sample_metrics():
    answers, references = [["5", "5", "7"], ["1", "6", "1"]], ["5", "6"]
    correct = [[answer == reference for answer in row] for row, reference in zip(answers, references, strict=True)]
    assert pass_at_k(correct) == 1.0
    assert average_at_k(correct) == 0.5  # the authors' code would print 1.5
    assert majority_at_k(answers, correct) == 0.5


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["7", "5"], "7"),
        (["5", "7"], "5"),
        (["5", "7", "7"], "7"),
        ([None, None, "3"], "3"),
        ([None], None),
        ([], None),
    ],
)
def test_spec_9_8_majority_ties_and_missing_answers(answers, winner):
    index = vote(answers)
    assert (None if index is None else answers[index]) == winner


def test_majority_at_k_asks_the_grade_and_counts_silence_as_wrong():
    assert majority_at_k([["0.50", "9", "0.50"], [None]], [[True, False, True], [False]]) == 0.5
    assert majority_at_k([[None, "5"]], [[False, True]]) == 1.0
    assert majority_at_k([], []) is None


def test_without_an_answer_to_vote_by_there_is_no_majority():
    """A grader of scores alone."""
    assert majority_at_k([[None, None]], [[True, True]]) is None
    assert majority_at_k([[None, None]], [[False, False]]) == 0.0


def test_pass_at_k_is_the_mean_over_all_subsets():
    assert pass_at_k([[True, False, False, False]], 1) == pytest.approx(1 / 4)
    assert pass_at_k([[True, False, False, False]], 2) == pytest.approx(1 / 2)
    assert pass_at_k([[False, True], [False, False]]) == 0.5
    assert pass_at_k([[True] * 3, [False] * 5], 2) == 0.5  # samples may differ in number when k is given
    assert pass_at_k([]) is average_at_k([]) is None


@pytest.mark.parametrize("metric", [pass_at_k, average_at_k])
def test_ragged_samples_are_refused(metric):
    with pytest.raises(ValueError, match="from 1 to 2"):
        metric([[True], [True, False]])


def test_pass_at_k_refuses_a_k_that_was_not_sampled():
    with pytest.raises(ValueError, match="as few as 2"):
        pass_at_k([[True, False]], 3)


def test_mean_interval_by_hand():
    # Standard error 1 / sqrt(3); 4.303 is the quantile for 2 degrees of freedom.
    assert mean_interval([1, 2, 3]) == pytest.approx((2, 4.303 / math.sqrt(3)))
    assert mean_interval([0.7]) == (0.7, None)
    assert mean_interval([0.5, 0.5])[1] == 0.0
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (29, 2.045), (30, 2.042), (60, 2.000), (10_000, 1.960)])
def test_mean_interval_uses_students_t(freedom, quantile):
    values = [0.0, 1.0] * ((freedom + 1) // 2) + [0.5] * ((freedom + 1) % 2)
    mean, half = mean_interval(values)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / freedom / len(values))
    assert half / error == pytest.approx(quantile, abs=6e-4)


@pytest.mark.parametrize(
    ("differences", "mean"),
    [
        ([12.66, 12.05, 2.36], 9.023),  # 7B, Delta against no critic: the headline "9.02 %"
        ([89.7 - 80.3, 21.4 - 19.4], 5.70),  # 7B, out of domain
        ([48.60 - 44.24, 75.89 - 69.14, 56.69 - 46.46], 7.11),  # 3B, Critique-RL minus SFT
        ([58.40 - 52.34, 87.72 - 80.82, 65.75 - 63.39], 5.11),  # 7B, minus Retroformer
        ([85.20 - 68.03, 90.43 - 77.05, 78.09 - 70.56], 12.69),  # 7B, discriminability minus Retroformer's
        ([51.0 - 48.6], 2.4),  # Table 2, second iteration minus first
    ],
)
def test_spec_9_12_table_arithmetic(differences, mean):
    assert mean_interval(differences)[0] == pytest.approx(mean, abs=5e-3)


@pytest.mark.parametrize(
    ("right", "n", "percent", "digits"),
    [(1001, 1319, 75.89, 2), (2430, 5000, 48.60, 2), (144, 254, 56.69, 2), (235, 300, 78.3, 1), (134, 800, 16.8, 1)],
)
def test_spec_9_12_accuracies_are_counts(right, n, percent, digits):
    metrics = critique_metrics([Exchange(False, i < right, None) for i in range(n)])
    assert 100 * metrics["acc_refine"] == pytest.approx(percent, abs=0.5 * 10**-digits + 1e-9)
