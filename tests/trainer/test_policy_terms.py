"""From settings to terms: what a loss has to be told before an update, and which rows it asks for."""

from __future__ import annotations

import pytest
import torch

from support.commands import config_of
from whet.config.losses import KLConfig
from whet.trainer.losses import bounds_rule, entropy_term, kl_term, policy_term, policy_terms


def chosen_by(preset, ratios, credit, *settings):
    choose = policy_term(config_of(preset, *settings).loss, "token_mean").choose
    return choose(torch.tensor(ratios).log(), torch.zeros(len(ratios)), torch.tensor(credit))


def test_searches_that_can_reach_no_token_are_not_counted():
    bounds, metrics = chosen_by("bapo", [1.1, 0.95, 1.19], [1.0, -3.0, -1.0])
    assert (bounds["low"], bounds["high"]) == (0.9, 3.0)  # it ran out, to no effect
    reach = {name for name in metrics if name.startswith("bounds/reach_")}
    assert metrics.keys() - reach == {"bounds/in_reach"}  # what it can reach is told of every update
    assert [metrics[f"bounds/{name}"] for name in ("in_reach", "reach_start", "reach_end")] == pytest.approx(
        [0.0, 1.1 / 5.14, 1.1 / 5.14]
    )
    _, metrics = chosen_by("bapo", [1.1, 0.89, 1.19], [1.0, -3.0, -1.0])
    assert (metrics["bounds/in_reach"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (1, 1, 0)
    # P is 1.1; N is 0.89 x 3 + 1.19 at the start, and 0.9 x 3 + 1.19 at the end.
    assert [metrics[f"bounds/reach_{name}"] for name in ("start", "end", "most")] == pytest.approx(
        [1.1 / 4.96, 1.1 / 4.99, 1.1 / 4.96]
    )
    _, metrics = chosen_by("bapo", [1.5, 0.89], [1.0, -2.0])  # 1.2 / 2.98 = 0.403: met where it starts
    assert (metrics["bounds/moves"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (0, 0, 0)
    _, metrics = chosen_by("bapo", [1.5, 0.89], [1.0, -2.2])  # 1.3 / (1.3 + 1.958) = 0.399, and 1.35 is enough
    assert (metrics["bounds/moves"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (3, 0, 1)


def test_tokens_can_weigh_by_their_probability():
    choose = policy_term(config_of("bapo", "loss.bounds.token_weight=old").loss, "token_mean").choose
    old = torch.tensor([0.5, 0.1]).log()
    _, metrics = choose(old + torch.tensor([1.5, 0.89]).log(), old, torch.tensor([1.0, -2.2]))
    assert metrics["bounds/start_share"] == pytest.approx(1.2 * 0.5 / (1.2 * 0.5 + 0.89 * 2.2 * 0.1))


def test_a_term_asks_for_rows_without_credit_only_where_they_count():
    assert policy_term(config_of("grpo").loss, "token_mean").needs_credit
    kl = kl_term(KLConfig(coef=0.1), "token_mean")
    assert not kl.needs_credit
    assert kl.needs_reference
    assert (kl.weight, kl.corrected) == (0.1, False)


def test_what_the_presets_of_bapo_search_through():
    paper = bounds_rule(config_of("bapo").loss.bounds)
    assert (paper.target, paper.target_as, paper.order, paper.contribution) == (0.4, "share", "high_first", "value")
    assert (len(paper.low.values), len(paper.high.values)) == (16, 37)
    code = bounds_rule(config_of("bapo_code").loss.bounds)
    assert (code.target, code.target_as, code.order) == (1.0, "odds", "low_first")
    assert (len(code.low.values), len(code.high.values)) == (5, 17)


@pytest.mark.parametrize(("aggregation", "length"), [("token_mean", None), ("sequence_mean", None), ("constant", 96)])
def test_only_a_mean_over_a_constant_length_has_one(aggregation, length):
    assert policy_term(config_of("grpo").loss, aggregation, length=96).constant_length == length
    assert kl_term(KLConfig(coef=0.1), aggregation, length=96).constant_length == length
    assert entropy_term(0.1, aggregation, length=96).constant_length == length


def test_the_bonus_stands_beside_the_loss_where_it_has_a_weight():
    config = config_of("agentgym_rl_textcraft")
    loss, kl, bonus = policy_terms(config.loss, config.kl, config.aggregation, entropy=config.entropy_coef)
    assert (loss.needs_entropy, kl.weight, bonus.weight) == (False, 0.001, 0.001)
    assert (bonus.needs_entropy, bonus.needs_credit, bonus.needs_old, bonus.corrected) == (True, False, False, False)
    assert len(policy_terms(config.loss, config.kl, config.aggregation)) == 2
