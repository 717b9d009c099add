"""Updates of several terms: each over the rows that it takes, their losses summed, their bundles whole."""

import copy
import math
from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForCausalLM

from support.rows import row_of
from whet.config.losses import KLConfig, ReinforceLoss
from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.scoring import micro_batches, score, token_logprobs
from whet.models.tiny import tiny_tokenizer
from whet.objectives import (
    balanced_bounds,
    cispo_loss,
    clipped_policy_loss,
    dppo_loss,
    gspo_loss,
    kl_loss,
    m2po_loss,
    nft_loss,
    pairwise_loss,
    reinforce_loss,
    sapo_loss,
    topr_loss,
    value_loss,
    weighted_nll,
)
from whet.trainer.learner import Learner
from whet.trainer.losses import EntropyClip, kl_term, nll_term, policy_term
from whet.trainer.terms import COUNTS, Term, Update, named, on_likelihood, on_pairs, on_tokens, to_reference

CLIP = on_tokens(clipped_policy_loss, low=0.8, high=1.2)
DPO = Term(
    on_pairs(pairwise_loss, kind="logistic", beta=0.1), kinds=frozenset({"pair"}), needs_old=False,
    needs_reference=True, of_bundles=True, name="dpo",
)  # fmt: skip


def clip_and_nll(weight=1.0, aggregation="token_mean"):
    return (
        Term(CLIP, kinds=frozenset({"rl"}), aggregation=aggregation),
        nll_term(aggregation, kinds=frozenset({"sft"}), weight=weight, name="sft"),
    )


@pytest.fixture
def policy():
    return small_policy()


def small_policy():
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)  # so that its distributions are not flat
    return Policy("p", model, tokenizer)


def rows_of(kind, credits, seed):
    """Rows of 2 to 4 trained tokens; what was sampled came from weights somewhat older."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i, credit in enumerate(credits):
        text = torch.randint(5, 50, (2 + i % 3,), generator=generator).tolist()
        rows.append(row_of((5, 6, 7 + i // 2), text, credit, kind=kind))
    return rows


def two_kinds(policy):
    """Sampled rows, near enough to the policy that the clip stops some tokens only; and texts to imitate."""
    sampled = rows_of("rl", [1.0, -0.5, 0.7, -1.0], seed=1)
    scores = score(policy, sampled, token_budget=1000)
    generator = torch.Generator().manual_seed(2)
    sampled = [
        replace(row, logprobs=(own + 0.4 * torch.randn(len(own), generator=generator)).numpy())
        for row, own in zip(sampled, scores, strict=True)
    ]
    return sampled, rows_of("sft", [1.0, 1.0, 0.5], seed=3)


def pass_over(policy, rows, terms, *, token_budget=1000, observers=()):
    """The gradient of one update by every weight, and its metrics; the weights stay."""
    policy = copy.deepcopy(policy)
    learning = LearningConfig(minibatch_rows=100, token_budget=token_budget)
    learner = Learner(policy, Update(terms, learning, num_updates=1, observers=observers))
    learner.num_updates, learner._apply = 1, (lambda: 0.0)  # keeps the gradients to look at
    metrics = learner.update(rows, seed=0)
    return torch.cat([parameter.grad.flatten() for parameter in learner.parameters]), metrics


def by_hand(policy, rows, loss):
    """The gradient of a loss of the rows' logprobs, a list of [N_row] in the order of the rows; and the loss."""
    policy = copy.deepcopy(policy)
    policy.model.requires_grad_(True)
    [batch] = micro_batches(policy, rows, 10**6)
    logprobs, _ = token_logprobs(policy, batch)
    parts = logprobs.split([rows[i].num_trained for i in batch.index])
    value = loss([part for _, part in sorted(zip(batch.index, parts, strict=True), key=lambda pair: pair[0])])
    value.backward()
    return torch.cat([p.grad.flatten() for _, p in policy.trainable_parameters()]), float(value.detach())


