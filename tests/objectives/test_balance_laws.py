"""BAPO's bound search against the loops of paper and published code, laws, and the edge cases of the spec's 2.8."""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from whet.objectives import CODE_RULE, GRADIENT_RULE, PAPER_RULE, BoundsRule, Range, balanced_bounds, contributions

laws = settings(deadline=None, max_examples=50)
seeds = st.integers(0, 2**32 - 1)
presets = st.sampled_from([PAPER_RULE, CODE_RULE, GRADIENT_RULE])


def double(values):
    return torch.tensor(values, dtype=torch.float64)


# Batch S of the spec's 6.1.
RATIO = double([0.92, 1.31, 1.72, 2.43, 0.33, 0.66, 0.77, 0.96, 1.04, 1.07])
ADVANTAGES = double([1.0] * 4 + [-1.0] * 6)
BATCH_S = RATIO.log(), torch.zeros_like(RATIO), ADVANTAGES, torch.ones_like(RATIO, dtype=torch.bool)


def six_digits(*values):
    return pytest.approx(values, abs=6e-7)


def a_batch(seed, size=12):
    """Policy and old logprobs, advantages, mask; float64, ratios on both sides of all bounds."""
    generator = torch.Generator().manual_seed(seed)
    shift, old, advantages = torch.randn(3, size, generator=generator, dtype=torch.float64)
    return 0.6 * shift + old, old, advantages, torch.rand(size, generator=generator) < 0.8


# -- the slow, obvious loop


def slow_search(tokens, rule):
    """Spec 2.2 and 2.3: from the start of both ranges, one step at a time, all sums taken anew for every candidate.

    Tokens are (ratio, advantage, weight). Returns low, high, and how close any measure came to the target.
    """

    def sums(low, high):
        positive = negative = 0.0
        for ratio, advantage, weight in tokens:
            if rule.contribution == "value":
                positive += weight * min(ratio, high) * advantage if advantage > 0 else 0.0
                negative += weight * max(ratio, low) * -advantage if advantage < 0 else 0.0
            else:
                positive += weight * ratio * advantage if advantage > 0 and ratio < high else 0.0
                negative += weight * ratio * -advantage if advantage < 0 and ratio > low else 0.0
        return positive, negative

    def measure(low, high):
        positive, negative = sums(low, high)
        if negative == 0:  # nothing pushes down: there is balance, unless what could push up is stopped
            return math.inf if positive > 0 or nothing else 0.0
        return positive / (negative + 1e-8) if rule.target_as == "odds" else positive / (positive + negative)

    def later_bounds(r):
        num_steps = 1
        while r.step > 0 and r.start + num_steps * r.step <= r.ceiling + 1e-9:
            yield r.start + num_steps * r.step
            num_steps += 1
        if r.step > 0 and r.onto_ceiling and r.start + (num_steps - 1) * r.step < r.ceiling - 1e-9:
            yield r.ceiling

    low, high = rule.low.start, rule.high.start
    nothing = sums(low, max([high, *later_bounds(rule.high)])) == (0.0, 0.0)  # at the widest bounds
    to_come = {"low": list(later_bounds(rule.low)), "high": list(later_bounds(rule.high))}
    first, second = ("high", "low") if rule.order == "high_first" else ("low", "high")
    closest = math.inf
    while True:
        found = measure(low, high)
        closest = min(closest, abs(found - rule.target))
        name = first if to_come[first] else second
        if found >= rule.target or not to_come[name]:
            return low, high, closest
        bound = to_come[name].pop(0)
        low, high = (bound, high) if name == "low" else (low, bound)


RANGES_LOW = [(0.6, 0.9, 0.02), (0.6, 0.8, 0.05), (0.8, 0.95, 0.05), (0.8, 0.9, 0.03), (0.7, 0.7, 0.1), (0.5, 0.9, 0.0)]
RANGES_HIGH = [(1.2, 3.0, 0.05), (1.2, 2.0, 0.05), (1.2, 2.0, 0.1), (1.2, 2.0, 0.15), (1.3, 1.3, 0.1), (1.1, 2.0, 0.0)]


