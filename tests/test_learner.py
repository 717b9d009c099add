"""The learner on rows without credit, and on micro-batches of any size."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

from whet.config.parts import LearningConfig
from whet.models.scoring import micro_batches, score, token_logprobs
from whet.objectives import (
    balanced_bounds,
    clipped_policy_loss,
    importance_weights,
    k3,
    kl_loss,
    update_diagnostics,
)
from whet.training.learner import Learner
from whet.training.rule import UpdateRule, means_of
from whet.types import Row

LOSS = partial(clipped_policy_loss, low=0.8, high=1.2)


def rows_of(credits, seed=0):
    """Rows of different lengths, two to a context; old logprobs are left to the learner."""
    torch.manual_seed(seed)
    rows = []
    for i, credit in enumerate(credits):
        context, text = (5, 6, 7 + i // 2), tuple(torch.randint(5, 50, (2 + i % 3,)).tolist())
        mask = (False,) * 3 + (True,) * len(text)
        credit_T = (0.0,) * 3 + (credit,) * len(text)
        rows.append(Row(policy="p", tokens=context + text, loss_mask=mask, credit=credit_T, logprobs=None))
    return rows


def learnt(policy, steps, *, needs_credit=True, token_budget=1000, minibatch_rows=100, aggregation="token_mean"):
    """The weights after these steps' updates, and the last one's metrics."""
    policy = copy.deepcopy(policy)
    learning = LearningConfig(learning_rate=1e-3, token_budget=token_budget, minibatch_rows=minibatch_rows)
    learner = Learner(policy, UpdateRule(LOSS, aggregation, learning, num_updates=10, needs_credit=needs_credit))
    for seed, rows in enumerate(steps):
        metrics = learner.update(rows, seed=seed)
    return torch.cat([p.detach().flatten() for p in learner.parameters]), metrics, learner


def apart(one, other, start):
    """How far two updates differ, in steps."""
    return float((one - other).norm() / (one - start).norm())


def weights_of(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_rows_without_credit_count_in_the_mean_and_are_not_computed(random_policy, aggregation):
    rows = rows_of([1.0, 0.0, -0.5, 0.0, 0.0, 0.0])
    every, _, _ = learnt(random_policy, [rows], needs_credit=False, aggregation=aggregation)
    seen = []
    random_policy.model.model.embed_tokens.register_forward_pre_hook(lambda _, given: seen.append(given[0].numel()))
    few, metrics, _ = learnt(random_policy, [rows], aggregation=aggregation)
    assert seen == [10, 10]  # two rows of 3 + 2 and 3 + 4 tokens, of which they share 2: scored, then trained on
    assert apart(few, every, weights_of(random_policy)) < 1e-3
    assert metrics["rows/without_credit"] == pytest.approx(4 / 6)
    # Were they not in the mean, the gradient would be another.
    _, alone, _ = learnt(random_policy, [[rows[0], rows[2]]], aggregation=aggregation)
    ratio = 6 / 2 if aggregation == "sequence_mean" else 18 / 6
    assert alone["optim/grad_norm"] == pytest.approx(ratio * metrics["optim/grad_norm"], rel=1e-3)


def test_a_step_without_any_credit_keeps_its_place(random_policy):
    steps = [rows_of([1.0, -1.0]), rows_of([0.0, 0.0], seed=1), rows_of([1.0, -1.0], seed=2)]
    every, _, _ = learnt(random_policy, steps, needs_credit=False)
    few, metrics, learner = learnt(random_policy, steps)
    assert learner.num_updates == 3
    assert metrics["rows/without_credit"] == 0
    assert apart(few, every, weights_of(random_policy)) < 1e-3
    before, _, _ = learnt(random_policy, steps[:1])
    after, metrics, _ = learnt(random_policy, steps[:2])
    assert metrics["optim/grad_norm"] == 0
    assert metrics["rows/without_credit"] == 1
    assert not torch.equal(before, after)  # Adam's momentum goes on, as it would with a gradient of zeros


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_the_size_of_micro_batches_changes_nothing_but_rounding(random_policy, aggregation):
    rows = rows_of([1.0, -0.3, 0.2, 0.7, -1.0, 0.1, 0.4])
    whole, metrics, _ = learnt(random_policy, [rows], aggregation=aggregation)
    for budget in (20, 9, 1):
        split, same, _ = learnt(random_policy, [rows], aggregation=aggregation, token_budget=budget)
        assert apart(split, whole, weights_of(random_policy)) < 1e-3
        for name, value in metrics.items():
            assert same[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_a_first_token_cannot_train():
    with pytest.raises(ValueError, match="first token cannot train"):
        Row(policy="p", tokens=(5, 6), loss_mask=(True, True), credit=(1.0, 1.0), logprobs=None)


# --- rules that look at a whole update -------------------------------------------------------------------------------


def stale_rows():
    """Rows whose old logprobs are a policy's from before: ratios on both sides of any bound."""
    rows = rows_of([1.0, -0.3, 0.2, 0.7, -1.0, 0.1, 0.4, -0.6])
    generator = torch.Generator().manual_seed(1)
    return [
        replace(row, logprobs=tuple((torch.randn(len(row.tokens), generator=generator) - 4).tolist())) for row in rows
    ]


