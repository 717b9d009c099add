"""Where the boxes of a text stand."""

import pytest

from mathgrade.boxes import last_boxed


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{1} then \boxed{\frac{a}{\sqrt{b}}}.", r"\frac{a}{\sqrt{b}}"),
        (r"\boxed 5 and so on", "5"),
        (r"\fbox{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{7} and \boxed{8", "7"),  # cut off
        (r"\boxed{\begin{matrix}1\\{2}\\\end{matrix}}", r"\begin{matrix}1\\{2}\\\end{matrix}"),
    ],
)
def test_last_boxed(text, inside):
    assert last_boxed(text)[1] == inside


def test_last_boxed_takes_one_pass_over_nested_boxes():
    assert last_boxed("\\boxed{" * 50_000) is None
    assert last_boxed("\\boxed{" * 50_000 + "x" + "}" * 50_000)[1] == "x"
