"""Credit of every estimator of the BAPO spec (F7), GAE, and the losses beside the policy's: value and KL."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import (
    aggregation_weights,
    balanced_bounds,
    gae,
    group_advantages,
    kl_loss,
    leave_one_out,
    reward_to_go,
    value_loss,
    whiten,
)

NAN = math.nan
laws = settings(max_examples=50)
seeds = st.integers(0, 2**32 - 1)
groups = st.integers(2, 6).flatmap(lambda g: st.lists(st.lists(st.integers(-8, 8), min_size=g, max_size=g), min_size=1))


def double(values):
    return torch.tensor(values, dtype=torch.float64)


# -- F7: one group with rewards 1, 0, 0, 0 and 3, 5, 4, 6 tokens

REWARDS = double([[1.0, 0.0, 0.0, 0.0]])
LENGTHS = torch.tensor([3, 5, 4, 6])
MASK = torch.arange(6) < LENGTHS[:, None]


def whitened(advantages_G, correction):
    """REINFORCE++: the bare reward at each token, whitened over the tokens of the batch."""
    returns = reward_to_go(advantages_G, torch.zeros(4, 6, dtype=torch.float64), MASK, kl_coef=0.0)
    credit = whiten(returns, MASK, correction=correction)
    first = credit[:, 0]
    assert_close(credit, torch.where(MASK, first[:, None], 0.0))  # one credit a sequence
    return first[None]


@pytest.mark.parametrize(
    ("estimate", "good", "bad"),
    [
        (lambda r: group_advantages(r, divide_by_std=True), 1.499997, -0.499999),
        (lambda r: group_advantages(r, divide_by_std=True, eps=1e-4), 1.499700, -0.499900),
        (lambda r: group_advantages(r, divide_by_std=True, correction=0), 1.732047, -0.577349),
        (group_advantages, 0.75, -0.25),
        (leave_one_out, 1.0, -0.333333),
        (lambda r: whitened(r[0], correction=1), 2.173067, -0.434613),
        (lambda r: whitened(r[0], correction=0), 2.236068, -0.447214),
        (lambda r: whitened(group_advantages(r)[0], correction=1), 2.173067, -0.434613),
        (lambda r: whitened(group_advantages(r)[0], correction=0), 2.236068, -0.447214),
    ],
    ids=[
        "GRPO", "GRPO as in TRL", "GRPO biased", "Dr. GRPO", "RLOO", "REINFORCE++ verl", "REINFORCE++ OpenRLHF",
        "with baseline verl", "with baseline OpenRLHF",
    ],
)  # fmt: skip
def test_f7_advantages(estimate, good, bad):
    assert_close(estimate(REWARDS), double([[good, bad, bad, bad]]), atol=6e-7, rtol=0)


def test_f7_longer_bad_answers_outweigh_good_ones():
    advantages = group_advantages(REWARDS)[0][:, None].expand(4, 6)
    zeros = torch.zeros_like(advantages)
    assert balanced_bounds(zeros, zeros, advantages, MASK).start_share == pytest.approx(0.375)


# -- laws of group advantages


@laws
@given(groups)
def test_group_advantages_laws(rewards):
    rewards = double(rewards)
    num_rewards = rewards.shape[1]
    centred = group_advantages(rewards)
    zeros = torch.zeros(len(rewards), dtype=torch.float64)
    assert_close(centred.sum(-1), zeros, atol=1e-9, rtol=0)
    assert_close(leave_one_out(rewards), centred * num_rewards / (num_rewards - 1))
    assert_close(group_advantages(rewards + 3), centred, atol=1e-9, rtol=0)  # only differences within a group count
    equal = rewards.amax(-1) == rewards.amin(-1)
    assert (centred[equal] == 0).all()
    if equal.all():
        return
    for correction in (0, 1):
        scaled = group_advantages(rewards, divide_by_std=True, correction=correction, eps=0.0)[~equal]
        assert_close(scaled.std(-1, correction=correction), torch.ones(len(scaled), dtype=torch.float64))
        again = group_advantages(5 * rewards[~equal], divide_by_std=True, correction=correction, eps=0.0)
        assert_close(again, scaled)  # the scale of rewards is gone


@pytest.mark.parametrize("divide_by_std", [False, True])
def test_equal_rewards_teach_nothing_even_in_float32(divide_by_std):
    for group_size in (2, 3, 7, 8):
        rewards = torch.full((2, group_size), 0.7)  # the float32 mean of eight is not quite 0.7
        assert (group_advantages(rewards, divide_by_std=divide_by_std, eps=1e-9) == 0).all()


def test_group_advantages_refuse_lone_and_failed_attempts():
    with pytest.raises(ValueError, match=r"groups of at least 2 rewards, got 1.*group_size >= 2"):
        group_advantages(torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"1 of 2 are NaN or infinite.*leave it out"):
        group_advantages(torch.tensor([[1.0, math.inf]]))


def test_whitening_with_either_variance():
    values, mask = double([[1.0, 2.0, 6.0, NAN]]), torch.tensor([[True, True, True, False]])
    # Deviations -2, -1, 3: squares add up to 14.
    for correction, divisor in ((0, 3), (1, 2)):
        expected = double([[-2, -1, 3, 0]]) / math.sqrt(14 / divisor)
        assert_close(whiten(values, mask, correction=correction), expected)
    lone = torch.tensor([[False, True, False, False]])
    assert (whiten(values, lone, correction=1) == 0).all()


# -- GAE


def test_gae_by_hand():
    # gamma 0.9, lambda 0.5, so gamma * lambda = 0.45. From the end:
    #   delta_2 = 1   + 0         - 0.6 =  0.4    A_2 = 0.4
    #   delta_1 = 0   + 0.9 * 0.6 - 0.5 =  0.04   A_1 = 0.04  + 0.45 * 0.4  =  0.22
    #   delta_0 = 0.1 + 0.9 * 0.5 - 0.8 = -0.25   A_0 = -0.25 + 0.45 * 0.22 = -0.151
    rewards, values = double([[0.1, 0.0, 1.0]]), double([[0.8, 0.5, 0.6]])
    advantages, returns = gae(rewards, values, torch.ones(1, 3).bool(), gamma=0.9, gae_lambda=0.5)
    assert_close(advantages, double([[-0.151, 0.22, 0.4]]))
    assert_close(returns, double([[0.649, 0.72, 1.0]]))


def test_gae_skips_what_is_masked():
    # The same three tokens with context before, a tool's output between and padding after; a row that trains nothing.
    mask = torch.tensor([[0, 1, 0, 0, 1, 1, 0], [0] * 7]).bool()
    rewards, values = torch.full((2, 7), NAN, dtype=torch.float64), torch.full((2, 7), math.inf, dtype=torch.float64)
    rewards[mask], values[mask] = double([0.1, 0.0, 1.0]), double([0.8, 0.5, 0.6])
    advantages, returns = gae(rewards, values, mask, gamma=0.9, gae_lambda=0.5)
    assert_close(advantages[mask], double([-0.151, 0.22, 0.4]))
    assert_close(returns[mask], double([0.649, 0.72, 1.0]))
    assert (advantages[~mask] == 0).all()
    assert (returns[~mask] == 0).all()


def a_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    first, second, third, weights = torch.randn(4, 4, 6, generator=generator, dtype=torch.float64)
    return first, second, third, torch.rand(4, 6, generator=generator) < 0.6, weights.abs()


@laws
@given(seeds, st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_slow_obvious_sum(seed, gamma, gae_lambda):
    rewards, values, _, mask, _ = a_batch(seed)
    advantages, returns = gae(rewards, values.requires_grad_(), mask, gamma=gamma, gae_lambda=gae_lambda)
    assert not advantages.requires_grad
    assert not returns.requires_grad
    for b in range(4):
        r, v = rewards[b, mask[b]].tolist(), [*values[b, mask[b]].tolist(), 0.0]
        delta = [r[t] + gamma * v[t + 1] - v[t] for t in range(len(r))]
        expected = [
            sum((gamma * gae_lambda) ** (s - t) * delta[s] for s in range(t, len(delta))) for t in range(len(delta))
        ]
        assert advantages[b, mask[b]].tolist() == pytest.approx(expected)
        assert returns[b, mask[b]].tolist() == pytest.approx([a + x for a, x in zip(expected, v, strict=False)])


@laws
@given(seeds)
def test_gae_at_its_two_ends(seed):
    rewards, values, _, mask, _ = a_batch(seed)
    # gamma = lambda = 1: what is still to come, minus the value; without a value model that is reward_to_go.
    advantages, returns = gae(rewards, values, mask, gamma=1.0, gae_lambda=1.0)
    to_come = reward_to_go(torch.zeros(4, dtype=torch.float64), rewards, mask, kl_coef=-1.0)
    assert_close(returns, to_come)
    assert_close(advantages, torch.where(mask, to_come - values, 0.0))
    # lambda = 0: one reward, and the next token's value for the rest.
    one_step, returns = gae(rewards, values, mask, gamma=0.5, gae_lambda=0.0)
    following = torch.zeros_like(values)
    for b in range(4):
        places = mask[b].nonzero().flatten()
        following[b, places[:-1]] = values[b, places[1:]]
    assert_close(one_step, torch.where(mask, rewards + 0.5 * following - values, 0.0))
    assert_close(returns, torch.where(mask, rewards + 0.5 * following, 0.0))


# -- spec 9.3 of agents: a turn of two tokens, one that the environment wrote, a second turn, and the environment's end

TURNS = torch.tensor([[1, 1, 0, 1, 1, 0]]).bool()
VALUES = double([[0.1, 0.2, 0.9, 0.3, 0.4, 0.8]])


def rewarded(place):
    return torch.eye(6, dtype=torch.float64)[None, place]


def published_gae(rewards_BT, values_BT, mask_BT):
    """gamma = lambda = 1 as the code of AgentGym-RL has it, by what the spec tells of it. What was summed so far is
    kept over masked tokens, and rewards there are lost; a token goes on from the value after it, whoever wrote that."""
    advantages_BT, running_B, next_value_B = torch.zeros_like(values_BT), 0.0, 0.0
    for t in reversed(range(values_BT.shape[1])):
        delta_B = rewards_BT[:, t] + next_value_B - values_BT[:, t]
        running_B = torch.where(mask_BT[:, t], delta_B + running_B, running_B)
        next_value_B = values_BT[:, t]
        advantages_BT[:, t] = torch.where(mask_BT[:, t], running_B, 0.0)
    return advantages_BT


def published_returns(rewards_BT, mask_BT, gamma):
    """REINFORCE++'s by the same code, before they are whitened: what was summed so far is kept over masked tokens."""
    returns_BT, running_B = torch.zeros_like(rewards_BT), torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        running_B = torch.where(mask_BT[:, t], rewards_BT[:, t] + gamma * running_B, running_B)
        returns_BT[:, t] = torch.where(mask_BT[:, t], running_B, 0.0)
    return returns_BT


