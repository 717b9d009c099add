"""Credit and KL: the spec's worked numbers, and laws. The losses are in `test_objectives_losses.py`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import (
    aggregation_weights,
    clipped_policy_loss,
    k1,
    k2,
    k3,
    leave_one_out,
    reward_to_go,
    sequence_credit,
    whiten,
)

NAN = float("nan")
laws = settings(deadline=None, max_examples=50)
floats = st.floats(-5, 5, width=32)
groups = st.integers(2, 6).flatmap(lambda g: st.lists(st.lists(floats, min_size=g, max_size=g), min_size=1, max_size=4))
seeds = st.integers(0, 2**32 - 1)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def a_batch(seed):
    """Float64 values and a mask, [4, 6] both; some rows may train nothing."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    return values.requires_grad_(), torch.rand(4, 6, generator=generator) < 0.6


# -- advantages


@pytest.mark.parametrize(
    ("rewards", "advantages"),
    [
        ([1, 1, -1, 1], [2 / 3, 2 / 3, -2, 2 / 3]),
        ([1, 1, 0, 1], [1 / 3, 1 / 3, -1, 1 / 3]),  # unit rewards: half of the signed ones
        ([1.2, 0.2, -1, 0.2], [1.4, 1 / 15, -23 / 15, 1 / 15]),
        ([1.2, 0.2, 0, 1.0], [0.8, -8 / 15, -0.8, 8 / 15]),
    ],
)
def test_spec_9_3_leave_one_out(rewards, advantages):
    assert_close(leave_one_out(double([rewards])), double([advantages]))


@laws
@given(groups)
def test_spec_9_3_leave_one_out_laws(rewards):
    rewards = double(rewards)
    n = rewards.shape[-1]
    advantages = leave_one_out(rewards)
    assert_close(advantages.sum(-1), torch.zeros(len(rewards), dtype=torch.float64), atol=1e-9, rtol=0)
    assert_close(advantages, n / (n - 1) * (rewards - rewards.mean(-1, keepdim=True)), atol=1e-9, rtol=0)
    for p in range(len(rewards)):
        for g in range(n):
            others = torch.cat([rewards[p, :g], rewards[p, g + 1 :]])
            assert_close(advantages[p, g], rewards[p, g] - others.mean(), atol=1e-9, rtol=0)


@laws
@given(st.floats(-100, 100, width=32), st.integers(2, 9))
def test_spec_9_3_equal_rewards_get_exactly_zero(reward, group_size):
    rewards = torch.full((2, group_size), reward)
    assert (leave_one_out(rewards) == 0).all()
    assert (whiten(leave_one_out(rewards), torch.ones(2, group_size, dtype=torch.bool)) == 0).all()


def test_spec_9_3_lone_and_failed_attempts_are_refused():
    with pytest.raises(ValueError, match="group_size >= 2"):
        leave_one_out(torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"1 of 2 are NaN.*leave it out"):
        leave_one_out(torch.tensor([[1.0, NAN]]))


