"""NFT by hand, and what it is on policy: Dr. GRPO's gradient, or GRPO's. Masks, splits and overflow are held with the
other losses in `test_policy_loss_laws.py`."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from whet.objectives import aggregation_weights, clipped_policy_loss, group_advantages, nft_loss

exactly = partial(assert_close, rtol=0, atol=0)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def one_token(ratio, credit, rate, **options):
    policy, ones = double([[ratio]]).log().requires_grad_(), torch.ones(1, 1, dtype=torch.float64)
    rest = (torch.zeros_like(ones), ones * credit, ones.bool(), ones)
    loss, metrics = nft_loss(policy, *rest, rate_B=double([rate]), **options)
    loss.backward()
    return loss.item(), policy.grad.item(), metrics


# -- by hand


@pytest.mark.parametrize(
    ("ratio", "credit", "epsilon", "loss", "grad"),
    [
        (1.0, 1.0, 1.0, 0.0, -1.0),  # right, on policy
        (2.0, 1.0, 1.0, -0.693147, -1.0),  # right: the likelihood, whatever the ratio
        (1.0, -1.0, 1.0, 0.0, 3.0),  # wrong, on policy: q = 1, r / (1 - r) = 3
        (0.5, -1.0, 1.0, -0.916291, 0.6),  # q = (1 - 0.375) / 0.25 = 2.5; 3 * 0.5 / 2.5
        (1.3, -1.0, 1.0, 0.0, 3.9),  # q = 0.1, held at 1: the loss stands still and the gradient does not
        (1.3, -1.0, 0.01, 2.302585, 39.0),  # the same below no floor: 3.9 / 0.1
        (1.5, -1.0, 0.01, 4.605170, 450.0),  # q = -0.5, which no policy has: 3 * 1.5 / 0.01
        (1.5, 0.0, 1.0, 0.0, 0.0),  # no part
    ],
)
def test_nft_by_hand(ratio, credit, epsilon, loss, grad):
    """r = 0.75; the worked numbers are with omega = 1, and 1 - r = 0.25 of them is what the default gives."""
    found = one_token(ratio, credit, 0.75, epsilon=epsilon, omega="one")[:2]
    assert found == pytest.approx((loss, grad), abs=6e-7)
    assert one_token(ratio, credit, 0.75, epsilon=epsilon)[:2] == pytest.approx((loss / 4, grad / 4), abs=6e-7)
    half = one_token(ratio, credit, 0.75, epsilon=epsilon, negative_weight=0.5, omega="one")[:2]
    of_it = 0.5 if credit < 0 else 1.0
    assert half == pytest.approx((loss * of_it, grad * of_it), abs=6e-7)


def test_what_counts_as_stopped():
    def counts(ratio, credit, **options):
        metrics = one_token(ratio, credit, 0.75, **options)[2]
        return int(metrics["num_clipped_low"]), int(metrics["num_clipped_high"])

    assert counts(1.3, -1.0) == (0, 1)  # the floor holds its q
    assert counts(1.3, -1.0, epsilon=0.01) == counts(0.5, -1.0) == counts(1.0, -1.0) == counts(1.3, 1.0) == (0, 0)


def test_the_rate_is_held_inside_its_range():
    assert one_token(1.0, -1.0, 1.0)[:2] == pytest.approx((0.0, 0.98))  # (1 - r) r / (1 - r)
    assert one_token(1.0, 1.0, 1.0)[:2] == pytest.approx((0.0, -0.02))
    assert one_token(1.0, 1.0, 0.0, omega="grpo")[1] == pytest.approx(-7.0)  # sqrt(0.98 / 0.02)
    assert one_token(1.0, 1.0, 0.0, rate_range=(0.1, 0.9))[1] == pytest.approx(-0.9)


def test_far_off_tokens():
    """A right token keeps its pull however unlikely it grew; a wrong one past e^10 has lost its own."""
    assert one_token(math.exp(-30), 1.0, 0.75, omega="one")[:2] == pytest.approx((30.0, -1.0))
    assert one_token(math.exp(9.9), -1.0, 0.75, omega="one")[1] == pytest.approx(3 * math.exp(9.9))
    assert one_token(math.exp(10.1), -1.0, 0.75, omega="one")[1] == 0


def test_a_small_floor_is_exact_in_single_precision():
    """q = 1 - 49 * expm1(9) is near -4e5; in float32 `q + (epsilon - q)` would be 0, and its log infinite."""
    policy, ones = torch.full((1, 1), 9.0, requires_grad=True), torch.ones(1, 1)
    loss, _ = nft_loss(
        policy, ones * 0, -ones, ones.bool(), ones, rate_B=torch.tensor([0.98]), epsilon=1e-3, omega="one"
    )
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-3))
    assert policy.grad.item() == pytest.approx(49 * math.exp(9) / 1e-3, rel=1e-5)


# -- what it is on policy


def a_group(num_right, *, shift=0.0):
    """8 answers of 3 to 10 tokens, the first `num_right` right: policy, old, mask, token weights, rewards."""
    generator = torch.Generator().manual_seed(num_right)
    old = torch.randn(8, 10, generator=generator, dtype=torch.float64) - 2
    policy = (old + shift * torch.randn(8, 10, generator=generator, dtype=torch.float64)).requires_grad_()
    mask = torch.arange(10) < torch.arange(3, 11)[:, None]
    ones = torch.ones(8, dtype=torch.float64)
    weights = aggregation_weights(mask.sum(-1), ones, "constant", constant_length=10)[:, None]
    return policy, old, mask, weights, (torch.arange(8) < num_right).double()


def gradient(loss, policy, *rest, **options):
    return torch.autograd.grad(loss(policy, *rest, **options)[0], policy)[0]


@pytest.mark.parametrize("num_right", range(1, 8))
@pytest.mark.parametrize(
    ("omega", "credit_of"),
    [("dr_grpo", group_advantages), ("grpo", partial(group_advantages, divide_by_std=True, correction=0, eps=0))],
)
def test_on_policy_the_gradient_is_that_of_dr_grpo_or_grpo(omega, credit_of, num_right):
    policy, old, mask, weights, rewards = a_group(num_right)
    credit = credit_of(rewards[None])[0][:, None].expand_as(old)
    unclipped = gradient(clipped_policy_loss, policy, old, credit, mask, weights, low=0.8, high=1.2)
    rate = rewards.mean().expand(8)
    got = gradient(nft_loss, policy, old, credit, mask, weights, rate_B=rate, omega=omega)
    assert_close(got, unclipped, rtol=0, atol=1e-12)
    assert (got[mask] != 0).all()
    single = (x.detach().float() for x in (policy, old, credit))
    policy, old, credit = single
    got = gradient(nft_loss, policy.requires_grad_(), old, credit, mask, weights, rate_B=rate, omega=omega)
    assert_close(got.double(), unclipped, rtol=0, atol=1e-6)


@pytest.mark.parametrize("epsilon", [1.0, 0.05])
@pytest.mark.parametrize("omega", ["dr_grpo", "grpo", "one"])
def test_it_is_the_slow_obvious_loop(omega, epsilon):
    policy, old, mask, weights, rewards = a_group(3, shift=0.5)
    credit, r = (2 * rewards - 1)[:, None].expand_as(old), 3 / 8
    scale = {"dr_grpo": 1 - r, "grpo": math.sqrt((1 - r) / r), "one": 1.0}[omega]
    expected, slopes = 0.0, torch.zeros_like(old)
    for b, t in mask.nonzero().tolist():
        log_ratio = (policy[b, t] - old[b, t]).item()
        q = (1 - r * math.exp(log_ratio)) / (1 - r)
        right = credit[b, t] > 0
        expected += weights[b, 0].item() * scale * -(log_ratio if right else math.log(max(q, epsilon)))
        slope = -1.0 if right else r * math.exp(log_ratio) / ((1 - r) * max(q, epsilon))
        slopes[b, t] = weights[b, 0].item() * scale * slope
    options = {"rate_B": double([r] * 8), "omega": omega, "epsilon": epsilon}
    loss, _ = nft_loss(policy, old, credit, mask, weights, **options)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert_close(gradient(nft_loss, policy, old, credit, mask, weights, **options), slopes)


# -- laws


def test_without_a_negative_weight_wrong_answers_have_no_gradient():
    policy, old, mask, weights, rewards = a_group(3, shift=0.5)
    credit = group_advantages(rewards[None])[0][:, None].expand_as(old)
    rate = rewards.mean().expand(8)
    both = gradient(nft_loss, policy, old, credit, mask, weights, rate_B=rate)
    right_alone = gradient(nft_loss, policy, old, credit, mask, weights, rate_B=rate, negative_weight=0.0)
    exactly(right_alone[:3], both[:3])
    exactly(right_alone[3:], torch.zeros_like(both[3:]))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_of_the_credit_only_the_sign_counts(scale):
    policy, old, mask, weights, rewards = a_group(5, shift=0.5)
    rate = rewards.mean().expand(8).clone().requires_grad_()
    losses = [
        nft_loss(policy, old, credit[:, None].expand_as(old), mask, weights, rate_B=rate)
        for credit in (2 * rewards - 1, scale * (rewards - 0.5))
    ]
    exactly(*losses)
    losses[0][0].backward()
    assert rate.grad is None  # a number


def test_rows_that_take_no_part_need_no_rate():
    policy, old, mask, weights, rewards = a_group(5, shift=0.5)
    credit = (2 * rewards - 1)[:, None].expand_as(old).clone()
    credit[0], mask[7] = 0.0, False
    rate = torch.full_like(rewards, 0.6)
    found = [
        gradient(nft_loss, policy, old, credit, mask, weights, rate_B=torch.where(idle, fill, rate))
        for fill in (0.6, math.nan)
        for idle in [(credit * mask == 0).all(-1)]
    ]
    exactly(*found)
    assert (found[0][[0, 7]] == 0).all()


def test_refusals():
    refused = partial(one_token, 1.0, 1.0, 0.5)
    with pytest.raises(ValueError, match=r"unknown omega 'std': choose one of dr_grpo, grpo, one\."):
        refused(omega="std")
    with pytest.raises(ValueError, match=r"negative_weight has to be 0 or more, got -1\.0"):
        refused(negative_weight=-1.0)
    with pytest.raises(ValueError, match=r"epsilon has to be more than 0, got 0\.0"):
        refused(epsilon=0.0)
    for outside in ((0.0, 0.9), (0.1, 1.0), (0.9, 0.1)):
        with pytest.raises(ValueError, match=r"rate_range has to be inside \(0, 1\)"):
            refused(rate_range=outside)
