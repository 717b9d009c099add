"""Every policy loss against the worked numbers of the BAPO spec, section 6.4 (batch L) and facts F9 to F18.

Two sequences of 3 and 4 tokens with credit +1.2 and -0.8; all numbers were computed apart from this code. Laws that
hold for every loss are in `test_policy_loss_laws.py`.
"""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from whet.objectives import (
    BoundsRule,
    Range,
    aggregation_weights,
    balanced_bounds,
    cispo_loss,
    clipped_policy_loss,
    dppo_loss,
    gspo_loss,
    importance_weights,
    k1,
    k3,
    m2po_loss,
    reinforce_loss,
    sapo_loss,
    second_moment_limit,
    topr_loss,
)

NAN = math.nan  # where the first sequence has no fourth token


def double(values):
    return torch.tensor(values, dtype=torch.float64)


OLD = double([[-2.0, -0.5, -1.0, NAN], [-1.5, -0.2, -0.7, -3.0]])  # also the proximal policy's
DELTA = double([[0.4, 0.0, -0.3, NAN], [-0.7, 0.1, -0.15, 1.3]])
BEHAVIOUR = double([[-2.3, -0.45, -1.1, NAN], [-1.4, -0.25, -1.6, -2.9]])
ADVANTAGES = double([[1.2, 1.2, 1.2, NAN], [-0.8, -0.8, -0.8, -0.8]])
MASK = ~OLD.isnan()
COUNTS = MASK.sum(-1)

ppo = partial(clipped_policy_loss, low=0.8, high=1.2)
m2po_limit = second_moment_limit(OLD + DELTA, OLD, ADVANTAGES, MASK, budget=0.04)
tis = importance_weights(OLD, BEHAVIOUR, MASK, high=2.0)
ice_pop = importance_weights(OLD, BEHAVIOUR, MASK, low=0.5, high=2.0, outside="drop")
uncapped = importance_weights(OLD, BEHAVIOUR, MASK, high=math.inf)


def token_losses(loss, *, old=OLD, weights=1.0, delta=DELTA):
    """Each token's loss and the derivative of the whole loss by its logprob, as two flat lists; and the metrics."""
    policy = (OLD + delta).requires_grad_()
    token_weight = torch.full_like(OLD, 1.0).mul_(weights).requires_grad_()
    total, metrics = loss(policy, old, ADVANTAGES, MASK, token_weight)
    # The total is linear in the token weights, so its derivative by one is that token's loss.
    by_weight, gradient = torch.autograd.grad(total, (token_weight, policy))
    return (by_weight * weights)[MASK], gradient[MASK], metrics


def mean(loss, mode, *, old=OLD, weights=1.0, delta=DELTA, **options):
    """The loss of the batch, reduced."""
    rows = aggregation_weights(COUNTS, torch.ones(2, dtype=torch.float64), mode, **options)[:, None]
    return loss(OLD + delta, old, ADVANTAGES, MASK, rows * weights)[0].item()


six_digits = partial(assert_close, atol=6e-7, rtol=0)

PPO_GOOD, PPO_BAD = [-1.440000, -1.200000, -0.888982], [0.640000, 0.884137, 0.688566, 2.935437]
PPO_GOOD_G, PPO_BAD_G = [0, -1.200000, -0.888982], [0, 0.884137, 0.688566, 2.935437]
KEPT_G = [-1.790190, -1.200000, -0.888982]  # no upper bound reached
NLL = [1.920000, 0.600000, 1.560000, -1.760000, -0.080000, -0.680000, -1.360000]
NLL_G = [-1.2] * 3 + [0.8] * 4
CISPO_BAD = [-0.873990, -0.088414, -0.585281]
NEAR = [-1.943797, -1.141475, -0.982477]

