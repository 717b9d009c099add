"""Answers of public sets through the grader's worker processes: near misses, rewritings, and references themselves."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import grading
import mathgrade
from whet.grading.maths import MathGrader

EDGES = json.loads(grading.EDGES.read_text(encoding="utf-8"))["cases"]


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    with MathGrader(timeout_s=20) as shared:
        yield shared


def test_workers_say_what_mathgrade_says(grader: MathGrader) -> None:
    """On some answers at the edges: score, reason and final answer, whichever process compared them."""
    pairs = [(case["reply"], case["reference"]) for case in EDGES[::8]]
    alone = [mathgrade.grade(*pair) for pair in pairs]
    assert sum(isinstance(mathgrade.examine(*pair), mathgrade.Comparison) for pair in pairs) >= 10
    for pair, grade, result in zip(pairs, grader.grade(pairs), alone, strict=True):
        assert (grade.score, grade.extracted) == (result.score, result.extracted), pair
        assert grade.reason == result.reason, pair


def test_near_misses_are_refused_and_rewritings_accepted(grader: MathGrader, data_folder: Path) -> None:
    """A sample; `benchmarks/grading.py` has thousands."""
    rng = random.Random(7)
    sets = grading.references(data_folder)
    pool = [answer for answers in sets.values() for answer in sorted(set(answers))]
    pairs = [pair for found in grading.near_misses(pool, rng).values() for pair in found[:60]]
    grades = grader.grade([(reply, gold) for gold, reply in pairs])
    assert [pair for pair, grade in zip(pairs, grades, strict=True) if grade.score != 0.0] == []
    same = grading.rewritings(pool, rng)[:300]
    grades = grader.grade([(reply, gold) for gold, reply in same])
    assert [pair for pair, grade in zip(same, grades, strict=True) if grade.score != 1.0] == []
    assert len(pairs) == 600


@pytest.mark.integration
@pytest.mark.parametrize("frame", ["{}", r"\boxed{{{}}}", "${}$", "The answer is {}."])
def test_references_accept_themselves(grader: MathGrader, data_folder: Path, frame: str) -> None:
    for name, answers in grading.references(data_folder).items():
        grades = grader.grade([(frame.format(answer), answer) for answer in answers])
        assert [a for a, grade in zip(answers, grades, strict=True) if grade.score != 1.0] == [], name
