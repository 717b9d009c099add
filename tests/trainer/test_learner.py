"""The learner on rows without credit, and on micro-batches of any size."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

from support.rows import row_of
from whet.config.losses import KLConfig
from whet.config.parts import LearningConfig
from whet.models.scoring import micro_batches, score, token_logprobs
from whet.objectives import (
    balanced_bounds,
    clipped_policy_loss,
    entropy_loss,
    importance_weights,
    k3,
    update_diagnostics,
)
from whet.trainer import learner as learner_module
from whet.trainer.flat import joined, trained
from whet.trainer.learner import Learner, backward_through
from whet.trainer.losses import EntropyClip, corrected, entropy_term, kl_term
from whet.trainer.passes import minibatches
from whet.trainer.terms import Term, Update, means_of, on_tokens

CLIP = on_tokens(clipped_policy_loss, low=0.8, high=1.2)


def rows_of(credits, seed=0):
    """Rows of different lengths, two to a context; old logprobs are left to the learner."""
    torch.manual_seed(seed)
    rows = []
    for i, credit in enumerate(credits):
        rows.append(row_of((5, 6, 7 + i // 2), torch.randint(5, 50, (2 + i % 3,)).tolist(), credit))
    return rows


def learnt(policy, steps, *, needs_credit=True, token_budget=1000, minibatch_rows=100, aggregation="token_mean"):
    """The weights after these steps' updates, and the last one's metrics."""
    policy = copy.deepcopy(policy)
    learning = LearningConfig(learning_rate=1e-3, token_budget=token_budget, minibatch_rows=minibatch_rows)
    term = Term(CLIP, aggregation=aggregation, needs_credit=needs_credit)
    learner = Learner(policy, Update((term,), learning, num_updates=10))
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


def test_gradients_of_many_passes_add_up_in_float32(random_policy, monkeypatch):
    """Of weights in bfloat16: what one pass gives, to the rounding of a product and not of a sum."""
    random_policy.model.to(torch.bfloat16)
    rows = [row for seed in range(50) for row in rows_of([1.0, -0.5], seed)]
    found = []

    def take(learner):
        learner._add_to_masters()
        found.append(torch.cat([master.grad.flatten() for master in learner.masters]))
        learner.num_updates += 1
        return 0.0

    monkeypatch.setattr(Learner, "_apply", take)
    for budget in (1, 10_000):
        learnt(random_policy, [rows], token_budget=budget)
    many, one = found
    assert float((many - one).norm() / one.norm()) < 0.01


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


# --- rules that look at a whole update -------------------------------------------------------------------------------


def stale_rows():
    """Rows whose old logprobs are a policy's from before: ratios on both sides of any bound."""
    rows = rows_of([1.0, -0.3, 0.2, 0.7, -1.0, 0.1, 0.4, -0.6])
    generator = torch.Generator().manual_seed(1)
    return [replace(row, logprobs=(torch.randn(row.num_trained, generator=generator) - 4).tolist()) for row in rows]


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
    term = Term(on_tokens(clipped_policy_loss), choose=choose)
    rule = Update((term,), learning, num_updates=2, observers=(partial(Seen, observe),))
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert metrics["seen"] == 1
    assert sum(count for count, _, _ in observed) == sum(row.num_trained for row in rows)
    assert len(asked) == len(observed) == 2  # two minibatches
    given = sorted(float(p) for row in rows for p in row.logprobs)
    assert sorted(p for old, _ in asked for p in old) == pytest.approx(given)
    assert [(low, high) for _, low, high in observed] == [(found.low, found.high) for _, found in asked]
    assert metrics["bounds/high_max"] == max(found.high for _, found in asked)
    assert metrics["bounds/low_min"] == min(found.low for _, found in asked)


class Seen(EntropyClip):
    """An observer that is asked once an update, with all of its tokens."""

    def __init__(self, observe):
        super().__init__()
        self.observe = observe

    def before(self, chosen):
        pushes_N = torch.cat([tokens.push_N for *_, tokens in self.seen])
        return self.observe(*joined([tokens for *_, tokens in self.seen]), pushes_N, **chosen)


