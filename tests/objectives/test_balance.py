"""BAPO's bound search: facts F1 to F6, F11 and F17 of its spec, and a search by two real processes.

Edge cases, laws and the comparison with the slow loop are in `test_balance_laws.py`.
"""

import json
import os
import socket
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
from torch import distributed
from torch.testing import assert_close

from whet.objectives import (
    CODE_RULE,
    GRADIENT_RULE,
    PAPER_RULE,
    Range,
    balanced_bounds,
    clipped_policy_loss,
    contributions,
)
from whet.objectives.balance import Bounds, search


def double(values):
    return torch.tensor(values, dtype=torch.float64)


# Batch S of the spec's 6.1; old logprobs are 0 but for the weighted variant.
RATIO = double([0.92, 1.31, 1.72, 2.43, 0.33, 0.66, 0.77, 0.96, 1.04, 1.07])
ADVANTAGES = double([1.0] * 4 + [-1.0] * 6)
BEHAVIOUR = double([-0.10, -1.20, -1.60, -2.30, -3.00, -1.10, -0.90, -0.05, -0.20, -0.30])
SCRIPT_RULE = replace(
    CODE_RULE,
    low=Range(start=0.8, ceiling=0.95, step=0.05, onto_ceiling=True),
    high=Range(start=1.2, ceiling=2.0, step=0.1, onto_ceiling=True),
)


def given_ratios(ratio, advantages):
    """Policy and old logprobs with these ratios, advantages, and a mask of all."""
    ratio, advantages = torch.as_tensor(ratio), torch.as_tensor(advantages)
    return ratio.log(), torch.zeros_like(ratio), advantages, torch.ones_like(ratio, dtype=torch.bool)


BATCH_S = given_ratios(RATIO, ADVANTAGES)


def six_digits(*values):
    return pytest.approx(values, abs=6e-7)


# -- F1 to F6


def test_f1_grids_do_not_drift():
    assert (len(PAPER_RULE.high.values), PAPER_RULE.high.values[-1]) == (1 + 36, 3.0)
    assert (len(PAPER_RULE.low.values), PAPER_RULE.low.values[-1]) == (1 + 15, 0.9)
    assert (len(CODE_RULE.low.values), len(CODE_RULE.high.values)) == (1 + 4, 1 + 16)
    assert (len(SCRIPT_RULE.low.values), len(SCRIPT_RULE.high.values)) == (1 + 3, 1 + 8)
    low = [0.6]
    while low[-1] + 0.02 <= 0.9:
        low.append(low[-1] + 0.02)
    assert (len(low), low[-1]) == (1 + 14, 0.8800000000000002)  # repeated addition loses the fifteenth step
    high = [1.2]
    while high[-1] + 0.05 <= 3.0:
        high.append(high[-1] + 0.05)
    assert (len(high), high[-1]) == (1 + 36, 2.999999999999997)


def test_f2_sums_at_the_start():
    num_high = len(PAPER_RULE.high.values)
    for rule, positive, negative, share in (
        (PAPER_RULE, 4.52, 5.10, 0.469854), (GRADIENT_RULE, 0.92, 4.50, 0.169742),
    ):  # fmt: skip
        sums = contributions(*BATCH_S, rule)
        assert (sums[0].item(), sums[num_high].item()) == six_digits(positive, negative)
        assert search(sums, rule).start_share == pytest.approx(share, abs=6e-7)
    start = balanced_bounds(*BATCH_S)
    # Equation 8 to the letter divides by |P - N|: no share, which is why it is not what `share` means here.
    assert start.positive / abs(start.positive - start.negative) == pytest.approx(7.793103, abs=6e-7)
    negative = contributions(*BATCH_S, CODE_RULE)[-5:]  # at 0.60, 0.65, 0.70, 0.75, 0.80
    assert_close(negative, double([5.10, 5.15, 5.24, 5.34, 5.47]))  # raising the bound raises N ...
    by_gradient = contributions(*BATCH_S, replace(CODE_RULE, contribution="gradient"))[-5:]
    assert_close(by_gradient, double([4.50, 4.50, 3.84, 3.84, 3.07]))  # ... unless what it stops counts for nothing


@pytest.mark.parametrize(
    ("rule", "target", "low", "high", "odds", "evaluations"),
    [
        (CODE_RULE, 0.5, 0.60, 1.20, 0.886275, 1),
        (CODE_RULE, 0.95, 0.80, 1.50, 0.956124, 11),
        (CODE_RULE, 1.0, 0.80, 1.65, 1.010969, 14),
        (CODE_RULE, 1.5, 0.80, 2.00, 1.087751, 21),
        (SCRIPT_RULE, 0.5, 0.80, 1.20, 0.826325, 1),
        (SCRIPT_RULE, 0.95, 0.95, 1.70, 0.951014, 9),
        (SCRIPT_RULE, 1.0, 0.95, 2.00, 1.005068, 12),
    ],
)
def test_f3_published_code(rule, target, low, high, odds, evaluations):
    bounds = balanced_bounds(*BATCH_S, replace(rule, target=target))
    assert (bounds.low, bounds.high) == pytest.approx((low, high), abs=1e-12)
    assert bounds.positive / bounds.negative == pytest.approx(odds, abs=6e-7)
    assert bounds.num_moves + 1 == evaluations
    assert bounds.met == (odds >= target)