def a_rule(rng):
    def a_range(start, ceiling, step):
        return Range(start=start, ceiling=ceiling, step=step, onto_ceiling=rng.random() < 0.5)

    unit = rng.choice(["share", "odds"])
    mixed = BoundsRule(
        target=rng.uniform(0.05, 0.95) if unit == "share" else rng.uniform(0.1, 3.0),
        target_as=unit,
        order=rng.choice(["high_first", "low_first"]),
        contribution=rng.choice(["value", "gradient"]),
        low=a_range(*rng.choice(RANGES_LOW)),
        high=a_range(*rng.choice(RANGES_HIGH)),
    )
    preset = rng.choice([PAPER_RULE, CODE_RULE, GRADIENT_RULE])
    return rng.choice([mixed, preset, replace(preset, target=rng.uniform(0.2, 0.8))])


def test_the_fast_search_is_the_slow_obvious_loop():
    rng = random.Random(0)
    num_ties = num_met_at_once = num_met = num_saturated = 0
    for _ in range(10_000):
        rule, size = a_rule(rng), rng.choice([0, 1, 2, 3, 5, 8, 13])
        log_ratio = [rng.gauss(0, 0.6) for _ in range(size)]
        signs = rng.choice([(1,), (-1,), (1, -1), (1, -1), (1, -1), (1, -1, -1, -1), (1, -1, 0), (0,)])
        advantages = [rng.choice(signs) * rng.uniform(0.1, 2) for _ in range(size)]
        weights = [rng.uniform(0.01, 1) for _ in range(size)] if rng.random() < 0.3 else [1.0] * size
        valid = [rng.random() < 0.8 for _ in range(size)]
        tokens = [(math.exp(log_ratio[i]), advantages[i], weights[i]) for i in range(size) if valid[i]]
        good, bad = (sum(r * w * max(sign * a, 0) for r, a, w in tokens) for sign in (1, -1))
        if good and bad and rng.random() < 0.7:  # near what can be reached, or nearly all would saturate
            near = good / (good + bad) if rule.target_as == "share" else good / bad
            rule = replace(rule, target=near * rng.uniform(0.85, 1))
        low, high, closest = slow_search(tokens, rule)
        if closest < 1e-12:  # rounding decides
            num_ties += 1
            continue
        bounds = balanced_bounds(
            double([x if ok else math.nan for x, ok in zip(log_ratio, valid, strict=True)]),
            torch.zeros(size, dtype=torch.float64),
            double(advantages),
            torch.tensor(valid, dtype=torch.bool),
            rule,
            token_weight=None if weights == [1.0] * size else double(weights),
        )
        # Neighbouring bounds are 0.02 apart and more: 1e-12 leaves no other candidate.
        assert max(abs(bounds.low - low), abs(bounds.high - high)) < 1e-12, (rule, tokens)
        num_met_at_once += bounds.met and bounds.num_moves == 0
        num_met += bounds.met and bounds.num_moves > 0
        num_saturated += not bounds.met
    assert num_ties < 10
    assert min(num_met_at_once, num_met, num_saturated) > 500


# -- laws


@laws
@given(seeds, presets)
def test_contributions_are_monotone_in_each_bound(seed, rule):
    sums = contributions(*a_batch(seed), rule)
    num_high = len(rule.high.values)
    positive, negative = sums[:num_high].diff(), sums[num_high:].diff()
    assert (positive >= -1e-12).all()  # a higher upper bound never lowers the share
    # A higher lower bound never raises it by value, and never lowers it by gradient.
    assert ((negative if rule.contribution == "value" else -negative) >= -1e-12).all()


@laws
@given(seeds, presets, st.floats(0.25, 0.75))
def test_scale_and_order_of_tokens_do_not_matter(seed, rule, target):
    policy, old, advantages, mask = a_batch(seed)
    rule = replace(rule, target=target)
    bounds = balanced_bounds(policy, old, advantages, mask, rule)
    scaled = balanced_bounds(policy, old, 4 * advantages, mask, rule)
    assert (scaled.low, scaled.high) == (bounds.low, bounds.high)
    assert (scaled.positive, scaled.negative) == pytest.approx((4 * bounds.positive, 4 * bounds.negative))
    order = torch.randperm(len(mask), generator=torch.Generator().manual_seed(seed))
    moved = balanced_bounds(policy[order], old[order], advantages[order], mask[order], rule)
    assert (moved.low, moved.high) == (bounds.low, bounds.high)
    folded = balanced_bounds(*(x.reshape(3, 4) for x in (policy, old, advantages, mask)), rule)
    assert folded == bounds


