"""The learner on rows without credit, and on micro-batches of any size."""

import copy
from functools import partial

import pytest
import torch

from whet.config.parts import LearningConfig
from whet.objectives import clipped_policy_loss
from whet.training.learner import Learner
from whet.training.rule import UpdateRule
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