def test_spec_9_4_reward_to_go():
    kl = double([[0.1, -0.05, 0.2]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    returns = reward_to_go(double([2 / 3]), kl, mask, kl_coef=0.01)
    rewards = double([[-0.001, 0.0005, 2 / 3 - 0.002]])
    assert_close(returns, double([[rewards.sum(), rewards[0, 1:].sum(), rewards[0, 2]]]))
    assert_close(returns, double([[0.6642, 0.6652, 0.6647]]), atol=5e-5, rtol=0)
    assert (reward_to_go(double([2 / 3]), kl, mask, kl_coef=0.0) == 2 / 3).all()


def test_spec_9_4_scalar_lands_on_the_last_trained_token():
    # Two context tokens, a gap, right padding; the second row trains nothing and has no advantage.
    mask = torch.tensor([[0, 0, 1, 0, 1, 0, 0], [0] * 7]).bool()
    kl = torch.where(mask, torch.tensor(0.5), NAN)
    returns = reward_to_go(torch.tensor([3.0, NAN]), kl, mask, kl_coef=0.1)
    assert_close(returns, torch.tensor([[0, 0, 2.9, 0, 2.95, 0, 0], [0] * 7]))


def test_spec_3_1_clamp_comes_before_the_kl():
    mask = torch.ones(3, 1, dtype=torch.bool)
    returns = reward_to_go(torch.tensor([50.0, -50.0, 50.0]), torch.ones(3, 1), mask, kl_coef=1.0)
    assert returns.flatten().tolist() == [9.0, -11.0, 9.0]
    unclamped = reward_to_go(torch.tensor([50.0]), torch.ones(1, 1), mask[:1], kl_coef=1.0, clamp=math.inf)
    assert unclamped.item() == 49.0


@laws
@given(seeds)
def test_spec_3_1_reward_to_go_is_the_slow_obvious_sum(seed):
    kl, mask = a_batch(seed)
    advantages = double([0.5, -1, 12, 0])
    returns = reward_to_go(advantages, kl, mask, kl_coef=0.3)
    for b in range(4):
        for t in range(6):
            later = [kl[b, s].item() for s in range(t, 6) if mask[b, s]]
            expected = min(advantages[b].item(), 10) - 0.3 * sum(later) if mask[b, t] else 0.0
            assert returns[b, t].item() == pytest.approx(expected, abs=1e-9)
    assert not returns.requires_grad  # credit is a number, even where the KL was computed with a graph


def test_spec_3_1_sequence_variant_puts_the_kl_before_the_baseline():
    rewards, kl_sum = double([[1, 0, 1, 1]]), double([[10, 0, 0, 20]])
    assert_close(sequence_credit(rewards, kl_sum, 0.0), leave_one_out(rewards))
    # With the KL inside, the rewards are 0.9, 0, 1, 0.8.
    assert_close(sequence_credit(rewards, kl_sum, 0.01), double([[0.3, -0.9, 1.3 / 3, 0.5 / 3]]))
    equal = sequence_credit(torch.ones(1, 3), torch.full((1, 3), 7.0), 0.01)
    assert (equal == 0).all()


def test_spec_9_5_whitening_is_per_token():
    advantages = double([[2 / 3, 0], [2 / 3, 0], [-2, -2], [2 / 3, 0]])
    mask = torch.tensor([[1, 0], [1, 0], [1, 1], [1, 0]]).bool()
    assert advantages[mask].mean().item() == pytest.approx(-0.4)  # per sequence it would be 0
    assert advantages[mask].var(correction=0).item() == pytest.approx(1.706667, abs=1e-6)
    whitened = whiten(torch.where(mask, advantages, NAN), mask)
    assert_close(whitened[:, 0], double([0.8165, 0.8165, -1.2247, 0.8165]), atol=5e-5, rtol=0)
    assert whitened[2, 1] == whitened[2, 0]
    assert (whitened[~mask] == 0).all()


def test_spec_3_1_whitening_floors_the_variance():
    ones = torch.ones(1, 2, dtype=torch.bool)
    # Deviations of 1e-6: variance 1e-12, so the divisor is sqrt(1e-8), not 1e-6.
    assert_close(whiten(double([[1e-6, -1e-6]]), ones), double([[0.01, -0.01]]))
    sevens = torch.full((1, 8), 0.7)  # their float32 mean is not quite 0.7: naively each would get 6e-4
    assert (whiten(sevens, sevens > 0) == 0).all()
    assert (whiten(torch.full((1, 2), NAN), ~ones) == 0).all()


@laws
@given(seeds)
def test_spec_3_1_whitened_tokens_have_mean_0_and_variance_1(seed):
    values, mask = a_batch(seed)
    mask[0, :2] = True
    trained = whiten(values.detach(), mask)[mask]
    assert trained.mean().item() == pytest.approx(0, abs=1e-9)
    assert trained.var(correction=0).item() == pytest.approx(1)


# -- KL


def test_spec_9_4_kl_estimators():
    ref = double([-1.0, -1.0])
    policy = ref + double([-0.05, 0.1])
    assert_close(k1(policy, ref), double([-0.05, 0.1]))
    assert_close(k2(policy, ref), double([0.00125, 0.005]))
    assert_close(k3(policy, ref), double([math.exp(0.05) - 1.05, math.exp(-0.1) - 0.9]))
    assert_close(k3(policy, ref), double([0.001271, 0.004837]), atol=1e-6, rtol=0)


@laws
@given(st.lists(st.floats(-(2**-9), 2**-9, width=32) | st.floats(-20, 20, width=32), min_size=1))
def test_spec_9_4_k3_is_never_negative(log_ratios):
    assert (k3(torch.tensor(log_ratios), torch.zeros(len(log_ratios))) >= 0).all()


def test_kl_estimators_in_expectation():
    policy_logits = double([0.3, -1.0, 0.5, 0.0]).requires_grad_()
    policy, ref = policy_logits.log_softmax(-1), double([0.0, 0.2, -0.4, 0.1]).log_softmax(-1)
    exact = (policy.exp() * (policy - ref)).sum()
    probs = policy.exp().detach()
    assert_close((probs * k1(policy, ref)).sum(), exact)  # unbiased
    assert_close((probs * k3(policy, ref)).sum(), exact)  # unbiased

    def gradient(value):
        return torch.autograd.grad(value, policy_logits, retain_graph=True)[0]

    assert_close(gradient((probs * k1(policy, ref)).sum()), torch.zeros(4, dtype=torch.float64))
    assert_close(gradient((probs * k2(policy, ref)).sum()), gradient(exact))
    assert_close(gradient((probs * k3(policy, ref)).sum()), gradient((ref.exp() * (ref - policy)).sum()))


# -- the whole path


def test_spec_3_1_from_rewards_to_a_gradient():
    """Four critiques of 9.5, on policy and without KL: the gradient is minus the whitened credit, over n_b * 4."""
    rewards = double([[1, 1, -1, 1]])
    mask = torch.tensor([[1, 0], [1, 0], [1, 1], [1, 0]]).bool()
    zeros = torch.zeros(4, 2, dtype=torch.float64)
    credit = whiten(reward_to_go(leave_one_out(rewards).flatten(), zeros, mask, kl_coef=0.01), mask)
    logprobs = zeros.clone().requires_grad_()
    weights = aggregation_weights(mask.sum(-1), torch.ones(4), "sequence_mean")[:, None]
    loss, _ = clipped_policy_loss(logprobs, zeros, credit, mask, weights, low=0.8, high=1.2)
    loss.backward()
    good, bad = -0.8165 / 4, 1.2247 / 8
    assert_close(logprobs.grad, double([[good, 0], [good, 0], [bad, bad], [good, 0]]), atol=2e-5, rtol=0)
