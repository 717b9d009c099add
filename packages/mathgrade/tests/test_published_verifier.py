"""The published rule-based verifier: spec table 9.9, quirks included."""

import pytest

from mathgrade.published import extract, same_answer


@pytest.mark.parametrize(
    ("set_name", "text", "extracted"),
    [
        ("gsm8k", "... #### 1,234", "1234"),
        ("gsm8k", "So he has 5. The answer is 18.", "18"),
        ("gsm8k", "The answer is $1,080.00 dollars.", "1080"),
        ("gsm8k", "the answer is 4. The answer is 9.", "9"),
        ("gsm8k", "THE ANSWER IS 4 and then 6", "6"),  # the trigger is case-sensitive
        ("gsm8k", "The answer is 20% of 50 = 10.", "20"),  # the first number: a false negative
        ("gsm8k", "The answer is 3/4.", "0.75"),
        ("gsm8k", "The answer is: -7", "-7"),
        ("gsm8k", "The answer is seven", ""),
        ("gsm8k", "3/0", "3/0"),
        ("math", r"\boxed{\frac12}", r"\frac{1}{2}"),
        ("math", r"The answer is $\frac{1}{2}$.", r"\frac{1}{2}"),
        ("math", "The answer is 1/2.", r"\frac{1}{2}"),
        ("math", "The answer is x = 5.", "5"),
        ("math", "The answer is 25 square units", "25"),
        ("math", r"\boxed{5}, or so. The answer is 6.", "6"),
        ("math", r"\boxed{\dfrac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        ("aqua", "The answer is (C) 40.", "C"),
        ("aqua", "The answer is a value, so B", "A"),  # an article read as an option
        ("aqua", "so I pick b", "B"),
        ("theoremqa", "The answer is another value 5", "False"),  # "no" inside "another"
        ("theoremqa", "The answer is true", "True"),
        ("theoremqa", "The answer is (b)", "(b)"),
        ("theoremqa", "The answer is 3.1 * 10^{4} metres", "3.1 * 10^{4} metres"),
        ("theoremqa", "The answer is 3.1 * 10^{4}", "31000"),
        ("theoremqa", "The answer is __import__('os').system('x')", "__import__('os').system('x')"),  # never evaluated
    ],
)
def test_spec_9_9_extraction(set_name, text, extracted):
    assert extract(set_name, text) == extracted


@pytest.mark.parametrize(
    ("set_name", "reference", "reply", "same"),
    [
        ("math", r"\boxed{\frac12}", r"The answer is $\frac{1}{2}$.", True),
        ("math", r"\boxed{\frac{1}{2}}", "The answer is 1/2.", True),
        ("math", r"\boxed{\frac{1}{2}}", "The answer is 0.5", False),
        ("math", r"\boxed{1000}", "The answer is 1,000", False),
        ("math", r"\boxed{\text{East}}", r"\boxed{east}", True),
        ("gsm8k", "no digits", "none here either", True),  # empty equals empty
        ("svamp", "145.0", "The answer is 145", True),
        ("theoremqa", "(a)", "The answer is (a), of course", True),
    ],
)
def test_spec_9_9_comparison(set_name, reference, reply, same):
    assert same_answer(set_name, reference, reply) is same


def test_unknown_sets_are_named():
    with pytest.raises(ValueError, match=r"omnimath.*gsm8k"):
        extract("omnimath", "5")
