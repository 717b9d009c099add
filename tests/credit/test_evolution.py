"""AgentEvol's weights and merges, by numbers that a reader can redo."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import inf, log, nan

import pytest
import torch

from whet.methods.rounds import episode_weights, merged, num_remembered
from whet.objectives import weighted_nll


def weights(rewards, *, weighting="binary", keep="all", above=0.99, scale=1.0):
    def score(reward):
        return min(1.0, max(0.0, reward / scale))

    return episode_weights(rewards, weighting=weighting, keep=keep, above=above, score=score)


@pytest.mark.parametrize(
    ("rewards", "above", "kept"),
    [
        ([0.99], 0.99, [0]),  # equal is not above
        ([1.0, 0.0, 1.0], 0.99, [1, 0, 1]),
        ([99.0, 100.0], 99.0, [0, 1]),
        ([0.0, 0.2], 0.0, [0, 1]),
        ([None, 1.0], 0.99, [0, 1]),  # a fault is no reward
        ([None], -inf, [0]),
        ([nan], 0.0, [0]),
        ([-3.0], -4.0, [1]),
    ],
)
def test_an_episode_is_kept_where_its_reward_is_strictly_above(rewards, above, kept):
    assert weights(rewards, above=above) == kept


@pytest.mark.parametrize(
    ("keep", "expected"), [("first", [0, 0.2, 0, 0, 0]), ("best", [0, 0, 0.9, 0, 0]), ("all", [0, 0.2, 0.9, 0.9, 0])]
)
def test_what_is_kept_of_an_item(keep, expected):
    assert weights([-1.0, 0.2, 0.9, 0.9, None], weighting="reward", keep=keep) == expected


def test_the_best_of_those_above_the_threshold_is_the_first_of_equals():
    assert weights([1.0, 2.0, 2.0], keep="best") == [0, 1, 0]
    assert weights([-2.0, -1.0], keep="best", above=-5) == [0, 1]


def test_a_reward_weighs_as_its_score():
    assert weights([60.0, -100.0, 100.0, 200.0], weighting="reward", scale=100) == [0.6, 0, 1, 1]
    assert weights([0.2], weighting="reward") == [0.2]


def test_normalised_weights_of_an_item_add_up_to_one():
    assert weights([1.0, None, 0.5, 0.0, 0.5], weighting="self_normalised") == [0.5, 0, 0.25, 0, 0.25]
    assert weights([0.0, None], weighting="self_normalised") == [0, 0]


def test_without_a_normaliser_easy_items_count_more():
    easy, hard = [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]
    assert [sum(weights(each, weighting="reward")) for each in (easy, hard)] == [4, 1]
    assert [sum(weights(each, weighting="self_normalised")) for each in (easy, hard)] == [1, 1]


# --- the exact step, on a policy that is a table of two episodes with the rewards 1 and 1/2 ---------------------------

POLICIES = [(Fraction(2**m, 2**m + 1), Fraction(1, 2**m + 1)) for m in range(5)]
"""(1/2, 1/2), (2/3, 1/3), (4/5, 1/5), (8/9, 1/9), (16/17, 1/17)."""


def sampled(policy):
    """Which episodes are drawn, each as often as it is to be expected."""
    return [0] * policy[0].numerator + [1] * policy[1].numerator


def posterior(drawn, rewards, weighting):
    """Of each episode, its part of all weights: the policy that maximises the weighted likelihood."""
    found = weights([rewards[each] for each in drawn], weighting=weighting)
    return [sum(w for each, w in zip(drawn, found, strict=True) if each == which) / sum(found) for which in (0, 1)]


@pytest.mark.parametrize("weighting", ["reward", "self_normalised"])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_round_is_the_exact_step_of_expectation_maximisation(weighting, scale):
    rewards = (scale, scale / 2)
    for policy, after in pairwise(POLICIES):
        assert posterior(sampled(policy), rewards, weighting) == pytest.approx([float(p) for p in after])


def test_the_expected_reward_never_falls_and_the_bound_is_tight():
    expected = [float(a + b / 2) for a, b in POLICIES]
    assert expected == pytest.approx([0.75, 0.8333, 0.9, 0.9444, 0.9706], abs=5e-5)
    for policy, mean in zip(POLICIES, expected, strict=True):
        q = posterior(sampled(policy), (1.0, 0.5), "self_normalised")
        divergence = sum(each * log(each / p) for each, p in zip(q, policy, strict=True))
        bound = q[0] * log(1.0) + q[1] * log(0.5) - divergence
        assert bound == pytest.approx(log(mean))


@pytest.mark.parametrize("policy", range(4))
def test_the_loss_that_learns_is_least_at_the_next_policy(policy):
    """By its gradient, through the objective that a run's imitation uses."""
    drawn = sampled(POLICIES[policy])
    credit = torch.tensor([weights([(1.0, 0.5)[each] for each in drawn], weighting="reward")]).T
    logits = torch.tensor([float(p) for p in POLICIES[policy + 1]]).log().requires_grad_()
    logprobs = logits.log_softmax(-1)[drawn].unsqueeze(-1)
    loss, _ = weighted_nll(logprobs, credit, torch.ones_like(credit, dtype=torch.bool), torch.ones_like(credit))
    loss.backward()
    torch.testing.assert_close(logits.grad, torch.zeros(2), atol=1e-6, rtol=0)


# --- what a round learns beside its own episodes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merge", "first", "second"),
    [("base", 5, 6), ("previous", 5, 7), ("cumulative", 5, 9), ("none", 3, 4)],
)
def test_how_many_are_merged(merge, first, second):
    base, one, two = ["a", "b"], ["c", "d", "e"], ["f", "g", "h", "i"]
    assert len(merged(base, [one], merge)) == first
    assert len(merged(base, [one, two], merge)) == second
    assert merged(base, [one, two], merge)[-4:] == two


@pytest.mark.parametrize("merge", ["base", "previous", "cumulative", "none"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_what_is_forgotten_is_not_missed(merge, number):
    rounds = [[f"{place}a", f"{place}b"] for place in range(number)]
    first = number - 1 - num_remembered(merge, number)
    forgetful = [each if place >= first else [] for place, each in enumerate(rounds)]
    assert merged(["x"], forgetful, merge) == merged(["x"], rounds, merge)