@pytest.mark.parametrize("token_budget", [1000, 20, 1])
def test_a_rule_is_asked_once_an_update_with_all_of_its_tokens(random_policy, token_budget):
    rows, asked, observed = stale_rows(), [], []

    def choose(policy_N, old_N, credit_N):
        found = balanced_bounds(policy_N, old_N, credit_N, torch.ones_like(policy_N, dtype=torch.bool))
        asked.append((sorted(old_N.tolist()), found))
        return {"low": found.low, "high": found.high}, {"bounds/low": found.low, "bounds/high": found.high}

    def observe(policy_N, old_N, credit_N, entropy_N, pushes_N, *, low, high):
        observed.append((len(policy_N), low, high))
        ratio = (policy_N - old_N).exp()
        stopped = ((credit_N > 0) & (ratio > high)) | ((credit_N < 0) & (ratio < low))
        torch.testing.assert_close(pushes_N, torch.where(stopped, 0.0, ratio * credit_N), rtol=1e-4, atol=1e-6)
        return {"seen": 1.0}

    learning = LearningConfig(minibatch_rows=4, token_budget=token_budget)
    rule = UpdateRule(clipped_policy_loss, "token_mean", learning, num_updates=2, choose=choose, observe=observe)
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert len(asked) == len(observed) == 2  # two minibatches
    given = sorted(p for row in rows for p, trains in zip(row.logprobs, row.loss_mask, strict=True) if trains)
    assert sorted(p for old, _ in asked for p in old) == pytest.approx(given)
    assert [(low, high) for _, low, high in observed] == [(found.low, found.high) for _, found in asked]
    assert metrics["bounds/high_max"] == max(found.high for _, found in asked)
    assert metrics["bounds/low_min"] == min(found.low for _, found in asked)


def balanced_reference(policy, rows):
    """The bounds of all rows at once, by the function itself."""
    logprobs = torch.cat(score(policy, rows, token_budget=1000))
    old = torch.tensor([p for row in rows for p, m in zip(row.logprobs, row.loss_mask, strict=True) if m])
    credit = torch.tensor([c for row in rows for c, m in zip(row.credit, row.loss_mask, strict=True) if m])
    return balanced_bounds(logprobs, old, credit, torch.ones_like(old, dtype=torch.bool))


@pytest.mark.parametrize("token_budget", [1000, 1])
def test_the_bounds_are_those_of_the_minibatch(random_policy, token_budget):
    rows, found = stale_rows(), []

    def choose(policy_N, old_N, credit_N):
        found.append(balanced_bounds(policy_N, old_N, credit_N, torch.ones_like(policy_N, dtype=torch.bool)))
        return {"low": found[0].low, "high": found[0].high}, {}

    expected = balanced_reference(random_policy, rows)
    learning = LearningConfig(minibatch_rows=100, token_budget=token_budget)
    rule = UpdateRule(clipped_policy_loss, "token_mean", learning, num_updates=1, choose=choose)
    Learner(random_policy, rule).update(rows, seed=0)
    assert [(f.low, f.high, f.num_moves) for f in found] == [(expected.low, expected.high, expected.num_moves)]


def test_what_a_loss_pushes_with_is_told_without_its_leash(random_policy):
    """Else a KL would give every clipped token a push, and the clip would look as if it stopped none."""
    rows, pushed = [replace(row, ref_logprobs=(-3.0,) * len(row.tokens)) for row in stale_rows()], []

    def observe(policy_N, old_N, credit_N, entropy_N, pushes_N):
        pushed.append(pushes_N)
        return {}

    def leash(policy_BT, ref_BT, mask_BT, weight_BT):
        kl, metrics = kl_loss(policy_BT, ref_BT, mask_BT, weight_BT, estimator="k2")
        return 0.5 * kl, metrics

    term = partial(clipped_policy_loss, low=0.8, high=1.2)
    norms = []
    for held in (None, leash):
        rule = UpdateRule(term, "token_mean", LearningConfig(minibatch_rows=100, learning_rate=1e-9), num_updates=1,
                          observe=observe, leash=held)  # fmt: skip
        metrics = Learner(random_policy, rule).update(rows, seed=0)
        norms.append(metrics["optim/grad_norm"])
        assert ("kl/ref" in metrics) == (held is not None)
    assert norms[0] != pytest.approx(norms[1], rel=1e-2)  # the leash does pull
    assert (pushed[0] == 0).any()
    torch.testing.assert_close(pushed[1], pushed[0], rtol=1e-3, atol=1e-5)