def balanced_reference(policy, rows):
    """The bounds of all rows at once, by the function itself."""
    logprobs = torch.cat(score(policy, rows, token_budget=1000))
    old = torch.cat([trained(row.logprobs) for row in rows])
    credit = torch.cat([trained(row.credit) for row in rows])
    return balanced_bounds(logprobs, old, credit, torch.ones_like(old, dtype=torch.bool))


@pytest.mark.parametrize("token_budget", [1000, 1])
def test_the_bounds_are_those_of_the_minibatch(random_policy, token_budget):
    rows, found = stale_rows(), []

    def choose(policy_N, old_N, credit_N):
        found.append(balanced_bounds(policy_N, old_N, credit_N, torch.ones_like(policy_N, dtype=torch.bool)))
        return {"low": found[0].low, "high": found[0].high}, {}

    expected = balanced_reference(random_policy, rows)
    learning = LearningConfig(minibatch_rows=100, token_budget=token_budget)
    rule = Update((Term(on_tokens(clipped_policy_loss), choose=choose),), learning, num_updates=1)
    Learner(random_policy, rule).update(rows, seed=0)
    assert [(f.low, f.high, f.num_moves) for f in found] == [(expected.low, expected.high, expected.num_moves)]


def test_what_a_loss_pushes_with_is_told_without_the_kl_beside_it(random_policy):
    """Else a KL would give every clipped token a push, and the clip would look as if it stopped none."""
    rows, pushed = [replace(row, ref_logprobs=(-3.0,) * row.num_trained) for row in stale_rows()], []

    def observe(policy_N, old_N, credit_N, entropy_N, pushes_N):
        pushed.append(pushes_N)
        return {}

    learning = LearningConfig(minibatch_rows=100, learning_rate=1e-9)
    kl = kl_term(KLConfig(coef=0.5, estimator="k2"), "token_mean")
    norms = []
    for terms in ((Term(CLIP),), (Term(CLIP), kl)):
        rule = Update(terms, learning, num_updates=1, observers=(partial(Seen, observe),))
        metrics = Learner(random_policy, rule).update(rows, seed=0)
        norms.append(metrics["optim/grad_norm"])
        assert ("kl/ref" in metrics) == (kl in terms)
    assert norms[0] != pytest.approx(norms[1], rel=1e-2)  # the KL does pull
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

    def observe(*tokens):
        found.append(update_diagnostics(*tokens)["entropy/predicted"])
        return {}

    observers = (partial(Seen, observe), partial(EntropyClip, {"low": 0.8, "high": 1.2}, probe_every=every))
    rule = Update((Term(CLIP),), LearningConfig(minibatch_rows=4), num_updates=2, observers=observers)
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

    rule = Update((Term(CLIP),), learning, num_updates=1, proximal=True, correct=correct)
    sampler = [float(p) for row in rows for p in row.logprobs]
    scores = torch.cat(score(random_policy, rows, token_budget=1000))
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-5)
    [(proximal_BT, sampler_BT, mask_BT)] = seen
    assert sorted(sampler_BT[mask_BT].tolist()) == pytest.approx(sorted(sampler))
    assert sorted(proximal_BT[mask_BT].tolist()) == pytest.approx(sorted(scores.tolist()), abs=1e-5)
    assert metrics["kl/sampler"] == pytest.approx(float(k3(torch.tensor(sampler), scores).mean()), rel=1e-4)


@pytest.mark.parametrize("from_sampler", [True, False])
def test_how_far_an_anchor_is_says_nothing_of_the_sampler(random_policy, from_sampler):
    rule = Update((Term(CLIP),), LearningConfig(minibatch_rows=4), num_updates=1, from_sampler=from_sampler)
    assert ("kl/sampler" in Learner(random_policy, rule).update(stale_rows(), seed=0)) == from_sampler


