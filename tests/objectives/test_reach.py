"""What BAPO's search can reach, and effective sample sizes: numbers to redo by hand."""

import math

import pytest
import torch

from whet.objectives import (
    CODE_RULE,
    GRADIENT_RULE,
    PAPER_RULE,
    contributions,
    effective_sample_size,
    least_start_share,
    ratio_diagnostics,
    reach,
    search,
    target_share,
)

# Batch S of the spec's 6.1; old logprobs are 0.
RATIO = torch.tensor([0.92, 1.31, 1.72, 2.43, 0.33, 0.66, 0.77, 0.96, 1.04, 1.07], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0] * 4 + [-1.0] * 6, dtype=torch.float64)


def given_ratios(ratio, advantages):
    return ratio.log(), torch.zeros_like(ratio), advantages, torch.ones_like(ratio, dtype=torch.bool)


BATCH_S = given_ratios(RATIO, ADVANTAGES)


def reach_of(batch, rule):
    return reach(contributions(*batch, rule), rule)


def test_the_paper_reaches_most_at_the_upper_end_alone():
    found = reach_of(BATCH_S, PAPER_RULE)  # F2 and F4: N is 5.10 at 0.6 and 5.77 at 0.9, P is 4.52 and 6.38
    assert (found.start, found.end, found.most) == pytest.approx((4.52 / 9.62, 6.38 / 12.15, 6.38 / 11.48))
    assert not found.is_short


def test_the_code_raises_the_lower_bound_first():
    found = reach_of(BATCH_S, CODE_RULE)  # F3: odds from 0.886 to 1.088 at (0.8, 2.0)
    assert (found.start, found.end) == pytest.approx((0.886275 / 1.886275, 1.087751 / 2.087751), abs=1e-6)
    assert found.most == found.end
    assert found.target == 0.5


def test_by_gradient_both_ends_help():
    found = reach_of(BATCH_S, GRADIENT_RULE)  # F2 and F5
    assert (found.start, found.end, found.most) == pytest.approx((0.169742, 0.675132, 0.675132), abs=1e-6)


def test_a_search_stops_within_its_reach_and_ends_short_where_that_is():
    generator = torch.Generator().manual_seed(3)
    num_short = 0
    for rule in (PAPER_RULE, CODE_RULE, GRADIENT_RULE):
        for _ in range(30):
            ratio = torch.randn(40, generator=generator, dtype=torch.float64).mul(0.6).exp()
            credit = torch.randn(40, generator=generator, dtype=torch.float64) - 0.1
            sums = contributions(*given_ratios(ratio, credit), rule)
            within, bounds = reach(sums, rule), search(sums, rule)
            assert bounds.share <= within.most + 1e-12
            assert bounds.met == (not within.is_short)
            assert bounds.start_share == within.start
            num_short += within.is_short
    assert 10 < num_short < 80


def test_on_policy_there_is_no_lever():
    found = reach_of(given_ratios(torch.ones_like(RATIO), ADVANTAGES), PAPER_RULE)
    assert found.start == found.end == found.most == pytest.approx(0.4)


def test_without_credit_there_is_no_share():
    found = reach_of(given_ratios(RATIO, torch.zeros_like(RATIO)), PAPER_RULE)
    assert all(map(math.isnan, (found.start, found.end, found.most)))


def test_what_no_ratios_can_lift():
    # P can grow by 3 / 1.2 at most: odds of 2/3 need 0.2667, a share of 0.2105. The code: odds 1 by 2 / 1.2 from 0.6.
    assert least_start_share(PAPER_RULE) == pytest.approx((2 / 3 / 2.5) / (1 + 2 / 3 / 2.5))
    assert least_start_share(CODE_RULE) == pytest.approx(0.375)
    assert least_start_share(GRADIENT_RULE) == 0
    assert [target_share(rule) for rule in (PAPER_RULE, CODE_RULE)] == [0.4, 0.5]
    for share, is_short in ((0.2106, False), (0.2104, True)):  # the best case: good ratios of 3, bad ones of 0.6
        credit = torch.tensor([share / 1.2, -(1 - share) / 0.6], dtype=torch.float64)
        found = reach_of(given_ratios(torch.tensor([3.0, 0.6], dtype=torch.float64), credit), PAPER_RULE)
        assert (found.start, found.is_short) == (pytest.approx(share), is_short)


# -- effective sample sizes


def test_effective_sample_size_by_hand():
    assert effective_sample_size(torch.ones(5)) == 1
    assert effective_sample_size(torch.tensor([1.0, 1.0, 2.0])) == pytest.approx(16 / (3 * 6))
    assert effective_sample_size(torch.tensor([3.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert math.isnan(effective_sample_size(torch.zeros(2)))


def test_rows_have_the_product_of_their_ratios():
    ratio = torch.tensor([2.0, 2.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    found = ratio_diagnostics(ratio.log(), torch.zeros(5, dtype=torch.float64), [2, 2, 0, 1])
    # Tokens: 6.5^2 / (5 x 10.25). Rows with tokens: 4, 0.5, 1.
    expected = {"ratio/effective_samples": 6.5**2 / (5 * 10.25), "ratio/effective_rows": 5.5**2 / (3 * 17.25)}
    assert found == pytest.approx(expected)


def test_longer_rows_lose_samples_at_the_same_ratios_of_tokens():
    generator = torch.Generator().manual_seed(0)
    log_ratio = torch.randn(4000, generator=generator, dtype=torch.float64) * 0.1
    sizes = {
        n: ratio_diagnostics(log_ratio, torch.zeros_like(log_ratio), [n] * (4000 // n))["ratio/effective_rows"]
        for n in (1, 10, 100)
    }
    assert sizes[1] > 0.98 > sizes[10] > 0.85 > sizes[100] > 0.1  # about exp(-0.01 n)


def test_without_tokens_there_is_nothing_to_tell():
    assert ratio_diagnostics(torch.zeros(0), torch.zeros(0), []) == {}