TABLE_6_4 = {  # name: loss, what else it is given, token losses, gradients, token mean, mean of sequence means
    "PPO 0.8/1.2": (ppo, {}, PPO_GOOD + PPO_BAD, PPO_GOOD_G + PPO_BAD_G, 0.231308, 0.055354),
    "DAPO 0.8/1.28": (
        partial(clipped_policy_loss, low=0.8, high=1.28), {},
        [-1.536000, -1.200000, -0.888982, *PPO_BAD], PPO_GOOD_G + PPO_BAD_G, 0.217594, 0.039354,
    ),
    "dual clip 3 on PPO": (
        partial(ppo, dual=3.0), {},
        [*PPO_GOOD, 0.640000, 0.884137, 0.688566, 2.400000], [*PPO_GOOD_G, 0, 0.884137, 0.688566, 0],
        0.154817, -0.011576,
    ),
    "BAPO 0.6/1.4": (
        partial(clipped_policy_loss, low=0.6, high=1.4), {},
        [-1.680000, -1.200000, -0.888982, 0.480000, 0.884137, 0.688566, 2.935437],
        [0, -1.200000, -0.888982, 0, 0.884137, 0.688566, 2.935437], 0.174166, -0.004646,
    ),
    "BAPO 0.9/3.0": (
        partial(clipped_policy_loss, low=0.9, high=3.0), {},
        [-1.790190, -1.200000, -0.888982, 0.720000, 0.884137, 0.720000, 2.935437],
        [*KEPT_G, 0, 0.884137, 0, 2.935437], 0.197200, 0.010918,
    ),
    "BAPO code 0.8/2.0, dual 3": (
        partial(clipped_policy_loss, low=0.8, high=2.0, dual=3.0), {},
        [-1.790190, -1.200000, -0.888982, 0.640000, 0.884137, 0.688566, 2.400000],
        [*KEPT_G, 0, 0.884137, 0.688566, 0], 0.104790, -0.069941,
    ),
    "CISPO 0/1.2": (
        partial(cispo_loss, low=0.0, high=1.2), {},
        [2.304000, 0.600000, 1.155676, *CISPO_BAD, -1.632000],
        [-1.440000, -1.200000, -0.888982, 0.397268, 0.884137, 0.688566, 0.960000], 0.125713, 0.279152,
    ),
    "CISPO 0/5": (
        partial(cispo_loss, low=0.0, high=5.0), {},
        [2.864303, 0.600000, 1.155676, *CISPO_BAD, -4.990243],
        [*KEPT_G, 0.397268, 0.884137, 0.688566, 2.935437], -0.273993, -0.047244,
    ),
    "CISPO 0.8/1.2": (
        partial(cispo_loss, low=0.8, high=1.2), {},
        [2.304000, 0.600000, 1.248000, -1.408000, -0.088414, -0.585281, -1.632000],
        [-1.440000, -1.200000, -0.960000, 0.640000, 0.884137, 0.688566, 0.960000], 0.062615, 0.227788,
    ),
    "SAPO 1.0/1.05": (
        partial(sapo_loss, tau_positive=1.0, tau_negative=1.05), {},
        [-2.978574, -2.400000, -2.090711, 1.130200, 1.607861, 1.412574, 2.873371],
        [-1.686151, -1.200000, -0.874218, 0.370762, 0.881447, 0.684897, 0.632952], -0.063611, -0.366880,
    ),
    "REINFORCE": (reinforce_loss, {}, NLL, NLL_G, 0.028571, 0.195000),
    "TOPR sequence": (partial(topr_loss, level="sequence"), {}, NLL, NLL_G, 0.028571, 0.195000),
    "TOPR token": (
        partial(topr_loss, level="token"), {},
        [1.920000, 0.600000, 1.560000, -0.873990, -0.080000, -0.585281, -1.360000],
        [-1.2, -1.2, -1.2, 0.397268, 0.800000, 0.688566, 0.800000], 0.168675, 0.317591,
    ),
    "PPO x TIS 2": (
        ppo, {"weights": tis},
        [*NEAR, 0.579096, 0.929467, 1.377133, 2.656094],
        [0, *NEAR[1:], 0, 0.929467, 1.377133, 2.656094], 0.210577, 0.014766,
    ),
    "PPO x IcePop 0.5/2": (
        ppo, {"weights": ice_pop},
        [*NEAR, 0.579096, 0.929467, 0, 2.656094],
        [0, *NEAR[1:], 0, 0.929467, 0, 2.656094], 0.013844, -0.157376,
    ),
    "decoupled PPO": (
        ppo, {"weights": uncapped},
        [*NEAR, 0.579096, 0.929467, 1.693600, 2.656094],
        [0, *NEAR[1:], 0, 0.929467, 1.693600, 2.656094], 0.255787, 0.054324,
    ),
    "PPO on the behaviour policy": (
        ppo, {"old": BEHAVIOUR},
        [-1.440000, *NEAR[1:], 0.640000, 0.929467, 1.693600, 2.656094],
        [0, *NEAR[1:], 0, 0.929467, 1.693600, 2.656094], 0.336458, 0.145903,
    ),
    "M2PO 0.04": (
        partial(m2po_loss, limit=m2po_limit), {},
        [0, -1.200000, -0.888982, 0, 0.884137, 0.688566, 2.935437],
        [0, -1.200000, -0.888982, 0, 0.884137, 0.688566, 2.935437], 0.345594, 0.215354,
    ),
}  # fmt: skip