def test_spec_9_3_gae_goes_on_from_the_next_agent_token():
    advantages, returns = gae(rewarded(4), VALUES, TURNS, gamma=1.0, gae_lambda=1.0)
    assert_close(advantages, double([[0.9, 0.8, 0, 0.7, 0.6, 0]]))  # 1 - value
    assert_close(returns, double([[1, 1, 0, 1, 1, 0]]))
    for other in (-7.0, math.inf, NAN):
        with_other, _ = gae(rewarded(4), torch.where(TURNS, VALUES, other), TURNS, gamma=1.0, gae_lambda=1.0)
        assert_close(with_other, advantages, atol=0, rtol=0)


def test_spec_9_3_the_published_gae_goes_on_from_what_the_environment_wrote():
    # From the end: A_4 = 1 + 0.8 - 0.4, A_3 = 0.4 - 0.3 + A_4, A_1 = 0.9 - 0.2 + A_3, A_0 = 0.2 - 0.1 + A_1.
    assert_close(published_gae(rewarded(4), VALUES, TURNS), double([[2.3, 2.2, 0, 1.5, 1.4, 0]]))
    # An episode of one turn that nothing follows is the same by both.
    one, everywhere = (rewarded(5), VALUES, torch.ones_like(TURNS)), double([[0.9, 0.8, 0.1, 0.7, 0.6, 0.2]])
    assert_close(published_gae(*one), everywhere)
    assert_close(gae(*one, gamma=1.0, gae_lambda=1.0)[0], everywhere)


