"""What holds for every loss: gradients by finite differences, masks, micro-batches, detachment, overflow, refusals."""

import inspect
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import (
    cispo_loss,
    clipped_policy_loss,
    dppo_loss,
    gspo_loss,
    importance_weights,
    kl_loss,
    m2po_loss,
    nft_loss,
    reinforce_loss,
    sapo_loss,
    second_moment_limit,
    topr_loss,
    value_loss,
)
from whet.trainer.losses import FUNCTIONS

laws = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)

RATIO_LOSSES = {  # on policy, all of them have the gradient -A
    "ppo": partial(clipped_policy_loss, low=0.8, high=1.2),
    "dual": partial(clipped_policy_loss, low=0.6, high=1.4, dual=1.5),
    "unbounded": partial(clipped_policy_loss, low=0.0, high=math.inf),
    "reinforce": reinforce_loss,
    "cispo": partial(cispo_loss, low=0.7, high=1.5),
    "topr token": partial(topr_loss, level="token"),
    "topr sequence": topr_loss,
    "gspo": partial(gspo_loss, low=0.9, high=1.1),
    "sapo": sapo_loss,
    "m2po": partial(m2po_loss, limit=0.1),
    "dppo": dppo_loss,
    "dppo kl": partial(dppo_loss, divergence="kl", low=0.01, high=0.01),
}


def kl_term(estimator):
    def loss(policy, old, advantages, mask, token_weight):
        return kl_loss(policy, old, mask, token_weight, estimator=estimator)

    return loss


def nft_term(policy, *rest):
    return nft_loss(policy, *rest, rate_B=torch.full_like(policy[:, 0], 0.6))


LOSSES = RATIO_LOSSES | {
    "nft": nft_term,
    "value": value_loss,
    "value unclipped": partial(value_loss, clip=None),
    **{name: kl_term(name) for name in ("k1", "k2", "k3")},
}
STOPPED = {
    "cispo",
    "dppo",
    "dppo kl",
    "topr token",
    "topr sequence",
    "gspo",
    "nft",
}  # a part is a number to the gradient, not to the value
every_loss = pytest.mark.parametrize("name", LOSSES)


def a_batch(seed, num_rows=4, num_tokens=6):
    """Policy, old logprobs, advantages, mask, token weights; ratios past all bounds, some rows maybe untrained."""
    generator = torch.Generator().manual_seed(seed)
    old, shift, advantages, weights = torch.randn(4, num_rows, num_tokens, generator=generator, dtype=torch.float64)
    mask = torch.rand(num_rows, num_tokens, generator=generator) < 0.6
    return (old - 2 + 0.5 * shift).requires_grad_(), old - 2, advantages, mask, weights.abs()


def gradient(loss, policy, *rest):
    return torch.autograd.grad(loss(policy, *rest)[0], policy)[0]


# -- gradients


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(LOSSES.keys() - STOPPED))
def test_gradient_is_the_derivative_of_the_loss(name, seed):
    policy, *rest = a_batch(seed)
    assert torch.autograd.gradcheck(lambda logprobs: LOSSES[name](logprobs, *rest)[0], policy)


@pytest.mark.parametrize("seed", range(3))
def test_gspo_gradient_is_the_derivative_where_a_row_has_one_credit(seed):
    policy, old, advantages, mask, weights = a_batch(seed)
    rest = (old, advantages[:, :1].expand_as(old), mask, weights[:, :1])
    assert torch.autograd.gradcheck(lambda logprobs: RATIO_LOSSES["gspo"](logprobs, *rest)[0], policy)


def held_cispo(at, old):
    weight = (at - old).exp().clamp(0.7, 1.5)
    return lambda logprobs, credit: -weight * credit * logprobs


def held_topr_token(at, old):
    ratio = (at - old).exp()
    return lambda logprobs, credit: -torch.where(credit < 0, ratio.clamp(max=1.0), 1.0) * credit * logprobs