# DPPO (arXiv:2602.04879). Probabilities, old -> now: 0.135 -> 0.202, 0.607, 0.368 -> 0.273 of the good row; 0.223 ->
# 0.111, 0.819 -> 0.905, 0.497 -> 0.427, 0.050 -> 0.183 of the bad one. Nothing moves by 0.2, so nothing is dropped.
WEIGHED = [2.864303, 0.600000, 1.155676, *CISPO_BAD, -4.990243]
WEIGHED_G = [*KEPT_G, 0.397268, 0.884137, 0.688566, 2.935437]
DPPO = {
    "nothing is past 0.2": ({}, WEIGHED, WEIGHED_G),
    "ratios count up to 2": (
        {"max_ratio": 2.0}, [*WEIGHED[:6], -2.720000], [*WEIGHED_G[:6], 1.600000],
    ),
    "the good token that rose by 0.067": ({"high": 0.066}, [0, *WEIGHED[1:]], [0, *WEIGHED_G[1:]]),
    "it stays": ({"high": 0.067}, WEIGHED, WEIGHED_G),
    "the bad ones that fell by 0.112, 0.069": (
        {"low": 0.069},
        [*WEIGHED[:3], 0, WEIGHED[4], 0, WEIGHED[6]], [*WEIGHED_G[:3], 0, WEIGHED_G[4], 0, WEIGHED_G[6]],
    ),
    "the first of them": (
        {"low": 0.07}, [*WEIGHED[:3], 0, *WEIGHED[4:]], [*WEIGHED_G[:3], 0, *WEIGHED_G[4:]],
    ),
    # 0.1353 log(0.1353 / 0.2019) + 0.8647 log(0.8647 / 0.7981) = 0.01517
    "by KL": ({"divergence": "kl", "high": 0.0151}, [0, *WEIGHED[1:]], [0, *WEIGHED_G[1:]]),
    "by KL it stays": ({"divergence": "kl", "high": 0.0152}, WEIGHED, WEIGHED_G),
}  # fmt: skip


@pytest.mark.parametrize("name", DPPO)
def test_dppo_drops_what_has_moved_on_too_far(name):
    settings, losses, gradients = DPPO[name]
    got_losses, got_gradients, metrics = token_losses(partial(dppo_loss, **settings))
    six_digits(got_losses, double(losses))
    six_digits(got_gradients, double(gradients))
    assert metrics["num_clipped_high"] + metrics["num_clipped_low"] == gradients.count(0)


def test_dppo_lets_a_rare_token_go_where_a_ratio_would_stop_it():
    """0.001 -> 0.01 is a ratio of 10 and a move of 0.009; 0.5 -> 0.75 is a ratio of 1.5 and a move of 0.25."""
    old, policy = double([[0.001, 0.5]]).log(), double([[0.01, 0.75]]).log().requires_grad_()
    ones = torch.ones_like(old)
    for loss, expected in ((dppo_loss, [-10.0, 0.0]), (ppo, [0.0, 0.0])):
        total, _ = loss(policy, old, ones, ones.bool(), ones)
        assert_close(torch.autograd.grad(total, policy)[0], double([expected]))


def test_dppo_refuses_another_divergence():
    ones = torch.ones(1, 1)
    with pytest.raises(ValueError, match="unknown divergence 'js'"):
        dppo_loss(-ones, -ones, ones, ones.bool(), ones, divergence="js")