def test_spec_9_3_a_reward_on_the_environments_last_token_is_lost():
    """Where the published code puts it. Ours lies on the last agent token: `tests/methods/agent/test_turns.py`."""
    published = published_gae(rewarded(5), VALUES, TURNS)
    assert_close(published, double([[1.3, 1.2, 0, 0.5, 0.4, 0]]))
    assert_close(published, published_gae(torch.zeros_like(VALUES), VALUES, TURNS), atol=0, rtol=0)
    assert (published_returns(rewarded(5), TURNS, 1.0) == 0).all()


@pytest.mark.parametrize(("gamma", "expected"), [(1.0, [1, 1, 0, 1, 1, 0]), (0.5, [0.125, 0.25, 0, 0.5, 1, 0])])
def test_spec_9_3_only_agent_tokens_discount(gamma, expected):
    """Our REINFORCE++ has no discount of tokens. GAE has one, and where all values are 0 it sums the same rewards."""
    assert_close(published_returns(rewarded(4), TURNS, gamma), double([expected]))
    summed, _ = gae(rewarded(4), torch.zeros_like(VALUES), TURNS, gamma=gamma, gae_lambda=1.0)
    assert_close(summed, double([expected]))


# -- the value model's loss


@pytest.mark.parametrize(
    ("value", "target", "loss", "gradient", "clipped"),
    [
        (0.3, 1.0, 0.245, -0.7, 0),  # within the clip of 0.5 around an old value of 0: the squared error
        (0.8, 1.0, 0.125, 0.0, 1),  # came closer than the clip allows: as if it stood at 0.5
        (0.8, -1.0, 1.62, 1.8, 0),  # went the wrong way: the larger error counts, and pulls
        (0.8, 0.6, 0.02, 0.2, 0),  # overshot by more than 0.5 falls short: pulled back
        (-0.8, -2.0, 1.125, 0.0, 1),
    ],
)
def test_value_loss_by_hand(value, target, loss, gradient, clipped):
    values, ones = double([[value]]).requires_grad_(), torch.ones(1, 1, dtype=torch.float64)
    got, metrics = value_loss(values, 0 * ones, target * ones, ones.bool(), ones, clip=0.5)
    got.backward()
    assert (got.item(), values.grad.item()) == pytest.approx((loss, gradient))
    assert metrics["num_value_clipped"] == clipped
    assert metrics["value_error_sum"].item() == pytest.approx((value - target) ** 2)
    plain, _ = value_loss(values, 0 * ones, target * ones, ones.bool(), ones, clip=None)
    assert plain.item() == pytest.approx((value - target) ** 2 / 2)


