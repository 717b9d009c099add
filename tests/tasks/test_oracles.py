"""Critics by rule for the tiny world."""

from __future__ import annotations

import pytest

from support.rounds import RIGHT, TASK, WRONG
from whet.grading.verdicts import parse_verdict
from whet.tasks.oracles import alarmist, empty, false, judge, oracle


@pytest.mark.parametrize(("answer", "verdict"), [(RIGHT, "correct"), (WRONG, "wrong")])
def test_rule_critics_of_the_tiny_world(answer, verdict):
    assert parse_verdict(oracle(TASK, answer)) == parse_verdict(judge(TASK, answer)) == verdict
    assert len(judge(TASK, WRONG)) < len(oracle(TASK, WRONG))
    assert parse_verdict(alarmist(TASK, answer)) == "wrong"
    assert empty(TASK, answer) == ""
    assert false(TASK, answer) != oracle(TASK, answer)
