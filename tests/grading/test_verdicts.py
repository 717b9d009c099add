"""Verdicts of critiques: spec table 9.1, and what must not be won by writing one."""

import pytest

from whet.grading.step_critiques import read_critique
from whet.grading.verdicts import parse_verdict

C = "Correctness of the final answer: Correct"
W = "Correctness of the final answer: Wrong"


@pytest.mark.parametrize(
    ("critique", "verdict", "labels"),
    [
        (C, "correct", 1),
        (W, "wrong", 1),
        ("The steps look fine.", None, 0),
        ("", None, 0),
        (f"{C}\n{W}", None, 2),  # the published reward takes the one that pays
        (f"{W}\nOn reflection:\n{C}", None, 2),
        ("Correctness of the final answer: correct", "correct", 1),
        ("**Correctness of the final answer**: Correct", "correct", 1),
        (f"{W}ly stated", None, 1),
        (f"{C}, but see step 2", None, 1),
        (f"{C}/Wrong", None, 1),
        ("Correctness of the final answer: [Correct/Wrong]", None, 1),
    ],
)
def test_spec_9_1(critique, verdict, labels):
    assert parse_verdict(critique) == verdict
    assert read_critique(critique).num_verdicts == labels


def test_the_first_wrong_step_is_counted_among_all_steps():
    blocks = [f"Step sentence: {step}\nCorrectness of the step: {label}\n" for step, label in
              (("a", "Right"), ("b", "Wrong"), ("c", "Wrong"))]  # fmt: skip
    read = read_critique("\n".join([*blocks, W]))
    assert ([step.right for step in read.steps], read.first_wrong) == ([None, False, False], 1)
    assert read_critique(C).first_wrong == -1


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