def held_topr_sequence(at, old, mask):
    ratio = torch.where(mask, at - old, 0.0).sum(-1, keepdim=True).exp()
    return lambda logprobs, credit: -torch.where(credit < 0, ratio.clamp(max=1.0), 1.0) * credit * logprobs


def held_dppo(at, old):
    moved, ratio = at.exp() - old.exp(), (at - old).exp()

    def loss(logprobs, credit):
        keeps = torch.where(credit > 0, moved <= 0.2, moved >= -0.2)
        return -ratio.clamp(max=20) * keeps * credit * logprobs

    return loss


def held_gspo(at, old, mask):
    sequence = (torch.where(mask, at - old, 0.0).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()

    def loss(logprobs, credit):
        s = sequence * (logprobs - at).exp()
        return torch.maximum(-credit * s, -credit * s.clamp(0.9, 1.1))

    return loss


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("cispo", held_cispo),
        ("dppo", held_dppo),
        ("topr token", held_topr_token),
        ("topr sequence", held_topr_sequence),
        ("gspo", held_gspo),
    ],
)
def test_gradient_is_the_derivative_with_the_stopped_weight_held(name, held, seed):
    policy, old, advantages, mask, weights = a_batch(seed)
    at = policy.detach()
    surrogate = held(at, old, mask) if held in (held_gspo, held_topr_sequence) else held(at, old)
    step = 1e-6
    # Each token's surrogate depends on its own logprob alone, so all can be moved at once.
    by_difference = (surrogate(at + step, advantages) - surrogate(at - step, advantages)) / (2 * step) * weights
    got = gradient(RATIO_LOSSES[name], policy, old, advantages, mask, weights)
    assert_close(got, torch.where(mask, by_difference, 0.0), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", RATIO_LOSSES)
def test_f18_on_policy_every_gradient_is_minus_the_advantage(name):
    policy, _, advantages, mask, weights = a_batch(7)
    expected = torch.where(mask, -advantages * weights, 0.0)
    # Callers may pass the very same tensor twice, graph included.
    assert_close(gradient(RATIO_LOSSES[name], policy, policy, advantages, mask, weights), expected)


@every_loss
def test_old_logprobs_and_advantages_carry_no_gradient(name):
    policy, old, advantages, mask, weights = a_batch(3)
    old.requires_grad_()
    advantages.requires_grad_()
    loss, metrics = LOSSES[name](policy, old, advantages, mask, weights)
    loss.backward()
    assert old.grad is None
    assert advantages.grad is None
    assert not any(value.requires_grad for value in metrics.values())


# -- masks, splits, overflow


@every_loss
@laws
@given(seed=seeds, fill=st.sampled_from([math.nan, math.inf, -math.inf, 1e9]))
def test_masked_tokens_change_nothing(name, seed, fill):
    batch = a_batch(seed)
    mask = batch[3]

    def results(fill):
        policy, old, advantages, weights = (
            torch.where(mask, x.detach(), fill) for x in (batch[0], batch[1], batch[2], batch[4])
        )
        policy.requires_grad_()
        loss, metrics = LOSSES[name](policy, old, advantages, mask, weights)
        loss.backward()
        limit = second_moment_limit(policy, old, advantages, mask)
        correction = importance_weights(old, policy, mask, scope="sequence")
        return [loss, policy.grad, correction, torch.tensor(limit), *metrics.values()]

    reference = results(0.0)
    assert (reference[1][~mask] == 0).all()
    assert_close(results(fill), reference, rtol=0, atol=0)


@every_loss
@laws
@given(seed=seeds, cut=st.integers(1, 3))
def test_micro_batches_add_up(name, seed, cut):
    batch = a_batch(seed)

    def over(*parts):
        found = [LOSSES[name](*(x[rows] for x in batch)) for rows in parts]
        total = sum(loss for loss, _ in found)
        metrics = {
            key: (max if key.endswith("_max") else sum)(metrics[key] for _, metrics in found) for key in found[0][1]
        }
        return total, torch.autograd.grad(total, batch[0])[0], metrics

    assert_close(over(slice(0, cut), slice(cut, None)), over(slice(None)))


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ratios_that_overflow_give_no_nan(name, dtype):
    policy = torch.tensor([[500.0, 500.0, 500.0, -500.0, -500.0, -500.0]] * 2, dtype=dtype, requires_grad=True)
    advantages = torch.tensor([[1.0, 0.0, -1.0] * 2] * 2, dtype=dtype)
    mask = torch.ones_like(policy, dtype=torch.bool)
    token_weight = torch.tensor([[1.0], [0.0]], dtype=dtype)  # a row of no weight must not make NaN of 0 * inf
    loss, metrics = LOSSES[name](policy, torch.zeros_like(policy), advantages, mask, token_weight)
    loss.backward()
    assert loss.isfinite()
    assert policy.grad.isfinite().all()
    assert all(value.isfinite() for value in metrics.values())


@pytest.mark.parametrize("name", ["ppo", "dual", "gspo", "sapo", "m2po", "nft"])
def test_an_impossible_token_gives_no_nan(name):
    policy = torch.tensor([[-math.inf, -1.0], [-1.0, -2.0]], requires_grad=True)
    old = torch.tensor([[-1.0, -1.0], [-math.inf, -1.0]])
    for advantage in (1.0, -1.0, 0.0):
        loss, _ = LOSSES[name](policy, old, torch.full((2, 2), advantage), policy < 0, torch.ones(2, 1))
        assert loss.isfinite()
        assert torch.autograd.grad(loss, policy)[0].isfinite().all()


@pytest.mark.parametrize("name", ["gspo", "topr sequence"])
def test_tokens_far_off_obey_the_laws_too(name):
    policy, old, advantages, mask, weights = a_batch(11)
    policy = torch.where(torch.rand(mask.shape, generator=torch.Generator().manual_seed(0)) < 0.3, old - 30, policy)
    policy = policy.detach().requires_grad_()

    def over(rows, fill):
        parts = (torch.where(mask, x, fill)[rows] for x in (policy, old, advantages))
        return RATIO_LOSSES[name](*parts, mask[rows], weights[rows])[0]

    whole = over(slice(None), math.nan)
    halves = over(slice(0, 2), 0.0) + over(slice(2, None), 1e9)
    assert_close(halves, whole)
    grad = torch.autograd.grad(whole, policy)[0]
    assert_close(grad, torch.autograd.grad(halves, policy)[0])
    assert (grad[~mask] == 0).all()


def test_untrained_batches_cost_nothing():
    policy, old, advantages, mask, weights = a_batch(0)
    for name, loss in LOSSES.items():
        total, metrics = loss(policy, old, advantages, torch.zeros_like(mask), weights)
        assert total == 0, name
        assert not any(metrics.values()), name
    assert second_moment_limit(policy, old, advantages, torch.zeros_like(mask)) == math.inf


# -- M2PO's mask, corrections


@laws
@given(seeds, st.sampled_from([1e-4, 0.02, 0.1, 0.3, 10.0]))
def test_m2po_limit_is_the_slow_obvious_loop(seed, budget):
    policy, old, advantages, mask, weights = a_batch(seed)
    delta = (policy - old).detach()
    pool = {
        (b, t): delta[b, t].item() ** 2
        for b, t in mask.nonzero().tolist()
        if (advantages[b, t] > 0 and delta[b, t] > 0) or (advantages[b, t] < 0 and delta[b, t] < 0)
    }
    dropped = torch.zeros_like(mask)
    while pool and sum(pool.values()) / len(pool) > budget:
        largest = max(pool, key=pool.get)
        del pool[largest]
        dropped[largest] = True
    limit = second_moment_limit(policy, old, advantages, mask, budget=budget)
    got = gradient(partial(m2po_loss, limit=limit), policy, old, advantages, mask, weights)
    assert_close(got, torch.where(mask & ~dropped, -delta.exp() * advantages * weights, 0.0))


def test_m2po_drops_equal_moves_together():
    policy, zeros = torch.tensor([[0.1, 0.3, 0.3]]), torch.zeros(1, 3)
    ones = torch.ones(1, 3)
    # One at a time the mean would be within 0.06 after the first of the two.
    assert second_moment_limit(policy, zeros, ones, ones.bool(), budget=0.06) == pytest.approx(0.01)


@laws
@given(seeds)
def test_decoupled_ppo_is_the_clipped_loss_times_the_correction(seed):
    policy, proximal, advantages, mask, weights = a_batch(seed)
    behaviour = proximal + a_batch(seed + 1)[2] * 0.3
    correction = importance_weights(proximal, behaviour, mask, high=math.inf)
    loss, _ = clipped_policy_loss(policy, proximal, advantages, mask, weights * correction, low=0.8, high=1.2)
    expected = 0.0
    for b, t in mask.nonzero().tolist():
        u = math.exp(policy[b, t].item() - proximal[b, t].item())
        credit, b_ratio = advantages[b, t].item(), (proximal - behaviour)[b, t].exp().item()
        token = max(-credit * u, -credit * min(max(u, 0.8), 1.2))
        expected += weights[b, t].item() * b_ratio * token
    assert loss.item() == pytest.approx(expected, abs=1e-9)


def test_corrections_carry_no_gradient_and_do_not_overflow():
    proximal = torch.tensor([[500.0, -500.0, 500.0]], requires_grad=True)
    for scope in ("token", "sequence", "geometric"):
        weights = importance_weights(
            proximal, torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool), high=math.inf, scope=scope
        )
        assert weights.isfinite().all()
        assert not weights.requires_grad