def same(gradient, expected):
    scale = float(expected.abs().max())
    assert scale > 0
    torch.testing.assert_close(gradient, expected, atol=1e-5 * scale, rtol=1e-4)


# --- terms add up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("token_budget", [1000, 12, 1])  # at 1 every pass holds one row, so one kind
def test_a_clip_and_a_likelihood_are_summed_each_over_its_own_rows(policy, weight, token_budget):
    sampled, texts = two_kinds(policy)
    rows = [row for pair in zip(sampled, [*texts, None], strict=True) for row in pair if row is not None]  # mixed
    kinds = [row.kind for row in rows]
    counts = {kind: sum(row.num_trained for row in rows if row.kind == kind) for kind in ("rl", "sft")}

    def loss(logprobs):
        total = 0.0
        for row, own in zip(rows, logprobs, strict=True):
            credit = torch.tensor(row.credit)
            if row.kind == "sft":
                total = total - weight * (credit * own).sum() / counts["sft"]
            else:
                ratio = (own - torch.tensor(row.logprobs)).exp()
                total = total - torch.minimum(ratio * credit, ratio.clamp(0.8, 1.2) * credit).sum() / counts["rl"]
        return total

    expected, value = by_hand(policy, rows, loss)
    gradient, metrics = pass_over(policy, rows, clip_and_nll(weight), token_budget=token_budget)
    same(gradient, expected)
    assert metrics["loss/mean"] == pytest.approx(value, rel=1e-5)
    assert 0 < metrics["clip/low"] + metrics["clip/high"] < 1  # the bounds act
    assert kinds[:2] == ["rl", "sft"]


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_an_update_of_two_terms_is_the_sum_of_two_updates(policy, aggregation, weight):
    sampled, texts = two_kinds(policy)
    clip, nll = clip_and_nll(weight, aggregation)
    both, metrics = pass_over(policy, [*sampled, *texts], (clip, nll))
    alone = [pass_over(policy, rows, (term,)) for rows, term in ((sampled, clip), (texts, replace(nll, weight=1.0)))]
    same(both, alone[0][0] + weight * alone[1][0])
    assert metrics["loss/mean"] == pytest.approx(alone[0][1]["loss/mean"] + weight * alone[1][1]["loss/mean"], rel=1e-5)
    # What each says of its own rows does not hang on the other.
    for name in ("clip/low", "clip/high", "ratio/mean", "ratio/max", "kl/old", "sft.loss/nll", "sft.loss/weight"):
        assert metrics[name] == pytest.approx(alone[name.startswith("sft.")][1][name], rel=1e-5), name


def test_rows_that_no_term_takes_are_dropped(policy):
    sampled, texts = two_kinds(policy)
    alone, metrics = pass_over(policy, sampled, clip_and_nll())
    more, same_metrics = pass_over(policy, [*sampled, *(replace(row, kind="other") for row in texts)], clip_and_nll())
    assert torch.equal(alone, more)
    assert metrics == same_metrics
    learner = Learner(policy, Update(clip_and_nll(), LearningConfig(), num_updates=1))
    assert learner.update([replace(row, kind="other") for row in texts], seed=0) == {}
    assert learner.num_updates == 0


def test_a_row_may_feel_several_terms(policy):
    """A KL takes every kind, and a token without credit feels it too."""
    sampled, texts = two_kinds(policy)
    rows = [replace(row, ref_logprobs=[-3.0] * row.num_trained) for row in [*sampled, *texts]]
    rows[0] = replace(rows[0], credit=[0.0] * rows[0].num_trained)
    kl = kl_term(KLConfig(coef=0.5, estimator="k2"), "token_mean")
    count = sum(row.num_trained for row in rows)

    def loss(logprobs):
        return 0.5 * sum((own + 3).square().sum() / 2 for own in logprobs) / count

    without, _ = pass_over(policy, rows, clip_and_nll())
    both, metrics = pass_over(policy, rows, (*clip_and_nll(), kl))
    held, value = by_hand(policy, rows, loss)
    same(both, without + held)
    assert metrics["kl/ref"] == pytest.approx(value / 0.5, rel=1e-5)
    assert metrics["rows/without_credit"] == 0


