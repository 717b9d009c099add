"""Every published formula beside ours, on 1,000 random inputs each: no difference but those that the docs name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.formulas import FORMULAS, Formula, compare
from whet.methods import METHODS

TABLE = Path(__file__).parents[2] / "docs" / "fidelity.md"


def documented() -> set[str]:
    """The names of the rows of the formulas that differ on purpose."""
    return set(re.findall(r"^\| \*\*(.+?)\*\* \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: f"{formula.method}: {formula.formula}")
def test_a_published_formula_and_ours_agree_or_the_docs_say_where_they_do_not(formula):
    result = compare(formula)
    assert result.cases == 1000
    if formula.differs:
        assert formula.differs in documented()
        assert result.differences > 0, f"{formula.differs} stands in the docs, and nothing differs"
        return
    assert result.differences == 0, f"{result.differences} of {result.cases}, by up to {result.largest:g}"
    assert result.moved > 50, "the published results are 0, which compares nothing"


def test_no_row_of_the_docs_is_of_a_formula_that_is_not_there():
    assert documented() == {formula.differs for formula in FORMULAS if formula.differs}


def test_a_formula_that_is_slightly_wrong_is_noticed():
    def off_by_little(rng: np.random.Generator, cases: int):
        ours, published = whole.run(rng, cases)
        ours[::10] += 1e-5
        return ours, published

    whole = next(formula for formula in FORMULAS if formula.method == "sapo")
    assert compare(replace(whole, run=off_by_little)).differences == 100


def test_a_nan_on_one_side_is_a_difference():
    broken = Formula(method="x", formula="y", source="z", run=lambda _, n: (np.full((n, 2), np.nan), np.ones((n, 2))))
    assert compare(broken).differences == 1000


@pytest.mark.parametrize("name", METHODS.names())
def test_every_preset_has_its_line_in_the_docs(name):
    """What each preset has of what was published, and what not."""
    assert re.search(rf"`{re.escape(name)}`", TABLE.read_text(encoding="utf-8")), (
        f"docs/fidelity.md is silent on {name}"
    )