# -- refusals


def test_unknown_names_and_a_dual_clip_of_1_are_refused():
    policy, old, advantages, mask, weights = a_batch(0)
    with pytest.raises(ValueError, match=r"unknown level 'row': choose one of token, sequence\."):
        topr_loss(policy, old, advantages, mask, weights, level="row")
    with pytest.raises(ValueError, match=r"unknown outside 'zero': choose one of clamp, drop\."):
        importance_weights(policy, old, mask, outside="zero")
    with pytest.raises(ValueError, match=r"unknown scope 'row': choose one of token, sequence, geometric\."):
        importance_weights(policy, old, mask, scope="row")
    with pytest.raises(ValueError, match=r"unknown KL estimator 'k4': choose one of k1, k2, k3\."):
        kl_loss(policy, old, mask, weights, estimator="k4")
    for dual in (1.0, 0.5):
        with pytest.raises(ValueError, match=f"has to be more than 1, got {dual}"):
            clipped_policy_loss(policy, old, advantages, mask, weights, low=0.8, high=1.2, dual=dual)


# -- metrics and defaults


def test_topr_counts_bad_tokens_whose_ratio_is_cut_to_1():
    old, mask = torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool)
    policy, advantages = torch.tensor([[0.5, 0.5, -0.5, 2.0]]), torch.tensor([[-1.0, 1.0, -1.0, -1.0]])
    _, metrics = topr_loss(policy, old, advantages, mask, torch.ones(1, 1), level="token")
    assert (metrics["num_clipped_low"], metrics["num_clipped_high"]) == (0, 2)


@pytest.mark.parametrize("kind", FUNCTIONS, ids=lambda kind: kind.__name__)
def test_a_loss_and_its_settings_have_the_same_defaults(kind):
    defaults = {name: p.default for name, p in inspect.signature(FUNCTIONS[kind]).parameters.items()}
    for name, value in kind().model_dump(exclude={"kind"}).items():
        assert defaults[name] in (value, inspect.Parameter.empty), name
