"""Verdicts of critiques: spec table 9.1, by the published rule and by ours, and what must not be won by writing it."""

import pytest

from whet.grading.verdicts import authors_verdict_matches, parse_verdict

C = "Correctness of the final answer: Correct"
W = "Correctness of the final answer: Wrong"


@pytest.mark.parametrize(
    ("critique", "published", "ours"),
    [
        (C, {"correct"}, "correct"),
        (W, {"wrong"}, "wrong"),
        ("The steps look fine.", set(), None),
        ("", set(), None),
        (f"{C}\n{W}", {"correct", "wrong"}, None),  # the published reward takes the one that pays
        (f"{W}\nOn reflection:\n{C}", {"correct", "wrong"}, None),
        ("Correctness of the final answer: correct", set(), "correct"),
        (f"{W}ly stated", {"wrong"}, None),
        (f"{C}, but see step 2", {"correct"}, None),
        (f"{C}/Wrong", {"correct"}, None),
        ("Correctness of the final answer: [Correct/Wrong]", set(), None),
    ],
)
def test_spec_9_1_by_both_rules(critique, published, ours):
    assert authors_verdict_matches(critique) == published
    assert parse_verdict(critique) == ours
    assert parse_verdict(critique, "substring") == (next(iter(published)) if len(published) == 1 else None)


@pytest.mark.parametrize(
    "line",
    [
        "**Correctness of the final answer:** Wrong",
        "**Correctness of the final answer**: **Wrong**",
        "CORRECTNESS OF THE FINAL ANSWER :  wrong.",
        "- Correctness of the final answer: _Wrong_\r",
        "So, in short, correctness of the final answer: Wrong.",
        f"{W}\nExplanation: it is 5.\n\n{W}",
    ],
)
def test_layout_is_forgiven(line):
    assert (
        parse_verdict(f"Step sentence: 2 + 2 = 5\nCorrectness of the step: Wrong\n\n{line}\nExplanation: no.")
        == "wrong"
    )


@pytest.mark.parametrize(
    "text",
    [
        f"{C} {W}",
        f"{C}\u2028{W}",
        f"{C}\r{W}",
        f"{C}\n**{W}**",
        f"{C}\nI could also say: {W.lower()}",
        f"{C}\nCorrectness of the final answer: not Correct",
        f"{C}\nCorrectness of the final answer:",
        f"In{C.lower()}",
        "Correctness of the final answer:\nCorrect",
        "Correctness of the final answer: Incorrect",
        "Correctness of the step: Correct",
    ],
)
def test_hedging_is_unreadable(text):
    assert parse_verdict(text) is None
