"""The Entropy-Clip Rule against the exact change of a softmax's entropy (F8), and the diagnostics of an update."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import (
    GRADIENT_RULE,
    PAPER_RULE,
    Range,
    balanced_bounds,
    clipped_policy_loss,
    gspo_loss,
    predicted_entropy_change,
    sampled_entropy_change,
    update_diagnostics,
)

laws = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32 - 1)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def entropy(logits):
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


# -- F8

LOGPROBS = double([0.6, 0.25, 0.1, 0.05]).log()
ADVANTAGES = double([-0.5, 0.4, 1.0, 2.0])
ETA = 1e-3


def logit_steps(logprobs, advantages, survives):
    """`A X + C` of proposition 1."""
    clipped = (logprobs.exp() * advantages * ~survives).sum()
    return advantages * survives + clipped, clipped


@pytest.mark.parametrize(
    ("survives", "constant", "exact_vanilla", "vanilla", "exact_natural", "natural"),
    [
        ([1, 1, 1, 1], 0.0, 1.253350e-4, 1.253492e-4, 5.151960e-4, 5.152135e-4),
        ([1, 1, 0, 1], 0.1, 0.978084e-4, 0.978196e-4, 3.882793e-4, 3.882664e-4),
        ([1, 1, 1, 0], 0.1, 1.006892e-4, 1.007013e-4, 3.188749e-4, 3.189517e-4),
    ],
)
def test_f8_predicted_and_exact_change(survives, constant, exact_vanilla, vanilla, exact_natural, natural):
    survives = torch.tensor(survives).bool()
    steps, clipped = logit_steps(LOGPROBS, ADVANTAGES, survives)
    assert clipped.item() == pytest.approx(constant)
    before = entropy(LOGPROBS)
    assert before.item() == pytest.approx(1.033114, abs=6e-7)
    exact = {
        False: entropy(LOGPROBS + ETA * LOGPROBS.exp() * steps) - before,
        True: entropy(LOGPROBS + ETA * steps) - before,
    }
    for is_natural, exact_value, predicted in ((False, exact_vanilla, vanilla), (True, exact_natural, natural)):
        got = predicted_entropy_change(LOGPROBS, ADVANTAGES, survives, step_size=ETA, natural=is_natural)
        assert exact[is_natural].item() == pytest.approx(exact_value, abs=6e-11)
        assert got.item() == pytest.approx(predicted, abs=6e-11)


def test_f8_the_clipped_token_has_a_term_of_its_own():
    survives = torch.tensor([True, True, False, True])
    steps, _ = logit_steps(LOGPROBS, ADVANTAGES, survives)
    probs = LOGPROBS.exp()
    terms = -ETA * probs * (LOGPROBS + entropy(LOGPROBS)) * (steps - (probs * steps).sum())
    assert_close(terms, double([1.25e-4, 0.44e-4, 0.13e-4, 2.06e-4]), atol=6e-7, rtol=0)
    assert_close(terms.sum(), predicted_entropy_change(LOGPROBS, ADVANTAGES, survives, step_size=ETA))


def test_f8_clipping_unlikely_good_tokens_lowers_the_gain():
    everything = torch.ones(4, dtype=torch.bool)
    without = torch.stack([everything, everything & (ADVANTAGES != 1.0), everything & (ADVANTAGES != 2.0)])
    for natural in (True, False):  # three prefixes at once
        changes = predicted_entropy_change(
            LOGPROBS.expand(3, 4), ADVANTAGES.expand(3, 4), without, step_size=ETA, natural=natural
        )
        assert changes.shape == (3,)
        assert changes[0] > changes[1:].max()


# -- laws


def a_policy(seed, size=6):
    """Logprobs, advantages of mean 0 under them, survivors."""
    generator = torch.Generator().manual_seed(seed)
    logits, advantages = torch.randn(2, size, generator=generator, dtype=torch.float64)
    logprobs = logits.log_softmax(-1)
    return logprobs, advantages - (logprobs.exp() * advantages).sum(), torch.rand(size, generator=generator) < 0.7


@laws
@given(seeds, st.booleans())
def test_prediction_is_the_derivative_of_the_entropy(seed, natural):
    logprobs, advantages, survives = a_policy(seed)
    steps, _ = logit_steps(logprobs, advantages, survives)
    direction = steps if natural else logprobs.exp() * steps
    logits = logprobs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(entropy(logits), logits)
    predicted = predicted_entropy_change(logprobs, advantages, survives, step_size=0.5, natural=natural)
    assert_close(predicted, 0.5 * (slope * direction).sum())


@laws
@given(seeds)
def test_sampled_change_is_the_prediction_in_expectation(seed):
    logprobs, advantages, survives = a_policy(seed)
    entropies = entropy(logprobs).expand_as(logprobs)
    one_token_each = torch.stack([
        sampled_entropy_change(logprobs[y, None], entropies[y, None], (advantages * survives)[y, None])
        for y in range(len(logprobs))
    ])  # fmt: skip
    expected = (logprobs.exp() * one_token_each).sum()
    assert_close(expected, predicted_entropy_change(logprobs, advantages, survives, step_size=1.0))
    # Sampled by another policy, with the ratio in the push, it is the same.
    behaviour = a_policy(seed + 1)[0]
    pushes = (logprobs - behaviour).exp() * advantages * survives
    by_ratio = (behaviour.exp() * -(logprobs + entropies) * pushes).sum()
    assert_close(by_ratio, expected)
    drawn = torch.tensor([0, 0, 3, 5])
    got = sampled_entropy_change(logprobs[drawn], entropies[drawn], (advantages * survives)[drawn])
    assert_close(got, one_token_each[drawn].mean())


@pytest.mark.parametrize(
    ("token", "advantage", "raises"),
    [  # the table of spec 1.2; likely: above exp(-H) = 0.355897, as the first token alone is
        (0, 1.0, False),
        (0, -1.0, True),
        (3, 1.0, True),
        (3, -1.0, False),
    ],
)
def test_signs_of_one_tokens_effect(token, advantage, raises):
    before = entropy(LOGPROBS)
    push = torch.zeros(4, dtype=torch.float64)
    push[token] = advantage
    change = sampled_entropy_change(LOGPROBS[token, None], before[None], push[token, None])
    assert (change > 0) == raises
    # Times the token's probability that is the exact effect of pushing this one logit.
    assert_close((entropy(LOGPROBS + 1e-7 * push) - before) / 1e-7, LOGPROBS[token].exp() * change, atol=1e-6, rtol=0)


def test_impossible_tokens_take_no_part():
    padded = torch.cat([LOGPROBS, double([-math.inf])])
    survives = torch.tensor([True, True, False, True, True])
    for natural in (True, False):
        options = {"step_size": ETA, "natural": natural}
        got = predicted_entropy_change(padded, torch.cat([ADVANTAGES, double([3.0])]), survives, **options)
        assert_close(got, predicted_entropy_change(LOGPROBS, ADVANTAGES, survives[:4], **options))


# -- diagnostics: batch S of the spec's 6.1

RATIO = [0.92, 1.31, 1.72, 2.43, 0.33, 0.66, 0.77, 0.96, 1.04, 1.07]
CREDIT = [1.0] * 4 + [-1.0] * 6
OLD = double([-0.10, -1.20, -1.60, -2.30, -3.00, -1.10, -0.90, -0.05, -0.20, -0.30])


def pushes_of(policy, old, credit, **settings):
    """Minus the derivative of the clipped loss by each token's logprob."""
    policy = policy.clone().requires_grad_()
    everything = torch.ones_like(old, dtype=torch.bool)
    loss, _ = clipped_policy_loss(policy, old, credit, everything, torch.ones_like(old), **settings)
    return -torch.autograd.grad(loss, policy)[0]


