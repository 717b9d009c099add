"""The package as its users see it: what an answer is, what is equal, and why not."""

import subprocess
import sys
import time

import pytest

from mathgrade import Comparison, Result, examine, extract, grade, same


def test_extraction_takes_linear_time():
    start = time.process_time()
    for junk in ("answer is " * 20_000, "\\boxed{" * 20_000, " " * 200_000 + "x", "1," * 100_000, "$" * 200_000):
        extract(junk)
    assert time.process_time() - start < 5


# --- what is equal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reference", "score"),
    [
        ("18", "18", 1),
        ("The answer is 18.0", "18", 1),
        ("The answer is 19", "18", 0),
        (r"\boxed{\frac12}", "0.5", 1),
        (r"\boxed{\frac{1}{3}}", "0.333333", 1),
        (r"\boxed{2x + 2}", "2(x+1)", 1),
        (r"\boxed{q - p}", "p - q", 0),
        (r"\boxed{(3, \pi/2)}", r"\left( 3, \frac{\pi}{2} \right)", 1),
        ("The answer is $x=1$ and $x=2$", "1,2", 1),
        (r"\boxed{90}", r"90^\circ", 1),
        ("The answer is Evelyn.", r"\text{Evelyn}", 1),
        ("The answer is (C) 40.", r"\text{(C)}", 1),
        ("The answer is (B) 40.", "C", 0),
        (r"\boxed{\begin{pmatrix}1\\(2)\end{pmatrix}}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", 1),
        ("The answer is 5", "We add.\n#### 5", 1),  # a reference may be a worked solution
        # a list of guesses
        ("1, 2, 3, 4, 5", "3", 0),
        ("The answer is 3 or 4", "4", 0),
        ("The answer is 1 2 3", "6", 0),
        ("The answer is A, B, C, D", "C", 0),
        (r"\boxed{\{1, 2, 3\}}", "2", 0),
        (r"\boxed{\pm 3}", "3", 0),
        (r"\boxed{3} \boxed{4}", "3", 0),  # the last one counts
        # no answer
        ("", "3", 0),
        ("I cannot tell.", "3", 0),
        # tiny numbers are not all 0, as six decimals would have it
        (r"\boxed{\frac{1}{10^{9}}}", "0.000000002", 0),
        (r"\boxed{10^{-8} \text{ F}}", "1e-8", 1),
    ],
)
def test_what_is_equal(reply, reference, score):
    assert grade(reply, reference).score == score


@pytest.mark.parametrize(
    "gold",
    ["5", "-0.5", r"\frac{\sqrt{3}}{2}", r"\text{east}", r"x \in [0, 1)", "1, 2, 3", "10:00 p.m.", "(C)", "2.88e-19"],
)
def test_gold_answers_are_accepted(gold):
    replies = [gold, f"The answer is {gold}", f"Thus $\\boxed{{{gold}}}$."]
    assert [grade(reply, gold).score for reply in replies] == [1, 1, 1]


def test_reasons_and_what_was_extracted():
    pairs = [("5", "5"), (r"\boxed{x}", "y"), ("", "5"), ("7", ""), (r"\boxed{7}", r"\frac{}{")]
    results = [grade(*pair) for pair in pairs]
    assert [result.score for result in results] == [1.0, 0.0, 0.0, None, None]
    assert [result.extracted for result in results] == ["5", "x", None, None, "7"]
    assert results[1].reason == "another value than the reference's"
    assert results[3].reason == "the reference is empty"
    assert "cannot read the reference" in results[4].reason


def test_long_answers_cost_nothing():
    result = grade("\\boxed{" + "(" * 5000 + ")" * 5000 + "}", "3")
    assert result.score == 0
    assert "10000 characters" in result.reason


# --- the rest of the interface --------------------------------------------------------------------------------------


def test_same_is_a_verdict_or_an_error():
    assert same("0.5", r"\frac12")
    assert not same("0.6", r"\frac12")
    with pytest.raises(ValueError, match="the reference is empty"):
        same("0.5", "")


def test_examine_leaves_mathematics_to_others():
    assert examine("The answer is 5", "5") == Result(score=1.0, extracted="5")
    left = examine(r"\boxed{9^{9^{9^9}}}", "3")
    assert isinstance(left, Comparison)
    assert left.request() == {
        "answer": [
            {"sides": ("9^{9^{9^{9}}}",), "name": "", "rough": (), "unit": [(), "1"], "base": None, "is_ratio": False}
        ],
        "reference": [{"sides": ("3",), "name": "", "rough": (), "unit": [(), "1"], "base": None, "is_ratio": False}],
    }
    assert left.control().reference == left.reference
    late = {"score": 0.0, "reason": "timed out after 3 s", "exhausted": True}
    assert left.result(late) == Result(score=0.0, reason=late["reason"], extracted="9^{9^{9^{9}}}", exhausted=True)


def test_a_fault_of_the_reference_is_no_verdict():
    result = grade(r"\boxed{x + 1}", r"\frac{1}{0}")
    assert result.score is None, result


def test_importing_and_reading_need_no_sympy_and_nothing_of_whet():
    code = "import sys, mathgrade; mathgrade.grade('The answer is 5', '5'); print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert not {"sympy", "math_verify", "whet", "torch"} & set(done.stdout.split())
    code = "import sys, mathgrade; print(mathgrade.same('x + 1', '1 + x')); print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    said, *modules = done.stdout.split()
    assert said == "True"
    assert "sympy" in modules
    assert not {"whet", "torch"} & set(modules)