def test_a_probe_measures_the_change_of_entropy_that_an_update_made(random_policy):
    rows = rows_of([1.0, -0.5, 0.3])
    learning = LearningConfig(learning_rate=1e-2)

    def entropy():
        found = [token_logprobs(random_policy, b, entropy=True)[1] for b in micro_batches(random_policy, rows, 1000)]
        return float(torch.cat(found).mean())

    before = entropy()
    rule = Update((Term(CLIP),), learning, num_updates=4, observers=(partial(EntropyClip, probe_every=2),))
    learner = Learner(random_policy, rule)
    assert "entropy/measured" not in learner.update(rows, seed=0)
    middle = entropy()
    metrics = learner.update(rows, seed=1)
    assert metrics["entropy/measured"] == pytest.approx(entropy() - middle, abs=1e-6)
    assert middle != before


@pytest.mark.parametrize("token_budget", [1000, 9])
def test_a_bonus_pushes_with_the_gradient_of_the_mean_entropy(random_policy, token_budget):
    rows = rows_of([1.0, 0.0, -0.5, 0.0])  # rows without credit have an entropy too
    term = entropy_term(0.3, "token_mean")
    learning = LearningConfig(learning_rate=1e-3, token_budget=token_budget, max_grad_norm=1e9)
    metrics = Learner(copy.deepcopy(random_policy), Update((term,), learning, num_updates=10)).update(rows, seed=0)
    entropies = []
    for row in rows:  # from all logits, one row at a time
        logits = random_policy.causal_lm(torch.tensor(row.tokens)[None]).logits[0].float()
        every = torch.log_softmax(logits[torch.tensor(row.trains) - 1] / row.temperature, -1)
        entropies.append(-(every.exp() * every).sum(-1))
    mean = torch.cat(entropies).mean()
    gradient = torch.autograd.grad(0.3 * mean, [p for _, p in random_policy.trainable_parameters()])
    assert metrics["entropy"] == pytest.approx(mean.item(), rel=1e-5)
    assert metrics["loss/mean"] == pytest.approx(-0.3 * mean.item(), rel=1e-5)
    assert metrics["rows/without_credit"] == 0
    want = torch.cat([part.flatten() for part in gradient]).norm().item()
    assert metrics["optim/grad_norm"] == pytest.approx(want, rel=1e-4)


def test_entropy_rises_with_the_bonus_and_stays_without(random_policy):
    rows = rows_of([0.0] * 4)
    found = []
    for coef in (1.0, 0.0):
        rule = Update((Term(CLIP), entropy_term(coef, "sequence_mean")), LearningConfig(learning_rate=1e-3), 10)
        learner = Learner(copy.deepcopy(random_policy), rule)
        found.append([learner.update(rows, seed=0)["entropy"] for _ in range(3)])
    assert found[0][0] < found[0][1] < found[0][2]
    assert found[1][0] == pytest.approx(found[1][2], abs=1e-6)


def test_the_entropy_of_a_coin_by_hand():
    """Two tokens of weight 1/2: H(0.5, 0.5) = 0.693 and H(0.9, 0.1) = 0.325; what does not train may be anything."""
    mask, weight = torch.tensor([[True, True, False]]), torch.full((1, 3), 0.5)
    loss, sums = entropy_loss(torch.tensor([[0.6931, 0.3251, torch.nan]]), mask, weight)
    assert loss.item() == pytest.approx(-0.5091)
    assert sums == {}


def test_ages_count_updates(random_policy):
    rows = [replace(row, versions=((0, row.num_trained),)) for row in rows_of([1.0, -1.0])]
    learning = LearningConfig(num_epochs=2)
    learner = Learner(random_policy, Update((Term(CLIP),), learning, num_updates=8))
    metrics = learner.update(rows, seed=0)
    assert (metrics["staleness/mean"], metrics["staleness/max"], metrics["staleness/share"]) == (0.5, 1.0, 0.5)
    metrics = learner.update(rows, seed=1)
    assert (metrics["staleness/mean"], metrics["staleness/max"], metrics["staleness/share"]) == (2.5, 3.0, 1.0)


def test_the_rows_of_one_episode_count_as_one_of_a_minibatch():
    """Four episodes, one of them in three pieces: an update of four, and not one of four rows and one of two. Pairs are
    two rows each."""
    whole = rows_of([1.0] * 6)
    rows = [*whole[:3], *(replace(row, share=1 / 3, bundle="turns") for row in whole[3:])]
    [found] = minibatches(rows, 4, seed=0)
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert [len(each) for each in minibatches(rows, 3, seed=0)] in ([5, 1], [3, 3])
    pairs = [replace(row, bundle=f"pair {i // 2}") for i, row in enumerate(whole)]
    assert [len(each) for each in minibatches(pairs, 4, seed=0)] == [4, 2]