@pytest.mark.parametrize("token_budget", [1000, 1])
def test_what_is_chosen_before_a_term_is_chosen_from_its_own_rows(policy, token_budget):
    sampled, texts = two_kinds(policy)
    asked = []

    def choose(policy_N, old_N, credit_N):
        asked.append(sorted(old_N.tolist()))
        found = balanced_bounds(policy_N, old_N, credit_N, torch.ones_like(policy_N, dtype=torch.bool))
        return {"low": found.low, "high": found.high}, {"bounds/low": found.low}

    _, nll = clip_and_nll()
    bapo = Term(on_tokens(clipped_policy_loss), kinds=frozenset({"rl"}), choose=choose, name="bapo")
    _, metrics = pass_over(policy, [*texts, *sampled], (nll, bapo), token_budget=token_budget)
    assert asked == [sorted(float(p) for row in sampled for p in row.logprobs)]
    assert 0 < metrics["bapo.bounds/low"] < 1
    pass_over(policy, texts, (nll, bapo), token_budget=token_budget)  # none of its rows: nothing to choose from
    assert len(asked) == 1


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_an_observer_sees_the_pushes_of_the_first_term(policy, weight):
    sampled, texts = two_kinds(policy)
    seen = []

    class Observer(EntropyClip):
        def before(self, chosen):
            seen.append([tokens for *_, tokens in self.seen])
            return super().before(chosen)

    clip, nll = clip_and_nll()
    for token_budget in (1000, 1):
        pass_over(policy, [*sampled, *texts], (replace(clip, weight=weight), nll), token_budget=token_budget,
                  observers=(Observer,))  # fmt: skip
    for passes in seen:
        for tokens in passes:
            ratio, credit = (tokens.policy_N - tokens.old_N).exp(), tokens.credit_N
            stopped = ((credit > 0) & (ratio > 1.2)) | ((credit < 0) & (ratio < 0.8))
            expected = torch.where(stopped, 0.0, ratio * credit)
            torch.testing.assert_close(tokens.push_N, expected, rtol=1e-4, atol=1e-6)
    # The texts are of another term: none of their tokens.
    assert [sum(len(tokens.push_N) for tokens in passes) for passes in seen] == [
        sum(row.num_trained for row in sampled)
    ] * 2


def test_a_term_that_needs_a_reference_says_where_there_is_none(policy):
    sampled, texts = two_kinds(policy)
    rows = [*(replace(row, ref_logprobs=[-3.0] * row.num_trained) for row in sampled), *texts]
    kl = kl_term(KLConfig(coef=0.5), "token_mean", kinds=frozenset({"rl"}))
    pass_over(policy, rows, (*clip_and_nll(), kl))
    with pytest.raises(ValueError, match="ref_logprobs"):
        pass_over(policy, rows, (*clip_and_nll(), replace(kl, kinds=None)))


# --- bundles ----------------------------------------------------------------------------------------------------------


def pairs_of(policy, count, seed=0):
    """Pairs whose reference is near the policy, the preferred row first."""
    rows = rows_of("pair", [1.0, -1.0] * count, seed)
    scores = score(policy, rows, token_budget=1000)
    generator = torch.Generator().manual_seed(seed)
    return [
        replace(row, ref_logprobs=(own + torch.randn(len(own), generator=generator)).numpy(), bundle=f"pair{i // 2}")
        for i, (row, own) in enumerate(zip(rows, scores, strict=True))
    ]