@pytest.mark.parametrize("name", TABLE_6_4)
def test_spec_6_4_losses_and_gradients_of_each_token(name):
    loss, given, losses, gradients, token_mean, sequence_mean = TABLE_6_4[name]
    got_losses, got_gradients, _ = token_losses(loss, **given)
    six_digits(got_losses, double(losses))
    six_digits(got_gradients, double(gradients))
    assert mean(loss, "token_mean", **given) == pytest.approx(token_mean, abs=6e-7)
    assert mean(loss, "sequence_mean", **given) == pytest.approx(sequence_mean, abs=6e-7)


def test_f9_other_reductions_of_ppo():
    assert mean(ppo, "constant", constant_length=1) == pytest.approx(0.809579, abs=6e-7)  # sequences' sums, averaged
    assert mean(ppo, "constant", constant_length=4) == pytest.approx(0.202395, abs=6e-7)  # Dr. GRPO


def test_f10_metrics():
    _, _, metrics = token_losses(partial(ppo, dual=3.0))
    assert metrics["num_tokens"] == 7
    assert (metrics["num_clipped_low"] + metrics["num_clipped_high"]) / 7 == pytest.approx(0.285714, abs=6e-7)
    assert metrics["num_dual"] / 7 == pytest.approx(0.142857, abs=6e-7)
    assert metrics["approx_kl_sum"] / 7 == pytest.approx(0.244915, abs=6e-7)
    ratios = [1.491825, 1.000000, 0.740818, 0.496585, 1.105171, 0.860708, 3.669297]
    six_digits(DELTA[MASK].exp(), double(ratios))
    assert metrics["ratio_sum"].item() == pytest.approx(sum(ratios), abs=4e-6)
    assert metrics["ratio_max"].item() == pytest.approx(3.669297, abs=6e-7)
    # What others report, in our names: the mean of -delta, and k3 of KL(policy || old) on old samples.
    assert k1(OLD, OLD + DELTA)[MASK].mean() == pytest.approx(-0.092857, abs=6e-7)
    assert k3(OLD + DELTA, OLD)[MASK].mean() == pytest.approx(0.146162, abs=6e-7)


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [
        (partial(clipped_policy_loss, low=0.8, high=1.28), 1, 1),  # (s1, t0) and (s0, t0)
        (partial(clipped_policy_loss, low=0.9, high=3.0), 2, 0),  # (s1, t2) too
        (partial(cispo_loss, low=0.8, high=1.2), 2, 2),  # both signs of credit on both sides
        (cispo_loss, 0, 0),
        (reinforce_loss, 0, 0),
        (sapo_loss, 0, 0),
        (topr_loss, 0, 4),  # s1 grew likelier as a whole, so 1 takes the place of all its ratios
        (partial(topr_loss, level="token"), 0, 2),
        (gspo_loss, 0, 3),  # s0 is past the upper bound, though only one of its tokens is
        (partial(m2po_loss, limit=m2po_limit), 1, 1),
    ],
)
def test_what_each_loss_counts_as_stopped(loss, low, high):
    _, _, metrics = token_losses(loss)
    assert (metrics["num_clipped_low"], metrics["num_clipped_high"]) == (low, high)


def test_f12_gspo():
    logs = torch.where(MASK, DELTA, 0.0).sum(-1) / COUNTS
    six_digits(logs.exp(), double([1.033895, 1.147402]))
    losses, _, _ = token_losses(gspo_loss)
    six_digits(losses, double([-1.200480] * 3 + [0.917921] * 4))
    assert mean(gspo_loss, "sequence_mean") == pytest.approx(-0.141279, abs=6e-7)
    policy = (OLD + DELTA).requires_grad_()
    rows = aggregation_weights(COUNTS, torch.ones(2, dtype=torch.float64), "sequence_mean")[:, None]
    gspo_loss(policy, OLD, ADVANTAGES, MASK, rows)[0].backward()
    six_digits(policy.grad, double([[0] * 4, [0.114740] * 4]))
    wide = partial(gspo_loss, low=0.8, high=1.2)
    assert mean(wide, "sequence_mean") == pytest.approx(-0.161376, abs=6e-7)
    assert (token_losses(wide)[1] != 0).all()