def test_a_step_logs_means_and_of_some_the_extremes():
    updates = [{"optim/grad_norm": 1.0, "staleness/max": 2.0}, {"optim/grad_norm": 201.0}, {"optim/grad_norm": 1.0}]
    found = means_of(updates)
    assert found["optim/grad_norm"] == pytest.approx(203 / 3)
    assert (found["optim/grad_norm_min"], found["optim/grad_norm_max"]) == (1, 201)
    assert found["staleness/max"] == 2


@pytest.mark.parametrize(("every", "measured", "predicted"), [(0, 0, 2), (1, 2, 2), (2, 1, 1), (3, 0, 0)])
def test_a_prediction_stands_beside_the_measurement_of_the_same_update(random_policy, every, measured, predicted):
    found = []

    def observe(*tokens, **chosen):
        found.append(update_diagnostics(*tokens)["entropy/predicted"])
        return {"entropy/predicted": found[-1]}

    learning = LearningConfig(minibatch_rows=4)
    rule = UpdateRule(LOSS, "token_mean", learning, num_updates=2, observe=observe, probe_every=every)
    metrics = Learner(random_policy, rule).update(stale_rows(), seed=0)
    assert ("entropy/measured" in metrics, "entropy/falls" in metrics) == (measured > 0, measured > 0)
    if predicted:
        assert metrics["entropy/predicted"] == pytest.approx(sum(found[-predicted:]) / predicted)
    else:
        assert "entropy/predicted" not in metrics


def test_a_proximal_policy_has_a_ratio_of_one_and_the_correction_tells_the_rest(random_policy):
    rows = stale_rows()
    learning = LearningConfig(minibatch_rows=100)
    seen = []

    def correct(proximal_BT, sampler_BT, mask_BT):
        seen.append((proximal_BT, sampler_BT, mask_BT))
        return importance_weights(proximal_BT, sampler_BT, mask_BT, high=2.0)

    rule = UpdateRule(LOSS, "token_mean", learning, num_updates=1, proximal=True, correct=correct)
    sampler = [p for row in rows for p, m in zip(row.logprobs, row.loss_mask, strict=True) if m]
    scores = torch.cat(score(random_policy, rows, token_budget=1000))
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-5)
    [(proximal_BT, sampler_BT, mask_BT)] = seen
    assert sorted(sampler_BT[mask_BT].tolist()) == pytest.approx(sorted(sampler))
    assert sorted(proximal_BT[mask_BT].tolist()) == pytest.approx(sorted(scores.tolist()), abs=1e-5)
    assert metrics["kl/sampler"] == pytest.approx(float(k3(torch.tensor(sampler), scores).mean()), rel=1e-4)


def test_a_probe_measures_the_change_of_entropy_that_an_update_made(random_policy):
    rows = rows_of([1.0, -0.5, 0.3])
    learning = LearningConfig(learning_rate=1e-2)

    def entropy():
        found = [token_logprobs(random_policy, b, entropy=True)[1] for b in micro_batches(random_policy, rows, 1000)]
        return float(torch.cat(found).mean())

    before = entropy()
    rule = UpdateRule(LOSS, "token_mean", learning, num_updates=4, probe_every=2)
    learner = Learner(random_policy, rule)
    assert "entropy/measured" not in learner.update(rows, seed=0)
    middle = entropy()
    metrics = learner.update(rows, seed=1)
    assert metrics["entropy/measured"] == pytest.approx(entropy() - middle, abs=1e-6)
    assert middle != before


def test_ages_count_updates(random_policy):
    rows = [replace(row, versions=((0, row.num_trained),)) for row in rows_of([1.0, -1.0])]
    learning = LearningConfig(num_epochs=2)
    learner = Learner(random_policy, UpdateRule(LOSS, "token_mean", learning, num_updates=8))
    metrics = learner.update(rows, seed=0)
    assert (metrics["staleness/mean"], metrics["staleness/max"], metrics["staleness/share"]) == (0.5, 1.0, 0.5)
    metrics = learner.update(rows, seed=1)
    assert (metrics["staleness/mean"], metrics["staleness/max"], metrics["staleness/share"]) == (2.5, 3.0, 1.0)