def test_f3_trace_of_the_published_code():
    sums = contributions(*BATCH_S, CODE_RULE)
    positive, negative = sums[:-5], sums[-5:]
    lows = positive[0] / negative  # the lower bound moves first, and away from the target
    assert lows.tolist() == pytest.approx([0.886275, 0.877670, 0.862595, 0.846442, 0.826325], abs=6e-7)
    highs = positive[1:10] / negative[-1]
    assert_close(
        highs,
        double([0.853748, 0.881170, 0.901280, 0.919561, 0.937843, 0.956124, 0.974406, 0.992687, 1.010969]),
        atol=6e-7,
        rtol=0,
    )


@pytest.mark.parametrize(
    ("rule", "target", "low", "high", "share", "evaluations"),
    [
        (PAPER_RULE, 0.40, 0.60, 1.20, 0.469854, 1),
        (PAPER_RULE, 0.50, 0.60, 1.45, 0.501466, 6),
        (PAPER_RULE, 0.52, 0.60, 1.65, 0.520226, 10),
        (PAPER_RULE, 0.60, 0.90, 3.00, 0.525103, 52),
        (GRADIENT_RULE, 0.15, 0.60, 1.20, 0.169742, 1),
        (GRADIENT_RULE, 0.40, 0.60, 1.75, 0.467456, 12),
        (GRADIENT_RULE, 0.50, 0.60, 2.45, 0.586397, 26),
        (GRADIENT_RULE, 0.60, 0.68, 3.00, 0.624266, 41),
        (GRADIENT_RULE, 0.70, 0.90, 3.00, 0.675132, 52),
    ],
)
def test_f4_f5_paper(rule, target, low, high, share, evaluations):
    bounds = balanced_bounds(*BATCH_S, replace(rule, target=target))
    assert (bounds.low, bounds.high) == pytest.approx((low, high), abs=1e-12)
    assert (bounds.share, bounds.num_moves + 1) == six_digits(share, evaluations)
    assert bounds.met == (share >= target)


@pytest.mark.parametrize(("target", "positive"), [(0.50, 5.13), (0.52, 5.53)])
def test_f4_sums_where_the_search_ends(target, positive):
    bounds = balanced_bounds(*BATCH_S, replace(PAPER_RULE, target=target))
    assert (bounds.positive, bounds.negative) == six_digits(positive, 5.10)


def test_f4_the_lower_bound_made_it_worse():
    sums = contributions(*BATCH_S, PAPER_RULE)
    positive, negative = sums[len(PAPER_RULE.high.values) - 1], sums[len(PAPER_RULE.high.values)]
    assert (positive / (positive + negative)).item() == pytest.approx(0.555749, abs=6e-7)  # at (0.6, 3.0)
    at_the_end = balanced_bounds(*BATCH_S, replace(PAPER_RULE, target=0.6))
    assert (at_the_end.positive, at_the_end.negative) == six_digits(6.38, 5.77)


def test_f4_weighted_by_the_samplers_probability():
    def found(target):
        return balanced_bounds(*BATCH_S, replace(PAPER_RULE, target=target), token_weight=BEHAVIOUR.exp())

    start = found(0.3)
    assert (start.positive, start.negative, start.share) == six_digits(1.556470, 3.119962, 0.332833)
    assert (found(0.35).low, found(0.35).high, found(0.35).share, found(0.35).num_moves) == six_digits(
        0.6, 1.5, 0.350036, 6
    )
    assert (found(0.4).low, found(0.4).high, found(0.4).share, found(0.4).num_moves) == six_digits(
        0.9, 3.0, 0.357465, 51
    )


def test_f6_one_sign_only():
    for rule in (PAPER_RULE, CODE_RULE, GRADIENT_RULE):
        only_good = balanced_bounds(*given_ratios([1.1, 0.9], [1.0, 1.0]), rule)
        assert (only_good.low, only_good.high) == (rule.low.start, rule.high.start)
        assert (only_good.met, only_good.share, only_good.num_moves) == (True, 1.0, 0)
        only_bad = balanced_bounds(*given_ratios([1.1, 0.9001], [-1.0, -1.0]), rule)
        assert (only_bad.low, only_bad.high) == (rule.low.ceiling, rule.high.ceiling)
        assert (only_bad.met, only_bad.share) == (False, 0.0)