def test_f13_importance_weights():
    six_digits(uncapped[MASK], double([1.349859, 0.951229, 1.105171, 0.904837, 1.051271, 2.459603, 0.904837]))
    six_digits(tis[MASK], double([1.349859, 0.951229, 1.105171, 0.904837, 1.051271, 2.0, 0.904837]))
    six_digits(ice_pop[MASK], double([1.349859, 0.951229, 1.105171, 0.904837, 1.051271, 0.0, 0.904837]))
    assert (uncapped[~MASK] == 0).all()
    for scope, expected in (("sequence", [1.419068, 2.117000]), ("geometric", [1.123745, 1.206230])):
        weights = importance_weights(OLD, BEHAVIOUR, MASK, high=math.inf, scope=scope)
        six_digits(weights, torch.where(MASK, double(expected)[:, None], 0.0))
    low_ones_out = importance_weights(OLD, BEHAVIOUR, MASK, low=1.0, high=2.0, outside="drop")
    six_digits(low_ones_out[MASK], double([1.349859, 0.0, 1.105171, 0.0, 1.051271, 0.0, 0.0]))
    six_digits(importance_weights(OLD, BEHAVIOUR, MASK, low=1.0)[0, :3], double([1.349859, 1.0, 1.105171]))
    # A sequence is clamped or dropped whole.
    options = {"low": 0.5, "high": 2.0, "scope": "sequence"}
    six_digits(importance_weights(OLD, BEHAVIOUR, MASK, **options)[1], double([2.0] * 4))
    six_digits(importance_weights(OLD, BEHAVIOUR, MASK, outside="drop", **options)[1], double([0.0] * 4))


def test_f14_m2po_masks_the_largest_moves_of_the_trust_region():
    could_stop = MASK & (DELTA * ADVANTAGES > 0)
    squares = DELTA[could_stop].square()
    six_digits(squares, double([0.16, 0.49, 0.0225]))
    assert squares.mean().item() == pytest.approx(0.224167, abs=6e-7)
    assert m2po_limit == pytest.approx(0.0225)  # 0.49 goes, then 0.16; the mean that remains is within 0.04

    def limit(budget):
        return second_moment_limit(OLD + DELTA, OLD, ADVANTAGES, MASK, budget=budget)

    assert limit(0.2242) == math.inf
    assert limit(0.1) == pytest.approx(0.16)  # (0.16 + 0.0225) / 2 = 0.091
    assert limit(0.02) == -1.0
    dropped = token_losses(partial(m2po_loss, limit=-1.0))[1] == 0
    assert dropped.tolist() == could_stop[MASK].tolist()  # the others are outside every budget


def test_f15_topr_tapers_a_sequence_that_grew_unlikelier():
    delta = DELTA.clone()
    delta[1, 3] = 0.3
    losses, gradients, metrics = token_losses(topr_loss, delta=delta)
    six_digits(gradients[3:], double([0.8 * 0.637628] * 4))
    six_digits(losses[3:], double([-1.122226, -0.051010, -0.433587, -1.377277]))
    assert losses[3:].mean().item() == pytest.approx(-0.746025, abs=6e-7)
    assert (metrics["num_clipped_low"], metrics["num_clipped_high"]) == (0, 0)
    losses, _, _ = token_losses(partial(topr_loss, level="token"), delta=delta)
    six_digits(losses[3:], double([-0.873990, -0.08, -0.585281, -2.16]))
    assert losses[3:].mean().item() == pytest.approx(-0.924818, abs=6e-7)


def long_row(far=-30.0, num_tokens=200):
    """One row of credit 1; its first token is `far` nats from the old policy, the others stand where they were."""
    policy = torch.zeros(1, num_tokens, dtype=torch.float64)
    policy[0, 0] = far
    ones = torch.ones_like(policy)
    return policy.requires_grad_(), torch.zeros_like(policy), ones, ones.bool(), ones / num_tokens


def test_a_token_far_off_takes_its_full_part_in_its_rows_ratio():
    """200 tokens, one at -30 nats: s = exp(-30 / 200) = exp(-0.15) = 0.860708. Were that token held to -20 first, s
    would be exp(-20 / 200) = exp(-0.1) = 0.904837, and it would get no gradient. The loss of a token is -s, and its
    gradient -s / 200, as below the upper bound a credit of 1 is not stopped."""
    policy, *rest = long_row()
    loss, metrics = gspo_loss(policy, *rest)
    loss.backward()
    six_digits(loss, double(-0.860708))
    six_digits(policy.grad, double([[-0.860708 / 200] * 200]))
    assert metrics["num_clipped_low"] == 0


