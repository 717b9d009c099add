"""What is measured of a policy that answers alone."""

from __future__ import annotations

from math import isnan

import pytest

from whet.evaluation.protocol import share_right
from whet.methods.solvers import solve_metrics
from whet.rollout.roles import written
from whet.types import Episode, Grade, Task

TASK = Task(id="t", prompt="p", answer="4")


def reply(score: float, extracted: str | None) -> Episode:
    segment = written("solver", "4", grade=Grade(score=score, extracted=extracted))
    return Episode(task=TASK, segments=(segment,), outcome="ok")


@pytest.mark.parametrize(
    ("replies", "majority"),
    [
        ([(1.0, "4"), (1.0, "4"), (0.0, "5")], 1.0),
        ([(1.0, "4"), (0.0, "5"), (0.0, "5")], 0.0),
        ([(0.0, None), (0.0, None), (0.0, None)], 0.0),  # nobody answered
        ([(1.0, None), (1.0, None), (0.0, None)], None),  # the grader does not tell what it read
    ],
)
def test_votes_need_a_grader_that_tells_what_it_read(replies, majority):
    sampled = [[reply(*each) for each in replies]]
    assert solve_metrics([reply(1.0, None)], sampled)["majority"] == majority


def test_a_share_with_a_failed_grading_in_it_is_nobody_knows():
    right, wrong = reply(1.0, "4").segments[0], reply(0.0, "5").segments[0]
    assert share_right([right, wrong, wrong, wrong]) == 0.25
    failed = written("solver", "4", grade=Grade(score=None, reason="timed out"))
    for unknown in ([], [right, failed], [written("solver", "4")]):
        assert isnan(share_right(unknown))
