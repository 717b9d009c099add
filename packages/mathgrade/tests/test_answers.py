"""Where a reply commits itself to an answer, and what that answer says: every token of it accounted for, or refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from mathgrade import extract, grade
from mathgrade.options import choice
from mathgrade.questions import counted_nouns
from mathgrade.reading import Unreadable, number, read
from mathgrade.reading.units import UNITS

CASES = json.loads((Path(__file__).parent / "data" / "math_verify_cases.json").read_text(encoding="utf-8"))["cases"]


# --- where the answer is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("So he has 5. The answer is 18.", "18"),
        ("So he goes 42 / 14 = 3 times\nAnswer: 3", "3"),
        ("The answer is 18. I hope it is correct.", "18"),
        ("The answer is 2.5 sq. ft. of tiles", "2.5"),
        ("The answer is $1,080.00 dollars.", "1080"),
        ("The answer is 20% of 50 = 10.", "10"),
        ("2 + 2 = 4\n#### 1,234", "1234"),
        ("#### 5 apples", "5"),
        ("#### Step 1\nAdd.\nThe answer is 3.\n#### Check the sum", "3"),
        (r"\boxed{5}, or so. The answer is 6.", "6"),
        (r"The answer is 6, no, \boxed{5}", "5"),
        (r"\boxed{1} and \boxed{-2}", "-2, 1"),
        (r"$-\boxed{5}$", "-5"),  # what touches a box belongs to it
        (r"\boxed{-\boxed{5}}", "-5"),
        (r"Therefore $m + n = \boxed{5}$.", "5"),
        (r"\boxed{5}. The answer is in simplest form.", "5"),
        ("The answer is 5.</s><|im_end|>", "5"),
        ("The answer is:\n1. 5 apples", "5"),
        (r"therefore\boxed{840}.", "840"),
        (r"Thus $x = \boxed{44}$. We check our answer: $17 \cdot 44 = 748$, so our answer is correct.", "44"),
        ("**Final Answer:** 42", "42"),
        ("The answer is:\n\\[\n x + 1\n\\]", "x+1"),
        ("So she earns 18 dollars a day.", "18"),
        ("So the sum is $x + 1$.", "x+1"),
        ("So, the units digit of $3^1 + 3^3$ is $0$.", "0"),
        ("Therefore $x + 1$ is the solution.", "x+1"),
        ("x = 5", "5"),
        ("Therefore, x = 18", "18"),
        (r"50\%", "50"),
        ("3 1/2", r"(3+\frac{1}{2})"),
        ("The answer is 5 million", "5000000"),
        ("The answer is sqrt(2)", r"\sqrt{2}"),
        ("The answer is", None),
        (r"So it is \boxed{5", None),
        ("I am not able to tell how many there are.", None),
        ("There are 5 ducks.\nHow many of them can swim is anybody's guess, I fear.", None),
        ("So she never earns 18 dollars a day.", None),
        ("", None),
        (" \n\n", None),
    ],
)
def test_the_final_answer(reply: str, answer: str | None) -> None:
    assert extract(reply) == answer


# --- what it says ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("1.5cm", ["1.5"]),
        ("2.5 (cups)", ["2.5"]),
        ("2.50/hour", ["2.50"]),
        ("1.5k dollars", [r"(1.5)\cdot 10^{3}"]),
        ("3 1/2 cups", [r"(3+\frac{1}{2})"]),
        (r"3\frac{1}{2} cups", [r"(3+\frac{1}{2})"]),
        ("5!", ["5!"]),
        ("2**3", ["2^{3}"]),
        ("**5**", ["5"]),
        (r"11,\! 111,\! 111,\! 100", ["11111111100"]),
        ("1 000 000", ["1000000"]),
        ("(1,100)", ["(1,100)"]),
        ("2(3)", [r"2\cdot (3)"]),  # latex2sympy reads 2(3) as 2 + 3
        ("(2)(3)", [r"(2)\cdot (3)"]),
        (r"\frac12", [r"\frac{1}{2}"]),
        (r"0.1\overline{6}", [r"\frac{1}{6}"]),
        ("6 * 3 = 18 apples", [r"6\cdot 3", "18"]),
        ("20% of 50", [r"20\cdot \frac{1}{100}\cdot 50"]),
        ("2e-9", [r"(2\cdot 10^{-9})"]),
        ("6 cm = 0.06 m", [r"(6)\cdot \frac{1}{100}", "0.06"]),
        ("minus five apples", ["-5"]),
        ("negative $3", ["-3"]),
        (r"minus 2 \times 10^{-7}", [r"-2\cdot 10^{-7}"]),
        (r"\text{minus twelve}", ["-12"]),
        ("3½", [r"(3+\frac{1}{2})"]),
        ("5¹⁄₂", [r"(5+\frac{1}{2})"]),
        ("10⁻¹²", ["10^{-12}"]),
        ("3 to four", ["3/4"]),
    ],
)
def test_readings(text: str, sides: list[str]) -> None:
    (member,) = read(text).members
    assert list(member.sides) == sides


@pytest.mark.parametrize(
    "text",
    [
        *("5 halves", "5 tenths", "5 below zero", "double 5", "one third of 6", "half of 8", "not 5", "minus -5"),
        *("5 squared", "5 dozen", "at least 5", "5 xy", "1 2 3", "5 and a half", "5 feet 2 inches", "12:00", "f'(x)"),
        *(
            "minus 5 + 3",
            "negative x",
            "five!",
            "twelve hundred",
            "one half",
            "five six",
            "five-x",
            "3 to 4 to 5",
            "~~5~~",
        ),
        *("3 to 4 hours", "½½", "1.5½", "x¹⁄₂", "½5", "1\u0662", "1 \u0662\u0663\u0664", "12\u066b5", "x\u0665"),
        *(
            "5 wugs",
            "thirteen",
            "",
            "$",
            "(5",
            "5)",
            "5 +",
            r"\frac{}{2}",
            r"\x{5}",
            "5!!",
            r"\boxed{1}\boxed{2}",
            "1,,2",
        ),
        *("3 m = 5 kg", "not = 5", "x2", "12'", "a:b:c", "5 per"),
    ],
)
def test_what_nothing_accounts_for_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


def test_votes_count_letters_as_they_were_written() -> None:
    replies = (r"\boxed{E_1 + d_2 + I}", r"\boxed{x_E}", r"\boxed{I = 5, d = 3}")
    assert [extract(reply) for reply in replies] == ["E_{1}+d_{2}+I", "x_{E}", "I=5, d=3"]


def test_letters_are_units_in_text_and_variables_in_mathematics() -> None:
    assert read("5 m").members[0].unit == UNITS["m"]
    assert read("$5m$").members[0].sides == ("5m",)
    assert read("5m", math=True).members[0].sides == ("5m",)


def test_a_question_may_name_what_it_counts_but_not_change_the_value() -> None:
    nouns = counted_nouns("How many wugs and how many tenths are there?")
    assert read("5 wugs", nouns=nouns).key == "5"
    with pytest.raises(Unreadable):
        read("5 tenths", nouns=nouns)


def test_numbers_are_exact() -> None:
    def value(text: str):
        return read(text).members[0].number

    assert value("1,234,567.50") == value("1234567.5")
    assert value(r"2.9 \times 10^{-19}") == value("2.9e-19") != value("0")
    assert value("-1.5e3") == -1500
    assert value("100000000000000000000000000001") != value("100000000000000000000000000000")
    assert number("1,23") is number("") is number(".") is number("9" * 5000) is number("x") is None


def test_sizes_of_units() -> None:
    """Exact by definition (NIST Special Publication 811, appendix B)."""
    inch, pound, gallon = Fraction(254, 10_000), Fraction(45359237, 100_000), Fraction(231) * Fraction(254, 10_000) ** 3
    assert UNITS["mile"].size == 63360 * inch
    assert UNITS["ounce"].size * 16 == UNITS["pound"].size == pound
    assert UNITS["gallon"].size == gallon == 16 * UNITS["cup"].size == 768 * UNITS["teaspoon"].size
    assert UNITS["acre"].size == 43560 * (12 * inch) ** 2
    assert UNITS["mph"].size == UNITS["mile"].size / UNITS["hour"].size
    assert UNITS["kmh"].size == 1000 / UNITS["hour"].size


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        *(("(C) 40", "C"), ("C. A boat", "C"), ("option C", "C"), ("b", "B"), (r"\text{(C)}", "C"), ("**C**", "C")),
        *(("A, B, C", None), ("not C", None), ("anything but C", None), ("C or not", None), ("a number", None)),
        *(("C or D", None), ("(C) or (D)", None), ("C and D", None), ("C 40", None), ("either C", None), ("", None)),
    ],
)
def test_choice(text: str, letter: str | None) -> None:
    assert choice(text) == letter


# --- what is equal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reference", "score"),
    [
        ("The answer is 2.5cm.", "2.5", 1),
        ("The answer is 2.5cm.", "2", 0),
        ("The answer is 5!", "5", 0),
        ("The answer is 5!", "120", 1),
        (r"\boxed{2**3}", "8", 1),
        (r"\boxed{2**3}", "23", 0),
        (r"\boxed{2(3)}", "5", 0),
        ("The answer is x=3=5", "5", 0),
        ("The answer is 3=5", "5", 0),
        ("The answer is 2x=5", "5", 0),
        ("The answer is 2+3=5", "5", 1),
        ("The answer is x=5", "5", 1),
        ("The answer is Total cost = 5", "5", 1),
        ("The answer is 1,1,1,1", "1", 0),
        ("1 2 3", "123", 0),
        (r"\boxed{11111111100}", r"11,\! 111,\! 111,\! 100", 1),
        ("The answer is 3 1/2 cups.", "3.5", 1),
        ("The answer is 2.5°C", "2.5", 1),
        ("The answer is 2.5L", "2.5", 1),
        (r"\boxed{-2, 1}", r"\boxed{1} and \boxed{-2}", 1),
        (r"\boxed{-2}", r"\boxed{1} and \boxed{-2}", 0),
        ("The answer is 0", "The plane is $x-2y-3z+2w=0$", 0),
        ("The answer is $2w - 3z - 2y + x = 0$", "The plane is $x-2y-3z+2w=0$", 1),
        ("The answer is not C", "C", 0),
        # units, where both sides have one
        ("$6$ is $5$", "5", 0),
        ("The answer is 5 cm", "5 m", 0),
        ("The answer is 500 cm", "5 m", 1),
        ("The answer is 5 kg", "5 m", 0),
        ("The answer is 5 feet", "5 square feet", 0),
        ("The answer is $5", "5 cents", 0),
        ("The answer is 5 cm", "5", 1),
        (r"\boxed{204_7}", "204_5", 0),
        (r"\boxed{204}", "204_5", 1),
        (r"\boxed{10_2}", "10", 0),
        (r"\boxed{10_{2}}", "10", 0),
        (r"\boxed{10_{two}}", "10", 0),
        (r"\boxed{10_{16}}", "x=10", 0),
        (r"\boxed{10_2, 11_2}", "10, 11", 0),
        (r"\boxed{-10_2}", "-10", 0),
        (r"\boxed{10_2}", "10_{10}", 0),
        ("The answer is 10_2 apples", "10", 0),
        ("The answer is 10_8", "10.0", 0),
        (r"\boxed{10_{10}}", "10", 1),
        (r"\boxed{10_{ten}}", "10", 1),
        (r"\boxed{10}", "10_{10}", 1),
        (r"\boxed{4_5}", "4", 1),
        (r"\boxed{10_2}", "10_2", 1),
        # a name that is another's
        ("The answer is y=5", "x=5", 0),
        ("The answer is x=2, y=1", "x=1, y=2", 0),
        ("The answer is (2, 1)", "(1, 2)", 0),
        (r"\boxed{\frac{\pi R}{h}}", r"\frac{\pi r}{h}", 0),
        (r"\boxed{\frac{1}{0}}", "3", 0),
    ],
)
def test_what_four_trials_found(reply: str, reference: str, score: int) -> None:
    assert grade(reply, reference).score == score


IN_FIVE = "Express the quotient $413_5 \\div 2_5$ in base 5."


@pytest.mark.parametrize(
    ("question", "reply", "reference", "score"),
    [
        (IN_FIVE, r"\boxed{204_5}", "204", 1),
        (IN_FIVE, r"\boxed{204_{five}}", "204", 1),
        (IN_FIVE, r"\boxed{204}", "204", 1),
        (IN_FIVE, r"\boxed{204_6}", "204", 0),
        (IN_FIVE, r"\boxed{204_{10}}", "204", 0),
        (IN_FIVE, r"\boxed{203_5}", "204", 0),
        (IN_FIVE, r"\boxed{54_5}", "54_{10}", 0),  # the reference says its own
        (IN_FIVE, r"\boxed{259_5}", "259", 0),  # no numeral of that base
        ("What is 54 in base $5$?", r"\boxed{204_5}", "204", 1),
        ("What is 54 in base $\\text{five}$?", r"\boxed{204_5}", "204", 0),  # not read: as strict as before
        ("Add $2_5$ and $202_5$. Write your answer in base five, in a box.", r"\boxed{204_5}", "204", 1),
        ("Write your answer in base 5 and your answer in base 6.", r"\boxed{204_5}", "204", 0),
        ("Ten, written in base 2, is 1010. What is $10_2$ worth?", r"\boxed{10_2}", "10", 0),
        ("The number is in base 5. Express your answer in base 10.", r"\boxed{10_5}", "10", 0),
        ("", r"\boxed{204_5}", "204", 0),
    ],
)
def test_the_base_that_a_question_asks_for(question: str, reply: str, reference: str, score: int) -> None:
    assert grade(reply, reference, question=question).score == score


def test_math_verify_s_own_cases() -> None:
    """Its repository's tests, predictions as they stand. What it accepts and we refuse is listed with the reason in
    `benchmarks/results/grading.md` of whet: sides that are not equal (`x = 5+5+1 = 7 = 11`), a comma for the decimal
    point, LaTeX that broke in the writing, prose that says no answer."""
    accepted = [grade(case["reply"], case["reference"]).score == 1.0 for case in CASES]
    wrong = [case for case, is_accepted in zip(CASES, accepted, strict=True) if is_accepted and not case["same"]]
    assert len(CASES) == 269
    assert not wrong
    assert sum(case["same"] is is_accepted for case, is_accepted in zip(CASES, accepted, strict=True)) >= 222