def test_topr_tapers_by_the_whole_row():
    """One token at -30 nats, 25 at +1: exp(-5) = 0.006738. Were it held to -20, exp(5) would be tapered to 1."""
    policy, old, ones, mask, weight = long_row()
    policy = torch.where(torch.arange(200) % 8 == 1, 1.0, policy.detach()).requires_grad_()  # 25 of 200
    loss, metrics = topr_loss(policy, old, -ones, mask, weight)
    loss.backward()
    six_digits(policy.grad, double([[0.006738 / 200] * 200]))
    assert metrics["num_clipped_high"] == 0
    product = importance_weights(policy, old, mask, high=math.inf, scope="sequence")
    six_digits(product, torch.full_like(old, 0.006738))


def test_sequence_weights_bound_the_product_not_its_factors():
    policy, old, _, mask, _ = long_row()
    mean = importance_weights(policy, old, mask, scope="geometric")
    six_digits(mean, torch.full_like(old, 0.860708))
    at_most = importance_weights(-policy, old, mask, high=math.inf, scope="sequence")
    six_digits(at_most.log(), torch.full_like(old, 20.0))  # exp(30) is held: the bound against overflow


def test_m2po_counts_a_token_far_off_with_its_full_square():
    """(30^2 + 0) / 10,001 = 0.09 is past the budget of 0.04; held to 20 nats it would be 20^2 / 10,001 = 0.04."""
    policy = torch.full((1, 10_001), 1e-6, dtype=torch.float64)
    policy[0, 0] = 30.0
    zeros, ones = torch.zeros_like(policy), torch.ones_like(policy)
    limit = second_moment_limit(policy, zeros, ones, ones.bool(), budget=0.04)
    assert limit == pytest.approx(1e-12)
    losses = m2po_loss(policy.requires_grad_(), zeros, ones, ones.bool(), ones, limit=limit)[0]
    losses.backward()
    assert policy.grad[0, 0] == 0


def test_k3_goes_on_along_its_tangent():
    """At log r = 25: expm1(20) - 20 + 5 expm1(20) = 6 expm1(20) - 20, and a slope of expm1(20), not of 0."""
    policy = double([-25.0]).requires_grad_()
    value = k3(policy, double([0.0]))
    value.backward()
    slope = 485_165_194.41
    assert value.item() == pytest.approx(6 * slope - 20, rel=1e-9)
    assert policy.grad.item() == pytest.approx(-slope, rel=1e-9)


@pytest.mark.parametrize(
    ("advantage", "ratio", "gate", "slope"),
    [
        (1.0, 0.5, 1.510163, 0.470007), (1.0, 1.0, 2.0, 1.0), (1.0, 1.5, 2.489837, 1.410022),
        (1.0, 3.0, 3.523188, 1.259923),
        (-1.0, 0.5, 1.415938, 0.467070), (-1.0, 1.0, 1.904762, 1.0), (-1.0, 1.5, 2.393585, 1.401210),
        (-1.0, 3.0, 3.393917, 1.166336),
    ],
)  # fmt: skip
def test_f16_sapo_gate(advantage, ratio, gate, slope):
    policy, ones = double([[math.log(ratio)]]).requires_grad_(), torch.ones(1, 1, dtype=torch.float64)
    loss, _ = sapo_loss(policy, torch.zeros_like(ones), ones * advantage, ones.bool(), ones)
    loss.backward()
    six_digits(double([loss.item(), policy.grad.item()]), -advantage * double([gate, slope]))


@pytest.mark.parametrize(("low", "high", "name"), [(0.8, 1.2, "PPO 0.8/1.2"), (0.8, 1.28, "DAPO 0.8/1.28")])
def test_f18_bapo_with_frozen_bounds_is_ppo_or_dapo(low, high, name):
    frozen = BoundsRule(
        target=0.9, low=Range(start=low, ceiling=low, step=0.02), high=Range(start=high, ceiling=high, step=0.05)
    )
    bounds = balanced_bounds(OLD + DELTA, OLD, ADVANTAGES, MASK, frozen)
    assert (bounds.low, bounds.high, bounds.met) == (low, high, False)
    found = token_losses(partial(clipped_policy_loss, low=bounds.low, high=bounds.high))
    assert_close(found, token_losses(TABLE_6_4[name][0]), atol=0, rtol=0)