@pytest.mark.parametrize("token_budget", [1000, 1])
@pytest.mark.parametrize("mean", [False, True])
def test_dpos_gradient_is_that_of_the_pairwise_loss_on_scored_logprobs(policy, mean, token_budget):
    pairs = pairs_of(policy, 3)

    def loss(logprobs):
        gains = [own - torch.tensor(row.ref_logprobs) for own, row in zip(logprobs, pairs, strict=True)]
        gains_B = torch.stack([gain.mean() if mean else gain.sum() for gain in gains])
        value, metrics = pairwise_loss(gains_B[::2], gains_B[1::2], torch.full((3,), 1 / 3), kind="logistic", beta=0.1)
        found.update(metrics)
        return value

    found = {}
    expected, value = by_hand(policy, pairs, loss)
    term = replace(DPO, loss=on_pairs(pairwise_loss, kind="logistic", beta=0.1, mean=mean))
    gradient, metrics = pass_over(policy, pairs, (term,), token_budget=token_budget)
    same(gradient, expected)
    assert metrics["loss/mean"] == pytest.approx(value, rel=1e-5)
    assert metrics["dpo.pair/right"] == pytest.approx(float(found["pair_right_sum"]) / 3)
    assert metrics["dpo.pair/margin"] == pytest.approx(float(found["pair_margin_sum"]) / 3, rel=1e-4)
    assert metrics["dpo.pair/chosen"] == pytest.approx(float(found["chosen_sum"]) / 3, rel=1e-4)
    assert metrics["dpo.pair/rejected"] == pytest.approx(float(found["rejected_sum"]) / 3, rel=1e-4)


@pytest.mark.parametrize("token_budget", [1000, 1])
def test_pairs_go_with_a_likelihood_of_other_rows(policy, token_budget):
    """RPO and its like: passes without a pair, and passes of pairs alone."""
    pairs, (_, texts) = pairs_of(policy, 2), two_kinds(policy)
    _, nll = clip_and_nll()
    both, metrics = pass_over(policy, [texts[0], *pairs, *texts[1:]], (DPO, nll), token_budget=token_budget)
    same(both, pass_over(policy, pairs, (DPO,))[0] + pass_over(policy, texts, (nll,))[0])
    assert "dpo.pair/right" in metrics
    assert "sft.loss/nll" in metrics


@pytest.mark.parametrize("token_budget", [1000, 1])
@pytest.mark.parametrize("mean", [False, True])
def test_a_side_of_several_rows_counts_as_their_sum(policy, mean, token_budget):
    """Of three rows and of one: as one row with all of their tokens would."""
    rows = rows_of("pair", [1.0, 1.0, 1.0, -1.0], 3)
    generator = torch.Generator().manual_seed(3)
    rows = [
        replace(row, ref_logprobs=(own + torch.randn(len(own), generator=generator)).numpy(), bundle="pair")
        for row, own in zip(rows, score(policy, rows, token_budget=1000), strict=True)
    ]

    def loss(logprobs):
        gains = [own - torch.tensor(row.ref_logprobs) for own, row in zip(logprobs, rows, strict=True)]
        first, second = torch.cat(gains[:3]), gains[3]
        sides = [side.mean() if mean else side.sum() for side in (first, second)]
        value, _ = pairwise_loss(*(side[None] for side in sides), torch.ones(1), kind="logistic", beta=0.1)
        return value

    expected, value = by_hand(policy, rows, loss)
    term = replace(DPO, loss=on_pairs(pairwise_loss, kind="logistic", beta=0.1, mean=mean))
    gradient, metrics = pass_over(policy, rows, (term,), token_budget=token_budget)
    same(gradient, expected)
    assert metrics["loss/mean"] == pytest.approx(value, rel=1e-5)


def test_a_pairs_weight_multiplies_its_loss(policy):
    pairs = pairs_of(policy, 2)
    light = [replace(row, weight=0.5) for row in pairs]
    same(pass_over(policy, light, (DPO,))[0], 0.5 * pass_over(policy, pairs, (DPO,))[0])