def diagnose(low, high, credit=CREDIT, dual=None):
    policy, credit = OLD + double(RATIO).log(), double(credit)
    pushes = pushes_of(policy, OLD, credit, low=low, high=high, dual=dual)
    entropies = torch.full_like(OLD, 1.5)
    return update_diagnostics(policy, OLD, credit, entropies, pushes, low=low, high=high, dual=dual)


def test_update_diagnostics_by_hand():
    found = diagnose(0.6, 1.2)
    survivors = [(0, 0.92), (5, -0.66), (6, -0.77), (7, -0.96), (8, -1.04), (9, -1.07)]
    expected = {
        "balance/share_raw": 6.38 / (6.38 + 4.83),
        "balance/share": 0.469854,  # F2
        "balance/share_gradient": 0.169742,  # F2
        "balance/tokens_positive": 0.4,
        "clip/let_in_positive": 0.0,
        "clip/let_in_negative": 0.2,  # the ratios 0.66 and 0.77, which 0.8 would stop
        "clip/let_in_negative_probability": (math.exp(-1.10) + math.exp(-0.90)) / 2,
        "clip/shut_out": 0.0,
        "ratio/q01": 0.33,
        "ratio/q10": 0.66,
        "ratio/q50": 1.04,
        "ratio/q90": 2.43,
        "ratio/q99": 2.43,
        "ratio/effective_samples": 11.21**2 / sum(r * r for r in RATIO) / 10,
        "entropy/predicted": -sum((OLD[i].item() + math.log(RATIO[i]) + 1.5) * push for i, push in survivors) / 10,
    }
    assert found == pytest.approx(expected, abs=6e-7)