def test_value_loss_reduces_as_the_policys():
    values, returns = double([[1.0, 2.0, NAN], [4.0, 0.0, 0.0]]), double([[0.0, 0.0, NAN], [1.0, 1.0, 0.0]])
    mask = ~values.isnan()
    weights = aggregation_weights(mask.sum(-1), torch.ones(2, dtype=torch.float64), "sequence_mean")[:, None]
    loss, metrics = value_loss(values, values, returns, mask, weights)
    assert loss.item() == pytest.approx(((1 + 4) / 2 + (9 + 1 + 0) / 3) / 2 / 2)
    assert {name: value.item() for name, value in metrics.items()} == {
        "num_tokens": 5, "value_error_sum": 15.0, "value_sum": 7.0, "return_sum": 2.0, "num_value_clipped": 0,
    }  # fmt: skip


@laws
@given(seeds)
def test_a_value_within_the_clip_is_not_counted_as_clipped(seed):
    # Old + (new - old) is not always new: a clip by differences would count one value in eight.
    values, old, returns, mask, weights = a_batch(seed)
    _, metrics = value_loss(values, old * 0.01, returns, mask, weights, clip=100.0)
    assert metrics["num_value_clipped"] == 0


# -- a KL term in the loss


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [  # policy 0.2 above the reference, so r = ref / policy = exp(-0.2)
        ("k1", 0.2, 1.0),
        ("k2", 0.02, 0.2),
        ("k3", math.exp(-0.2) - 1 + 0.2, 1 - math.exp(-0.2)),
    ],
)
def test_kl_loss_by_hand(estimator, value, gradient):
    policy = double([[-1.0, -2.0, NAN], [-1.0, -1.0, -1.0]]).requires_grad_()
    ref = (policy.detach() - 0.2).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss, metrics = kl_loss(policy, ref, mask, double([[0.5], [2.0]]), estimator=estimator)
    loss.backward()
    assert loss.item() == pytest.approx((0.5 * 2 + 2.0) * value)
    assert_close(policy.grad, gradient * double([[0.5, 0.5, 0.0], [2.0, 0.0, 0.0]]))
    assert ref.grad is None
    assert metrics["kl_ref_sum"].item() == pytest.approx(3 * value)


def test_kl_loss_is_k2_unless_told():
    policy, ref, _, mask, weights = a_batch(0)
    assert kl_loss(policy, ref, mask, weights)[0] == kl_loss(policy, ref, mask, weights, estimator="k2")[0]