def test_a_bundle_is_computed_whole_where_one_row_has_no_credit(policy):
    pairs = pairs_of(policy, 2)
    bare = [replace(row, credit=[0.0] * row.num_trained) if i % 2 else row for i, row in enumerate(pairs)]
    same(pass_over(policy, bare, (DPO,))[0], pass_over(policy, pairs, (DPO,))[0])


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    texts=st.lists(st.integers(1, 9), min_size=32, max_size=32),
    minibatch_rows=st.integers(1, 9),
    token_budget=st.sampled_from([1, 20, 60, 1000]),
    seed=st.integers(0, 2**32),
)
def test_bundles_stay_together_and_in_order(sizes, texts, minibatch_rows, token_budget, seed):
    """Through shuffling, minibatches and micro-batches: every bundle is whole in one pass, and every row comes once an
    epoch."""
    rows, bundles = [], []
    for b, size in enumerate(sizes):
        own = [len(rows) + i for i in range(size)]
        name = f"b{b}" if size > 1 else ""
        for number in own:
            text = [5 + (7 * number + i) % 40 for i in range(texts[number])]
            rows.append(row_of((5, 6, 7 + number % 2), text, 1.0, bundle=name, extra={"number": number}))
        bundles += [tuple(own)] if name else []
    random_order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed % 1000)).tolist()
    given_rows = [row for b in random_order for row in rows if row.bundle == f"b{b}"] + [
        r for r in rows if not r.bundle
    ]
    seen, updates = [], []

    def loss(seen_pass):
        numbers = [int(number) for number in seen_pass.extra["number"].tolist()]
        seen.append((numbers, [tuple(numbers[at] for at in bundle) for bundle in seen_pass.bundles]))
        return 0.0 * torch.where(seen_pass.mask, seen_pass.policy, 0.0).sum(), {}

    class Counting(EntropyClip):
        def saw(self, tokens, batch, loss, logprobs_N, weights_B):
            self.seen.append(len(batch.index))

        def before(self, chosen):
            updates.append(sum(self.seen))
            return {}

    learning = LearningConfig(num_epochs=2, minibatch_rows=minibatch_rows, token_budget=token_budget)
    rule = Update((Term(loss, needs_old=False),), learning, num_updates=100, observers=(Counting,))
    Learner(SMALL, rule).update(given_rows, seed=seed)
    assert Counter(n for numbers, _ in seen for n in numbers) == dict.fromkeys(range(len(rows)), 2)
    assert Counter(bundle for _, whole in seen for bundle in whole) == dict.fromkeys(bundles, 2)
    assert sum(updates) == 2 * len(rows)
    assert max(updates) <= max(minibatch_rows, *sizes)


SMALL = small_policy()


def test_rows_of_a_bundle_that_stand_apart_come_together(policy):
    pairs = pairs_of(policy, 3)
    apart = [*pairs[::2], *pairs[1::2]]
    same(pass_over(policy, apart, (DPO,))[0], pass_over(policy, pairs, (DPO,))[0])
    assert [name for name, _ in groupby(row.bundle for row in apart)] == ["pair0", "pair1", "pair2"] * 2


# --- metrics ----------------------------------------------------------------------------------------------------------


def every_objectives_metrics():
    torch.manual_seed(0)
    new, old, credit = torch.randn(2, 3), torch.randn(2, 3), torch.tensor([[1.0] * 3, [-1.0] * 3])
    mask, weight = torch.ones(2, 3, dtype=torch.bool), torch.full((2, 3), 1 / 6)
    given = (new, old, credit, mask, weight)
    return {
        "clip": clipped_policy_loss(*given, low=0.8, high=1.2, dual=3.0),
        "cispo": cispo_loss(*given),
        "gspo": gspo_loss(*given),
        "sapo": sapo_loss(*given),
        "topr": topr_loss(*given),
        "m2po": m2po_loss(*given, limit=0.1),
        "dppo": dppo_loss(*given),
        "reinforce": reinforce_loss(*given),
        "nft": nft_loss(*given, rate_B=torch.tensor([0.5, 0.5])),
        "nll": weighted_nll(new, credit, mask, weight),
        "kl": kl_loss(new, old, mask, weight, estimator="k2"),
        "value": value_loss(*given),
        "pairwise": pairwise_loss(new[0], new[1], weight[0], kind="logistic", beta=0.1),
    }