@laws
@given(seeds, presets, st.integers(0, 12))
def test_shards_add_up(seed, rule, cut):
    batch = a_batch(seed)
    first, second = (contributions(*(x[part] for x in batch), rule) for part in (slice(0, cut), slice(cut, None)))
    assert_close(first + second, contributions(*batch, rule))


@laws
@given(seeds, presets, st.sampled_from([math.nan, math.inf, -math.inf, 1e9]))
def test_masked_tokens_change_nothing(seed, rule, fill):
    policy, old, advantages, mask = a_batch(seed)
    weights = advantages.abs()
    spoilt = (torch.where(mask, x, fill) for x in (policy, old, advantages))
    got = contributions(*spoilt, mask, rule, token_weight=torch.where(mask, weights, fill))
    left = contributions(policy[mask], old[mask], advantages[mask], mask[mask], rule, token_weight=weights[mask])
    assert_close(got, left)


# -- edge cases of 2.8


def test_nothing_to_balance_keeps_the_start():
    policy, old, advantages, mask = BATCH_S
    for rule in (PAPER_RULE, CODE_RULE, GRADIENT_RULE):
        for batch in (
            (policy, old, advantages, ~mask),
            (policy, old, 0 * advantages, mask),
            tuple(x[:0] for x in BATCH_S),
        ):
            bounds = balanced_bounds(*batch, rule)
            assert (bounds.low, bounds.high, bounds.num_moves) == (rule.low.start, rule.high.start, 0)
            assert (bounds.positive, bounds.negative) == (0, 0)
            assert math.isnan(bounds.share)
            assert math.isnan(bounds.start_share)


def test_zero_credit_counts_for_nothing():
    policy, old, advantages, mask = BATCH_S
    more = torch.cat([policy, double([-3, 3])]), torch.cat([old, old[:2]]), torch.cat([advantages, double([0, 0])])
    for rule in (PAPER_RULE, CODE_RULE, GRADIENT_RULE):
        assert_close(contributions(*more, torch.cat([mask, mask[:2]]), rule), contributions(*BATCH_S, rule))


def test_a_trained_token_that_is_no_number_is_refused():
    for rule in (PAPER_RULE, CODE_RULE, GRADIENT_RULE):
        for tensor, index, fill in itertools.product((0, 1, 2), range(10), (math.nan, math.inf, -math.inf)):
            batch = [x.clone() for x in BATCH_S]
            batch[tensor][index] = fill
            with pytest.raises(ValueError, match="a logprob or an advantage of a trained token is NaN or inf"):
                balanced_bounds(*batch, rule)


def test_ratios_are_bounded_before_they_are_exponentiated():
    bounds = balanced_bounds(double([1e4, -1e4]), double([0, 0]), double([-1.0, -1.0]), torch.ones(2, dtype=torch.bool))
    assert bounds.negative == pytest.approx(math.exp(20) + 0.9)


def test_by_gradient_a_stopped_token_is_let_in_rather_than_called_balanced():
    both_stopped = double([1.5, 0.5]).log(), double([0, 0]), double([1.0, -1.0]), torch.ones(2, dtype=torch.bool)
    bounds = balanced_bounds(*both_stopped, GRADIENT_RULE)  # P = N = 0 at the start, P = 1.5 from 1.55 on
    assert (bounds.low, bounds.high, bounds.met) == (0.6, pytest.approx(1.55), True)
    only_bad = double([0.65, 0.64]).log(), double([0, 0]), double([-1.0, -1.0]), torch.ones(2, dtype=torch.bool)
    bounds = balanced_bounds(*only_bad, GRADIENT_RULE)  # without good tokens no target is met, also not by N = 0
    assert (bounds.low, bounds.high, bounds.met) == (0.9, 3.0, False)


