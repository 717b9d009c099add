"""Critics by rule."""

from __future__ import annotations

import pytest

from support.rounds import RIGHT, TASK, WRONG
from whet.grading.verdicts import parse_verdict
from whet.rollout.roles import written
from whet.tasks.oracles import alarmist, by_reference, empty, false, judge, oracle
from whet.tasks.prompts import ENGLISH
from whet.types import Grade, Task


@pytest.mark.parametrize(("answer", "verdict"), [(RIGHT, "correct"), (WRONG, "wrong")])
def test_rule_critics_of_the_tiny_world(answer, verdict):
    answer, wrong = written("actor", answer), written("actor", WRONG)
    assert parse_verdict(oracle(TASK, answer)) == parse_verdict(judge(TASK, answer)) == verdict
    assert len(judge(TASK, wrong)) < len(oracle(TASK, wrong))
    assert parse_verdict(alarmist(TASK, answer)) == "wrong"
    assert empty(TASK, answer) == ""
    assert false(TASK, answer) != oracle(TASK, answer)


@pytest.mark.parametrize(("score", "verdict"), [(1.0, "correct"), (0.0, "wrong")])
def test_the_oracle_of_a_set_with_references_says_what_the_grader_found(score, verdict):
    solution = "Half of 48 is 48/2 = <<48/2=24>>24.\nBoth are 48+24 = <<48+24=72>>72.\n#### 72"
    task = Task(id="t", prompt="How many clips?", answer="72", info={"solution": solution})
    critique = by_reference(ENGLISH)(task, written("actor", "The answer is 70.", grade=Grade(score=score)))
    assert parse_verdict(critique, **ENGLISH.labels) == verdict
    assert ("Both are 48+24 = 72.\nThe answer is 72." in critique) == (verdict == "wrong")
    bare = Task(id="t", prompt="How many clips?", answer="72")
    assert "The answer is 72." in by_reference(ENGLISH)(bare, written("actor", "70", grade=Grade(score=0.0)))