@pytest.mark.parametrize("name", every_objectives_metrics())
def test_no_metric_of_an_objective_is_dropped(name):
    metrics = {key: float(value) for key, value in every_objectives_metrics()[name][1].items()}
    counts = {"num_tokens": 6.0} | {key: metrics[key] for key in COUNTS if key in metrics}
    found = named(metrics | counts)
    kept = [key for key in metrics if key not in COUNTS]
    assert len(found) == len(kept) > 0  # one of its own each
    count = counts["num_pairs" if name == "pairwise" else "num_tokens"]
    expected = sorted(metrics[key] / (1 if key.endswith("_max") else count) for key in kept)
    assert sorted(found.values()) == pytest.approx(expected)
    assert all("/" in key for key in found)


def test_a_steps_metrics_hold_those_of_every_term(policy):
    sampled, texts = two_kinds(policy)
    rows = [replace(row, ref_logprobs=[-3.0] * row.num_trained, extra={"rate": 0.25}) for row in [*sampled, *texts]]
    nft = Term(
        lambda seen: nft_loss(seen.policy, seen.old, seen.credit, seen.mask, seen.weight, rate_B=seen.extra["rate"]),
        kinds=frozenset({"rl"}), name="nft",
    )  # fmt: skip
    kl = Term(to_reference(kl_loss, estimator="k3"), needs_reference=True, needs_old=False, weight=0.1)
    clip, nll = clip_and_nll()
    for token_budget in (1000, 1):
        _, metrics = pass_over(policy, rows, (clip, replace(nll, name=""), kl, nft), token_budget=token_budget)
        assert {
            "clip/low", "clip/high", "kl/old", "ratio/mean", "ratio/max", "loss/nll", "loss/weight", "kl/ref",
            "nft.ratio/mean", "nft.kl/old", "loss/mean", "kl/sampler", "entropy", "optim/updates",
        } <= metrics.keys()  # fmt: skip
        assert metrics["loss/weight"] == pytest.approx(
            sum(float(row.credit.sum()) for row in texts) / sum(row.num_trained for row in texts)
        )


def test_two_terms_that_report_one_metric_have_to_be_told_apart(policy):
    """Else the second one's would stand for both."""
    sampled, _ = two_kinds(policy)
    twice = (Term(CLIP), Term(CLIP))
    with pytest.raises(ValueError, match="name"):
        pass_over(policy, sampled, twice)
    _, metrics = pass_over(policy, sampled, (Term(CLIP), Term(CLIP, name="again")))
    assert metrics["again.clip/low"] == metrics["clip/low"]


def test_a_term_of_settings_is_the_objective_they_name(policy):
    sampled, _ = two_kinds(policy)
    count = sum(row.num_trained for row in sampled)

    def loss(logprobs):
        return -sum((torch.tensor(r.credit) * own).sum() for r, own in zip(sampled, logprobs, strict=True)) / count

    same(
        pass_over(policy, sampled, (policy_term(ReinforceLoss(), "token_mean"),))[0], by_hand(policy, sampled, loss)[0]
    )
    fixed = policy_term(ReinforceLoss(), "constant", length=8)
    expected = by_hand(policy, sampled, lambda logprobs: loss(logprobs) * count / (8 * len(sampled)))[0]
    same(pass_over(policy, sampled, (fixed,))[0], expected)


def test_numbers_that_a_row_lacks_are_nan(policy):
    sampled, _ = two_kinds(policy)
    rows = [replace(row, extra={"rank": float(i)} if i else {}) for i, row in enumerate(sampled)]
    seen = []

    def loss(seen_pass):
        seen.extend(seen_pass.extra["rank"].tolist())
        return on_likelihood(weighted_nll)(seen_pass)

    pass_over(policy, rows, (Term(loss, needs_old=False),))
    assert sorted(number for number in seen if not math.isnan(number)) == [1.0, 2.0, 3.0]
    assert len(seen) == 4
