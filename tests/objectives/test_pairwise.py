"""Losses on preference pairs, by hand and by law. `test_pairwise_in_trl.py` holds them against TRL's."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from whet.objectives import pairwise_loss, row_sums

logistic = partial(pairwise_loss, kind="logistic")
ipo = partial(pairwise_loss, kind="ipo")
KINDS = {
    "dpo": partial(logistic, beta=0.1),
    "margin": partial(logistic, beta=0.5, margin=1.0),
    "smoothed": partial(logistic, beta=0.1, label_smoothing=0.1),
    "ipo": partial(ipo, beta=0.2),
}
every_kind = pytest.mark.parametrize("loss", KINDS.values(), ids=KINDS)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def pairs(seed, num_pairs=6, scale=5.0):
    """Log ratios of both rows, carrying gradients, and positive weights."""
    generator = torch.Generator().manual_seed(seed)
    chosen, rejected, weight = torch.randn(3, num_pairs, generator=generator, dtype=torch.float64)
    return (scale * chosen).requires_grad_(), (scale * rejected).requires_grad_(), weight.abs()


# -- by hand


@pytest.mark.parametrize(
    ("options", "chosen", "rejected", "value", "slope"),
    [
        # log 2 where the policy is the reference; by half a beta apart
        ({"kind": "logistic", "beta": 0.1}, 0.0, 0.0, 0.693147, -0.05),
        # 0.1 * (4 + 6) = 1: log(1 + e^-1), and -0.1 * sigmoid(-1)
        ({"kind": "logistic", "beta": 0.1}, 4.0, -6.0, 0.313262, -0.026894),
        # the same pair with a margin of 1 is even
        ({"kind": "logistic", "beta": 0.1, "margin": 1.0}, 4.0, -6.0, 0.693147, -0.05),
        # 0.9 * 0.313262 + 0.1 * 1.313262; -0.1 * (0.9 * 0.268941 - 0.1 * 0.731059)
        ({"kind": "logistic", "beta": 0.1, "label_smoothing": 0.1}, 4.0, -6.0, 0.413262, -0.016894),
        # the target is 1 / 0.4 = 2.5
        ({"kind": "ipo", "beta": 0.1}, 4.0, -6.0, 25.0, 10.0),  # (10 - 5)^2
        ({"kind": "ipo", "beta": 0.2}, 1.0, -0.5, 1.0, -2.0),  # (1.5 - 2.5)^2
        ({"kind": "ipo", "beta": 0.2}, 2.0, -0.5, 0.0, 0.0),
        ({"kind": "ipo", "beta": 0.2}, 3.0, -0.5, 1.0, 2.0),  # too far: pulled back
    ],
)
def test_pairwise_by_hand(options, chosen, rejected, value, slope):
    chosen, rejected = double([chosen]).requires_grad_(), double([rejected]).requires_grad_()
    loss, _ = pairwise_loss(chosen, rejected, double([2.0]), **options)
    loss.backward()
    found = (loss.item(), chosen.grad.item(), rejected.grad.item())
    assert found == pytest.approx((2 * value, 2 * slope, -2 * slope), abs=2e-6)


def test_metrics_by_hand():
    chosen, rejected = double([4.0, 1.0, -2.0, 3.0]).requires_grad_(), double([-6.0, 1.0, -1.0, 2.5])
    _, metrics = logistic(chosen, rejected, double([0.0, 1.0, 2.0, 3.0]), beta=0.1, margin=5.0)
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "num_pairs": 4,
            "pair_right_sum": 2.5,  # the second pair is a tie
            "pair_margin_sum": 0.95,  # 0.1 * (10 + 0 - 1 + 0.5): neither the weights nor the margin are in it
            "chosen_sum": 6.0,
            "rejected_sum": -3.5,
        }
    )
    assert not any(value.requires_grad for value in metrics.values())


def test_smoothing_turns_a_pair_back_where_it_is_surer_than_the_labels():
    """With a chance of 0.1 that a pair is the wrong way round, the best policy is right with a chance of 0.9."""
    chosen = double([10 * math.log(9)]).requires_grad_()  # sigmoid(log 9) = 0.9
    loss, _ = logistic(chosen, double([0.0]), double([1.0]), beta=0.1, label_smoothing=0.1)
    loss.backward()
    assert chosen.grad.item() == pytest.approx(0.0, abs=1e-12)


# -- laws


@every_kind
def test_gradient_is_the_derivative_of_the_loss(loss):
    chosen, rejected, weight = pairs(0)
    assert torch.autograd.gradcheck(lambda *rows: loss(*rows, weight)[0], (chosen, rejected))


@every_kind
def test_micro_batches_add_up(loss):
    batch = pairs(1)
    whole, metrics = loss(*batch)
    parts = [loss(*(x[rows] for x in batch)) for rows in (slice(0, 2), slice(2, None))]
    assert_close(sum(value for value, _ in parts), whole)
    assert_close({name: sum(found[name] for _, found in parts) for name in metrics}, metrics)


@every_kind
def test_weights_are_numbers_and_only_the_gap_counts(loss):
    chosen, rejected, weight = pairs(2)
    value, _ = loss(chosen, rejected, weight.requires_grad_())
    assert_close(loss(chosen + 3.0, rejected + 3.0, weight)[0], value)
    grads = torch.autograd.grad(value, (chosen, rejected, weight), allow_unused=True)
    assert_close(grads[0], -grads[1])
    assert grads[2] is None


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_off_pairs_stay_finite(loss, dtype):
    gaps = torch.tensor([-1e4, -1e3, 0.0, 1e3, 1e4], dtype=dtype)
    for scale in (1.0, 20.0):  # beta * gap of 1e4 and more, too
        chosen = (scale * gaps).requires_grad_()
        value, metrics = loss(chosen, torch.zeros_like(gaps), torch.ones_like(gaps))
        value.backward()
        assert value.isfinite()
        assert chosen.grad.isfinite().all()
        assert all(found.isfinite() for found in metrics.values())
        assert chosen.grad[0] < 0  # the wrong pair is still pulled


def test_a_pair_far_off_has_a_slope_of_beta_and_the_loss_of_its_distance():
    chosen = torch.tensor([-1e4, 1e4], requires_grad=True)
    loss, _ = logistic(chosen, torch.zeros(2), torch.ones(2), beta=1.0)
    loss.backward()
    assert (loss.item(), *chosen.grad.tolist()) == (1e4, -1.0, 0.0)


def test_no_pairs_cost_nothing():
    for loss in KINDS.values():
        value, metrics = loss(torch.zeros(0), torch.zeros(0), torch.zeros(0))
        assert value == 0
        assert not any(metrics.values())


@pytest.mark.parametrize("fill", [math.nan, math.inf, -math.inf])
def test_row_sums_ignore_what_is_masked(fill):
    mask = torch.tensor([[True, True, False], [False, True, False], [False, False, False]])
    policy = torch.where(mask, double([[0.5, -1.5, 9], [9, 0.25, 9], [9, 9, 9]]), fill).requires_grad_()
    ref = torch.where(mask, 0.0, -fill)
    sums, means = (row_sums(policy - ref, mask, mean=mean) for mean in (False, True))
    assert (sums.tolist(), means.tolist()) == ([-1.0, 0.25, 0.0], [-0.5, 0.25, 0.0])
    (sums.sum() + 2 * means.sum()).backward()
    assert policy.grad.tolist() == [[2.0, 2.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]


def test_refusals():
    batch = pairs(3)
    with pytest.raises(ValueError, match=r"unknown kind of pairwise loss 'hinge': choose one of logistic, ipo\."):
        pairwise_loss(*batch, kind="hinge", beta=0.1)
    for beta in (0.0, -0.1):
        with pytest.raises(ValueError, match=f"beta has to be more than 0, got {beta}"):
            logistic(*batch, beta=beta)
    for smoothing in (0.5, -0.1, 1.0):
        with pytest.raises(ValueError, match=rf"label_smoothing has to be in \[0, 0\.5\), got {smoothing}"):
            logistic(*batch, beta=0.1, label_smoothing=smoothing)
    with pytest.raises(ValueError, match=r"ipo takes no margin and no label_smoothing, got 1\.0 and 0\.0"):
        ipo(*batch, beta=0.1, margin=1.0)
    with pytest.raises(ValueError, match="ipo takes no margin and no label_smoothing"):
        ipo(*batch, beta=0.1, label_smoothing=0.1)
