"""Policy losses and aggregation: the spec's worked numbers, gradients by hand and by finite differences, and laws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import aggregation_weights, clipped_policy_loss, weighted_nll

NAN = float("nan")
laws = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32 - 1)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def a_batch(seed, num_rows=4, num_tokens=6):
    """Policy, old logprobs, advantages, mask: float64, ratios on both sides of the clip, some rows maybe untrained."""
    generator = torch.Generator().manual_seed(seed)
    old, shift, advantages = torch.randn(3, num_rows, num_tokens, generator=generator, dtype=torch.float64)
    mask = torch.rand(num_rows, num_tokens, generator=generator) < 0.6
    return (old - 2 + 0.4 * shift).requires_grad_(), old - 2, advantages, mask


def row_weights(mask, mode="sequence_mean", **options):
    counts = mask.sum(-1)
    return aggregation_weights(counts, torch.ones(len(counts), dtype=torch.float64), mode, **options)[:, None]


# -- policy losses


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.5, 1.0, -1.2, 0.0, "high"),  # a good token past the upper clip: no more push
        (1.5, -1.0, 1.5, 1.5, None),  # a bad token that grew likelier is always pushed down
        (0.5, 1.0, -0.5, -0.5, None),  # a good token that grew unlikelier is always pushed up
        (0.5, -1.0, 0.8, 0.0, "low"),  # a bad token past the lower clip: no more push
        (1.0, 2.0, -2.0, -2.0, None),  # on policy: plain policy gradient
        (1.0, -3.0, 3.0, 3.0, None),
    ],
)
def test_spec_9_6_clipped_loss_by_hand(ratio, advantage, loss, gradient, clipped):
    logprobs = double([[ratio]]).log().requires_grad_()
    ones = torch.ones(1, 1, dtype=torch.bool)
    zeros = torch.zeros(1, 1, dtype=torch.float64)
    got, metrics = clipped_policy_loss(logprobs, zeros, double([[advantage]]), ones, ones, low=0.8, high=1.2)
    got.backward()
    assert (got.item(), logprobs.grad.item()) == pytest.approx((loss, gradient))
    assert metrics["num_clipped_low"] == (clipped == "low")
    assert metrics["num_clipped_high"] == (clipped == "high")
    assert metrics["approx_kl_sum"].item() == pytest.approx(ratio - 1 - math.log(ratio))
    assert metrics["ratio_sum"].item() == metrics["ratio_max"].item() == pytest.approx(ratio)


def test_spec_9_6_mean_over_tokens_then_over_sequences():
    # On policy the token losses are -A: (1 + 2 + 3) / 3 = 2 and 6, so the mean over sequences is 4; over tokens 3.
    advantages = double([[-1, -2, -3], [-6, NAN, NAN]])
    mask = ~advantages.isnan()
    logprobs = torch.zeros_like(advantages)
    for mode, expected in (("sequence_mean", 4.0), ("token_mean", 3.0), ("constant", 12 / 2 / 8)):
        weights = row_weights(mask, mode, constant_length=8)
        loss, _ = clipped_policy_loss(logprobs, logprobs, advantages, mask, weights, low=0.8, high=1.2)
        assert loss.item() == pytest.approx(expected), mode


def test_asymmetric_clip_bounds():
    ratio, ones = double([[1.25, 0.75, 1.25, 0.75]]), torch.ones(1, 4, dtype=torch.bool)
    advantages = double([[1, -1, -1, 1]])
    loss, metrics = clipped_policy_loss(
        ratio.log(), torch.zeros_like(ratio), advantages, ones, ones, low=0.9, high=1.28
    )
    assert loss.item() == pytest.approx(-1.25 + 0.9 + 1.25 - 0.75)
    assert (metrics["num_clipped_low"], metrics["num_clipped_high"], metrics["num_tokens"]) == (1, 0, 4)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_match_finite_differences(seed):
    policy, old, advantages, mask = a_batch(seed)
    weights = row_weights(mask)

    def clipped(logprobs):
        return clipped_policy_loss(logprobs, old, advantages, mask, weights, low=0.8, high=1.28)[0]

    assert torch.autograd.gradcheck(clipped, policy)
    assert torch.autograd.gradcheck(lambda logprobs: weighted_nll(logprobs, advantages, mask, weights)[0], policy)


def test_old_logprobs_and_advantages_carry_no_gradient():
    policy, _, advantages, mask = a_batch(0)
    mask[:] = True
    advantages.requires_grad_()
    ones = torch.ones_like(policy)
    # On policy, as callers may pass it: the very same tensor, graph included.
    loss, _ = clipped_policy_loss(policy, policy, advantages, mask, ones, low=0.8, high=1.2)
    loss.backward()
    assert_close(policy.grad, -advantages.detach())
    assert advantages.grad is None


def test_a_ratio_that_overflows_gives_no_nan():
    policy = torch.tensor([[500.0, 500.0, 500.0, -500.0]], requires_grad=True)
    ones = torch.ones(1, 4, dtype=torch.bool)
    advantages = torch.tensor([[1.0, 0.0, -1.0, 1.0]])
    loss, metrics = clipped_policy_loss(policy, torch.zeros(1, 4), advantages, ones, ones, low=0.8, high=1.2)
    loss.backward()
    assert loss.isfinite()
    assert policy.grad.isfinite().all()
    assert all(value.isfinite() for value in metrics.values())


@laws
@given(seeds)
def test_masked_tokens_change_nothing_even_nan(seed):
    policy, old, advantages, mask = a_batch(seed)
    weights = row_weights(mask).expand(mask.shape)

    def results(fill):
        def spoilt(x):
            return torch.where(mask, x.detach(), fill)

        logprobs = spoilt(policy).requires_grad_()
        rest = (spoilt(old), spoilt(advantages), mask, spoilt(weights))
        loss, metrics = clipped_policy_loss(logprobs, *rest, low=0.8, high=1.2)
        nll, nll_metrics = weighted_nll(logprobs, *rest[1:])
        (loss + nll).backward()
        return [loss, nll, logprobs.grad, *metrics.values(), *nll_metrics.values()]

    reference = results(0.0)
    assert (reference[2][~mask] == 0).all()
    for fill in (NAN, math.inf, -math.inf, 1e9):
        assert_close(results(fill), reference, rtol=0, atol=0)


@laws
@given(seeds, st.sampled_from(["token_mean", "sequence_mean", "constant"]), st.integers(1, 3))
def test_split_batches_add_up(seed, mode, cut):
    policy, old, advantages, mask = a_batch(seed)
    weights = row_weights(mask, mode, constant_length=9)

    def pieces(*cuts):
        losses, all_metrics = [], []
        for rows in cuts:
            arguments = [x[rows] for x in (policy, old, advantages, mask, weights)]
            loss, metrics = clipped_policy_loss(*arguments, low=0.8, high=1.2)
            nll, _ = weighted_nll(arguments[0], *arguments[2:])
            losses.append(loss + nll)
            all_metrics.append({name: value for name, value in metrics.items() if not name.endswith("_max")})
        total = sum(losses)
        summed = {name: sum(metrics[name] for metrics in all_metrics) for name in all_metrics[0]}
        return [total, *torch.autograd.grad(total, policy), *summed.values()]

    assert_close(pieces(slice(0, cut), slice(cut, None)), pieces(slice(None)))


def test_weighted_nll_by_hand():
    logprobs = double([[-1.0, -2.0, NAN]]).requires_grad_()
    mask = torch.tensor([[True, True, False]])
    loss, metrics = weighted_nll(logprobs, double([[1.0, -0.5, NAN]]), mask, double([[0.5]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (1.0 - 1.0))
    assert_close(logprobs.grad, double([[-0.5, 0.25, 0.0]]))
    assert {name: value.item() for name, value in metrics.items()} == {
        "num_tokens": 2, "nll_sum": 3.0, "weight_sum": 0.5,
    }  # fmt: skip


# -- aggregation


def test_aggregation_weights_by_hand():
    counts, weights = torch.tensor([1, 3, 0]), double([1.0, 0.5, 7.0])
    assert_close(aggregation_weights(counts, weights, "token_mean"), double([1 / 4, 0.5 / 4, 0]))
    assert_close(aggregation_weights(counts, weights, "sequence_mean"), double([1 / 2, 0.5 / 6, 0]))
    assert_close(aggregation_weights(counts, weights, "constant", constant_length=10), double([1 / 20, 0.5 / 20, 0]))


@laws
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_aggregation_weights_average(counts):
    counts = torch.tensor(counts)
    ones = torch.ones(len(counts), dtype=torch.float64)
    whole = 1.0 if counts.any() else 0.0  # a loss of 1 on every token has mean 1
    for mode in ("token_mean", "sequence_mean"):
        weights = aggregation_weights(counts, ones, mode)
        assert (weights * counts).sum().item() == pytest.approx(whole)
        assert_close(aggregation_weights(counts, ones / 2, mode), weights / 2)
        padded = aggregation_weights(torch.cat([counts, counts[:1] * 0]), torch.cat([ones, ones[:1]]), mode)
        assert_close(padded[:-1], weights)  # a row that trains nothing changes nothing


def test_aggregation_refuses_what_it_cannot_do():
    counts, weights = torch.tensor([1]), torch.ones(1)
    with pytest.raises(ValueError, match="constant_length >= 1, got None"):
        aggregation_weights(counts, weights, "constant")
    with pytest.raises(ValueError, match="token_mean, sequence_mean, constant"):
        aggregation_weights(counts, weights, "mean")
