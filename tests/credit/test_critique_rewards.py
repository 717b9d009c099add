"""The reward terms of Critique-RL against the spec's tables: every cell, for the paper and for the authors' code."""

import pytest
import torch

from whet.credit.rewards import INDIRECT, combine, direct_reward, indirect_reward, judged_right
from whet.objectives import leave_one_out

BOOLS = (True, False)
VERDICTS = ("correct", "wrong", None)


@pytest.mark.parametrize(
    ("verdict", "answer_correct", "code", "paper"),
    [
        ("correct", True, 1.0, 1.0),
        ("wrong", True, -1.0, 0.0),
        ("correct", False, -1.0, 0.0),
        ("wrong", False, 1.0, 1.0),
        (None, True, -1.0, 0.0),
        (None, False, -1.0, 0.0),
    ],
)
def test_spec_9_1_direct_reward(verdict, answer_correct, code, paper):
    assert direct_reward(verdict, answer_correct, "signed") == code
    assert direct_reward(verdict, answer_correct, "unit") == paper
    assert judged_right(verdict, answer_correct) is (paper == 1.0)


@pytest.mark.parametrize(
    ("name", "cells"),  # (o, n) = (1, 1), (1, 0), (0, 1), (0, 0)
    [("refine", (1, 0, 1, 0)), ("delta", (0, -1, 1, 0)), ("correction", (0.2, 0, 1, 0))],
)
def test_spec_2_3_indirect_rewards(name, cells):
    assert tuple(indirect_reward(name, o, n) for o in BOOLS for n in BOOLS) == cells


def test_spec_2_3_definitions():
    for o in BOOLS:
        for n in BOOLS:
            assert indirect_reward("refine", o, n) == n  # eq. 4
            assert indirect_reward("delta", o, n) == n - o  # eq. 5
    assert list(INDIRECT) == ["refine", "delta", "correction"]


# One row of the spec's table a line: o, n, is the verdict right, then (gated, additive) for each indirect reward.
STAGE_TWO = [
    (1, 1, True, {"refine": (1.2, 1.2), "delta": (0.2, 0.2), "correction": (0.4, 0.4)}),
    (1, 1, False, {"refine": (-1, 1.0), "delta": (-1, 0.0), "correction": (-1, 0.2)}),
    (1, 0, True, {"refine": (0.2, 0.2), "delta": (-0.8, -0.8), "correction": (0.2, 0.2)}),
    (1, 0, False, {"refine": (-1, 0.0), "delta": (-1, -1.0), "correction": (-1, 0.0)}),
    (0, 1, True, {"refine": (1.2, 1.2), "delta": (1.2, 1.2), "correction": (1.2, 1.2)}),
    (0, 1, False, {"refine": (-1, 1.0), "delta": (-1, 1.0), "correction": (-1, 1.0)}),
    (0, 0, True, {"refine": (0.2, 0.2), "delta": (0.2, 0.2), "correction": (0.2, 0.2)}),
    (0, 0, False, {"refine": (-1, 0.0), "delta": (-1, 0.0), "correction": (-1, 0.0)}),
]


@pytest.mark.parametrize(("o", "n", "right", "expected"), STAGE_TWO)
@pytest.mark.parametrize("name", INDIRECT)
def test_spec_9_2_stage_two(name, o, n, right, expected):
    said_right, said_wrong = ("correct", "wrong") if o else ("wrong", "correct")
    for verdict in (said_right,) if right else (said_wrong, None):
        judged = judged_right(verdict, bool(o))
        indirect = indirect_reward(name, bool(o), bool(n))
        gated, additive = expected[name]
        assert combine(indirect, judged, "gated") == pytest.approx(gated)
        assert combine(indirect, judged, "additive") == pytest.approx(additive)


def test_spec_9_2_ranges_with_refine():
    def scored(how):
        return {
            combine(indirect_reward("refine", o, n), judged_right(v, o), how)
            for o in BOOLS
            for n in BOOLS
            for v in VERDICTS
        }

    assert scored("gated") == {-1.0, 0.2, 1.2}
    assert scored("additive") == {0.0, 0.2, 1.0, 1.2}


def test_spec_2_4_additive_weight_is_beta_1():
    assert combine(1.0, True, "additive", weight=0.9) == pytest.approx(1.9)
    assert combine(1.0, False, "additive", weight=0.9) == 1.0


def test_unknown_choices_are_refused_with_the_allowed_ones():
    with pytest.raises(ValueError, match=r"'signed'.*'unit'"):
        direct_reward("correct", True, "both")
    with pytest.raises(ValueError, match="refine, delta, correction"):
        indirect_reward("r_refine", True, True)
    with pytest.raises(ValueError, match=r"'gated'.*'additive'"):
        combine(1.0, True, "sum")


def test_refine_and_delta_are_one_reward_to_a_critic_whose_group_shares_its_answer():
    """delta = refine - o, and o is the same for all critiques of one answer, so the leave-one-out credit is equal."""
    for answer_correct in (True, False):
        for refined in ([True, False, True, True], [False, False, True, False]):
            credits = [
                leave_one_out(torch.tensor([[indirect_reward(name, answer_correct, n) for n in refined]]))
                for name in ("refine", "delta")
            ]
            torch.testing.assert_close(*credits)