def test_a_bound_stops_what_reaches_it():
    at_one = Range(start=1.0, ceiling=1.0, step=0.0)
    zeros, mask = torch.zeros(2), torch.ones(2, dtype=torch.bool)
    for rule, expected in ((PAPER_RULE, [2.0, 3.0]), (GRADIENT_RULE, [0.0, 0.0])):
        sums = contributions(zeros, zeros, double([2.0, -3.0]), mask, replace(rule, low=at_one, high=at_one))
        assert sums.tolist() == expected


def test_bounds_carry_no_gradient():
    policy, old, advantages, mask = BATCH_S
    policy = policy.clone().requires_grad_()
    assert not contributions(policy, old, advantages.clone().requires_grad_(), mask, PAPER_RULE).requires_grad
    bounds = balanced_bounds(policy, old, advantages, mask)
    assert all(isinstance(x, float) for x in (bounds.low, bounds.high, bounds.positive, bounds.negative))


def test_a_frozen_bound_stays_and_lets_the_other_one_move():
    frozen_low = replace(PAPER_RULE, target=0.5, low=Range(start=0.6, ceiling=0.6, step=0.02))
    bounds = balanced_bounds(*BATCH_S, frozen_low)
    assert (bounds.low, bounds.high) == six_digits(0.6, 1.45)  # the paper's loop would not start
    frozen_high = replace(GRADIENT_RULE, target=0.18, high=Range(start=1.2, ceiling=2.0, step=0))
    bounds = balanced_bounds(*BATCH_S, frozen_high)
    assert (bounds.low, bounds.high) == six_digits(0.66 + 0.02, 1.2)  # 0.92 / (0.92 + 3.84)
    nothing = replace(frozen_low, high=Range(start=1.2, ceiling=1.2, step=0.05))
    assert balanced_bounds(*BATCH_S, nothing).num_moves == 0


# -- ranges and rules


def test_range_by_hand():
    options = {"start": 0.6, "ceiling": 0.9, "step": 0.08}
    assert Range(**options).values == six_digits(0.60, 0.68, 0.76, 0.84)  # a step past the ceiling is not taken
    assert Range(**options, onto_ceiling=True).values == six_digits(0.60, 0.68, 0.76, 0.84, 0.90)
    for onto in (False, True):
        assert Range(start=0.8, ceiling=0.8, step=0.1, onto_ceiling=onto).values == (0.8,)
        assert Range(start=0.8, ceiling=0.9, step=0.0, onto_ceiling=onto).values == (0.8,)  # frozen by its step
        assert Range(start=0.8, ceiling=0.85, step=0.1, onto_ceiling=onto).values == ((0.8, 0.85) if onto else (0.8,))


@laws
@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 30), st.booleans())
def test_ranges_end_where_their_decimals_say(start, room, step, onto):
    values = Range(start=start / 100, ceiling=(start + room) / 100, step=step / 100, onto_ceiling=onto).values
    steps, rest = divmod(room, step)
    expected = [(start + k * step) / 100 for k in range(steps + 1)] + [(start + room) / 100] * (onto and rest > 0)
    assert values == pytest.approx(expected, abs=1e-12)
    assert values[-1] <= (start + room) / 100


def test_rules_refuse_what_they_cannot_do():
    for options in (
        {"start": 0.9, "ceiling": 0.6},
        {"start": -0.1, "ceiling": 0.5},
        {"start": 0.5, "ceiling": math.inf},
    ):
        with pytest.raises(ValueError, match="from its start up to its ceiling"):
            Range(**options, step=0.1)
    with pytest.raises(ValueError, match="steps that are not negative"):
        Range(start=0.5, ceiling=0.6, step=-0.1)
    for target in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="share has to be between 0 and 1"):
            BoundsRule(target=target)
    with pytest.raises(ValueError, match="odds has to be more than 0, got 0"):
        BoundsRule(target=0, target_as="odds")
    with pytest.raises(ValueError, match="ranges meet"):
        BoundsRule(low=Range(start=0.6, ceiling=1.3, step=0.1))
    with pytest.raises(ValueError, match=r"unknown order 'paper': choose one of high_first, low_first\."):
        BoundsRule(order="paper")
    with pytest.raises(ValueError, match=r"unknown contribution 'grad': choose one of value, gradient\."):
        BoundsRule(contribution="grad")
    with pytest.raises(ValueError, match=r"unknown target_as 'ratio': choose one of share, odds\."):
        BoundsRule(target_as="ratio")
