"""The page of results: its verdicts by hand, and that page and README say what the committed files say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import results_page
from claims import SYSTEMS, Claim, Lead, Premise

HOLDS, FAILS = Premise("measured", True), Premise("measured", False)
UP, DOWN, NOISE, ONE = (0.1, 0.12, 0.11), (-0.1, -0.12, -0.11), (0.1, -0.12, 0.01), (0.5,)


@pytest.mark.parametrize(
    ("premise", "leads", "verdict"),
    [
        (HOLDS, [UP], "shown"),
        (FAILS, [UP], "not shown"),  # an effect without its premise is another effect
        (HOLDS, [UP, NOISE], "partly shown"),
        (HOLDS, [UP, DOWN], "partly shown"),
        (HOLDS, [NOISE], "not shown"),
        (HOLDS, [ONE], "not shown"),  # one seed has no interval
        (HOLDS, [DOWN, NOISE], "the other way round"),
        (FAILS, [DOWN], "the other way round"),
        (HOLDS, [], "not shown"),
    ],
)
def test_verdicts(premise, leads, verdict):
    assert results_page.verdict_of(premise, [Lead("x", values) for values in leads]) == verdict


def test_a_claim_may_expect_a_fall_or_no_less_than_so_much():
    """Of 10, 12 and 11 points the half width of a 95 % t interval is 4.303 * 1 / sqrt(3) = 2.48: from 8.5 to 13.5."""
    assert results_page.side_of(Lead("x", DOWN, -1)) == 1
    assert results_page.side_of(Lead("x", UP, -1)) == -1
    assert results_page.side_of(Lead("x", UP), 0.08) == 1
    assert results_page.side_of(Lead("x", UP), 0.09) == 0


def test_a_study_without_a_result_is_not_measured():
    absent = Claim(says="x", env="", budget="", result="no_such_study", premise=lambda _: HOLDS, leads=lambda _: [])
    assert results_page.answer_of(absent).verdict == "not measured"


def test_page_and_readme_say_what_the_result_files_say():
    for path, text in results_page.texts().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python benchmarks/results_page.py"


def test_every_claim_that_is_not_shown_has_its_reason():
    for system in SYSTEMS:
        for claim in system.claims:
            assert claim.reason or results_page.answer_of(claim).verdict in ("shown", "not measured"), claim.says


def test_a_readme_without_the_tables_marks_is_refused():
    with pytest.raises(ValueError, match="put the marks back"):
        results_page.readme("# whet\n", {})