def test_f6_on_policy_the_bounds_saturate_and_change_nothing():
    advantages = double([1.5] * 3 + [-0.5] * 15)
    zeros = torch.zeros(18, dtype=torch.float64)
    mask = torch.ones(18, dtype=torch.bool)
    bounds = balanced_bounds(zeros, zeros, advantages, mask)
    assert (bounds.low, bounds.high, bounds.num_moves + 1, bounds.met) == (0.9, 3.0, 52, False)
    assert (bounds.share, bounds.positive / bounds.negative) == pytest.approx((0.375, 0.6))

    def update(low, high):
        policy = zeros.clone().requires_grad_()
        loss, _ = clipped_policy_loss(policy, zeros, advantages, mask, torch.ones(18), low=low, high=high)
        return loss, torch.autograd.grad(loss, policy)[0]

    assert_close(update(bounds.low, bounds.high), update(0.8, 1.2), atol=0, rtol=0)


FIRST, SECOND = [0, 1, 4, 5, 6], [2, 3, 7, 8, 9]


def shard_of_s(indices):
    return tuple(x[indices] for x in BATCH_S)


def test_f6_shards_add_up():
    rule = replace(PAPER_RULE, target=0.5)
    alone = [balanced_bounds(*shard_of_s(indices), rule) for indices in (FIRST, SECOND)]
    assert [(b.low, b.high, b.share) for b in alone] == [
        six_digits(0.6, 1.2, 0.510843),
        six_digits(0.6, 1.55, 0.502431),
    ]
    other = contributions(*shard_of_s(SECOND), rule)
    joint = balanced_bounds(*shard_of_s(FIRST), rule, reduce=lambda sums: sums + other)
    assert (joint.low, joint.high, joint.share) == six_digits(0.6, 1.45, 0.501466)


def search_on_a_rank(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )

    def add_up(sums):
        distributed.all_reduce(sums)
        return sums

    found = []
    for shards in (
        (FIRST, SECOND),
        ([0, 1], [2, 3, 4, 5, 6, 7, 8, 9]),
        ([4, 5, 6], [0, 1, 2, 3, 7, 8, 9]),
        ([], range(10)),
    ):
        shard = shard_of_s(list(shards[rank]))
        bounds = balanced_bounds(*shard, replace(PAPER_RULE, target=0.5), reduce=add_up)
        found.append([bounds.low, bounds.high, bounds.share, bounds.num_moves])
    (folder / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


@pytest.mark.integration
def test_f6_two_processes_with_uneven_shards_find_the_joint_bounds(tmp_path):
    torch.multiprocessing.spawn(search_on_a_rank, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        for found in json.loads((tmp_path / f"{rank}.json").read_text()):
            assert found == six_digits(0.6, 1.45, 0.501466, 5), rank


# -- F11, F17


def batch_l():
    delta = double([0.4, 0.0, -0.3, -0.7, 0.1, -0.15, 1.3])
    return given_ratios(delta.exp(), double([1.2] * 3 + [-0.8] * 4))


def test_f11_batch_l():
    start = balanced_bounds(*batch_l())
    assert (start.low, start.high, start.num_moves) == (0.6, 1.2, 0)
    assert (start.positive, start.negative, start.share) == six_digits(3.528982, 4.988140, 0.414340)
    assert start.positive / start.negative == pytest.approx(0.707474, abs=6e-7)
    for target, high, share in ((0.42, 1.30, 0.422477), (0.43, 1.40, 0.430390)):
        bounds = balanced_bounds(*batch_l(), replace(PAPER_RULE, target=target))
        assert (bounds.low, bounds.high, bounds.share) == six_digits(0.6, high, share)
    saturated = balanced_bounds(*batch_l(), replace(PAPER_RULE, target=0.45))
    assert (saturated.positive, saturated.negative, saturated.share) == six_digits(3.879172, 5.259574, 0.424475)
    assert saturated.positive / (saturated.positive + start.negative) == pytest.approx(0.437469, abs=6e-7)
    code = balanced_bounds(*batch_l(), CODE_RULE)
    assert (code.low, code.high, code.positive / code.negative) == six_digits(0.8, 2.0, 0.753509)
    assert start.positive / code.negative == pytest.approx(0.685487, abs=6e-7)


@pytest.mark.parametrize(
    ("share", "odds"), [(0.40, 0.666667), (0.45, 0.818182), (0.50, 1.0), (0.333333, 0.5), (0.52, 1.083333)]
)
def test_f17_a_share_and_its_odds_find_the_same_bounds(share, odds):
    assert share / (1 - share) == pytest.approx(odds, abs=2e-6)
    for batch in (BATCH_S, batch_l()):
        by_share = balanced_bounds(*batch, replace(PAPER_RULE, target=share))
        assert balanced_bounds(*batch, replace(PAPER_RULE, target=odds, target_as="odds")) == by_share


@pytest.mark.parametrize(("target", "share"), [(0.40, 0.222222), (0.45, 0.236842), (0.50, 0.25)])
def test_f17_equation_8_to_the_letter_asks_for_less(target, share):
    found = Bounds(low=0.6, high=1.2, positive=target, negative=1 + target, start_share=0, num_moves=0, met=True)
    assert found.positive / abs(found.positive - found.negative) == pytest.approx(target)
    assert found.share == pytest.approx(share, abs=6e-7)