def test_update_diagnostics_of_other_bounds():
    wide = diagnose(0.9, 2.0)
    assert wide["clip/let_in_positive"] == pytest.approx(0.2)  # 1.31 and 1.72
    assert wide["clip/let_in_positive_probability"] == pytest.approx((math.exp(-1.20) + math.exp(-1.60)) / 2)
    assert wide["clip/let_in_negative"] == 0
    assert "clip/let_in_negative_probability" not in wide
    assert diagnose(0.98, 1.2)["clip/shut_out"] == pytest.approx(0.1)  # 0.96
    none = diagnose(0.0, math.inf)
    assert none["balance/share"] == none["balance/share_gradient"] == none["balance/share_raw"]
    assert (none["clip/let_in_positive"], none["clip/let_in_negative"]) == pytest.approx((0.3, 0.3))


def test_update_diagnostics_leave_out_what_has_no_value():
    nothing = torch.zeros(0)
    assert update_diagnostics(nothing, nothing, nothing, nothing, nothing, low=0.8, high=1.2) == {}
    without_credit = diagnose(0.8, 1.2, credit=[0.0] * 10)
    assert not any(name.startswith("balance/") for name in without_credit)
    assert without_credit["entropy/predicted"] == 0
    assert without_credit["ratio/q50"] == pytest.approx(1.04)
    assert all(math.isfinite(value) for value in without_credit.values())
    one_sided = diagnose(0.8, 1.2, credit=[-1.0] * 10)
    assert (one_sided["balance/share"], one_sided["balance/tokens_positive"]) == (0, 0)


@laws
@given(seeds)
def test_diagnostics_agree_with_the_bound_search(seed):
    generator = torch.Generator().manual_seed(seed)
    shift, old, credit = torch.randn(3, 15, generator=generator, dtype=torch.float64)
    pushes = pushes_of(old + 0.5 * shift, old, credit, low=0.7, high=1.3)
    found = update_diagnostics(old + 0.5 * shift, old, credit, torch.ones_like(old), pushes, low=0.7, high=1.3)
    frozen = {"low": Range(start=0.7, ceiling=0.7, step=0.0), "high": Range(start=1.3, ceiling=1.3, step=0.0)}
    for rule, name in ((PAPER_RULE, "balance/share"), (GRADIENT_RULE, "balance/share_gradient")):
        everything = torch.ones_like(old, dtype=torch.bool)
        bounds = balanced_bounds(old + 0.5 * shift, old, credit, everything, replace(rule, **frozen))
        assert found.get(name, math.nan) == pytest.approx(bounds.share, nan_ok=True)


def test_diagnostics_see_the_dual_clip():
    found = diagnose(0.6, 1.2, credit=[-1.0, 1.0] + [0.0] * 8, dual=1.5)  # ratios 0.92 and 1.31
    assert found["balance/share"] == pytest.approx(1.2 / (1.2 + 0.92))
    ratios = double([2.0, 1.0]).log()
    pushes = pushes_of(ratios, torch.zeros_like(ratios), double([-1, 1]), low=0.6, high=1.2, dual=1.5)
    found = update_diagnostics(
        ratios, torch.zeros_like(ratios), double([-1, 1]), torch.ones_like(ratios), pushes, low=0.6, high=1.2, dual=1.5
    )
    assert found["balance/share"] == pytest.approx(1 / 2.5)  # the bad token counts 1.5, not 2
    assert found["balance/share_gradient"] == 1.0  # and keeps no gradient
    assert found["clip/shut_out"] == 0.5


def test_diagnostics_of_a_loss_without_bounds_go_by_its_gradient():
    """GSPO stops whole rows: nothing of that is in the token's own ratio."""
    policy = double([[0.5, 0.4], [0.1, -0.1]]).requires_grad_()
    old, credit, mask = torch.zeros_like(policy), double([[1, 1], [-1, -1]]), torch.ones(2, 2, dtype=torch.bool)
    loss, _ = gspo_loss(policy, old, credit, mask, torch.ones_like(old), low=0.8, high=1.2)
    pushes = -torch.autograd.grad(loss, policy)[0]
    flat = [x.detach().flatten() for x in (policy, old, credit, torch.ones_like(old), pushes)]
    found = update_diagnostics(*flat)
    assert pushes[0].tolist() == [0, 0]
    assert found["balance/share"] == found["balance/share_gradient"] == 0
    assert found["clip/let_in_positive"] == 0