def test_a_gradient_in_two_parts_is_the_gradient(random_policy):
    policy = random_policy
    policy.model.requires_grad_(True)
    batch = next(micro_batches(policy, rows_of([1.0, -1.0, 0.5]), 1000))

    def gradients(backward):
        logprobs_N, entropy_N = token_logprobs(policy, batch, entropy=True, graded=True)
        backward((logprobs_N * torch.arange(len(logprobs_N))).sum() + 0.1 * entropy_N.sum(), logprobs_N, entropy_N)
        of_weights = [p.grad for p in policy.model.parameters()]
        policy.model.zero_grad(set_to_none=True)
        return of_weights

    whole = gradients(lambda loss, *_: loss.backward())
    parts = gradients(lambda loss, *outputs: backward_through(loss, outputs))
    assert all(torch.equal(one, two) for one, two in zip(whole, parts, strict=True))
    assert any(one.any() for one in whole)
    with_constant = gradients(lambda loss, logprobs, _: backward_through(logprobs.sum(), [logprobs, torch.zeros(3)]))
    assert any(one.any() for one in with_constant)


def test_an_update_of_rows_from_other_products_is_corrected_without_a_pass_of_its_own(random_policy, monkeypatch):
    """The same loss, metrics and KL as with a pass that scores the rows first."""
    rows = stale_rows()
    plain = Update((Term(CLIP),), LearningConfig(minibatch_rows=100), num_updates=1)
    in_pass = corrected(plain, "bfloat16")
    scored = replace(in_pass, scored_in_pass=False)
    before = random_policy.state()
    found = []
    for rule in (scored, in_pass):
        random_policy.load_state(before, version=0)
        found.append((Learner(random_policy, rule).update(rows, seed=0), random_policy.state()))
        monkeypatch.setattr(learner_module, "score_here", None)  # from here on nothing may be scored
    (metrics, weights), (metrics_in_pass, weights_in_pass) = found
    assert metrics_in_pass == pytest.approx(metrics, rel=1e-3, abs=1e-6)
    assert metrics_in_pass["kl/sampler"] > 0
    for name, weight in weights.items():
        torch.testing.assert_close(weights_in_pass[name], weight, rtol=1e-4, atol=1e-6)


def test_of_several_updates_rows_are_scored_before_the_first(random_policy):
    rows = stale_rows()
    rule = Update((Term(CLIP),), LearningConfig(minibatch_rows=2, num_epochs=2), num_updates=4)
    rule = corrected(rule, "int8")
    scores = torch.cat(score(random_policy, rows, token_budget=1000))
    sampler = torch.cat([torch.tensor(row.logprobs) for row in rows])
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert metrics["optim/updates"] > 1
    assert metrics["kl/sampler"] == pytest.approx(float(k3(sampler, scores).mean()), rel=1e-4)


@pytest.mark.parametrize("products", ["float32", "int8"])
def test_a_step_without_credit_measures_no_distance_to_the_sampler(random_policy, products):
    rows = [replace(row, credit=row.credit * 0.0) for row in stale_rows()]
    rule = corrected(Update((Term(CLIP),), LearningConfig(minibatch_rows=100), num_updates=1), products)
    metrics = Learner(random_policy, rule).update(rows, seed=0)
    assert metrics["rows/without_credit"] == 1
    assert "kl/sampler" not in metrics


def test_what_needs_no_correction_stays_as_it_is():
    plain = Update((Term(CLIP),), LearningConfig(), num_updates=1)
    assert corrected(plain, "bfloat16").proximal
    assert corrected(replace(plain, learning=LearningConfig(products="bfloat16"))).proximal
    assert corrected(plain) is corrected(plain, "float32") is plain
    for rule in (
        replace(plain, proximal=True),
        replace(plain, from_sampler=False),
        replace(plain, terms=(Term(CLIP, needs_old=False),)),
    ):
        assert corrected(rule, "bfloat16") is rule
