"""Terms that select rows by kind: whatever a pass holds of them, an update is the sum of its terms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whet.config.losses import BalancedBounds, ClipLoss, ReinforceLoss
from whet.config.parts import LearningConfig
from whet.trainer.learner import Learner
from whet.trainer.losses import entropy_clip, nll_term, policy_term
from whet.trainer.terms import Update
from whet.types import Row

CLIP = ClipLoss(bounds=BalancedBounds())
IMITATE, PUSH = frozenset({"right"}), frozenset({"again"})


def rows_of(kinds):
    rng = np.random.default_rng(0)
    return [
        Row(
            policy="policy",
            tokens=rng.integers(5, 40, 12),
            trains=range(6, 12),
            credit=[(-1.0) ** i] * 6,
            logprobs=[-3.0] * 6,
            kind=kind,
        )
        for i, kind in enumerate(kinds)
    ]


def updated(policy, rows, *terms, budget=4096, minibatch=64, observers=()):
    learning = LearningConfig(learning_rate=1e-3, token_budget=budget, minibatch_rows=minibatch)
    learner = Learner(policy.fork("policy"), Update(tuple(terms), learning, num_updates=9, observers=observers))
    found = learner.update(rows, seed=0)
    return found, torch.cat([p.detach().flatten() for p in learner.parameters]), learner.num_updates


@pytest.mark.parametrize("loss", [ReinforceLoss(), CLIP], ids=["reinforce", "bapo"])
def test_passes_that_hold_one_kind_each_add_up(loss, random_policy):
    """A row a pass: in each of them one of the terms has nothing to do."""
    terms = nll_term(kinds=IMITATE, name="right"), policy_term(loss, "token_mean", kinds=PUSH)
    rows = rows_of(["right", "again", "again", "right"])
    one, weights, _ = updated(random_policy, rows, *terms)
    split, again, _ = updated(random_policy, rows, *terms, budget=12)
    torch.testing.assert_close(weights, again, rtol=0, atol=1e-5)
    assert one.keys() == split.keys()
    for name in ("loss/mean", "right.loss/nll", "ratio/mean", "optim/grad_norm", "entropy"):
        assert one[name] == pytest.approx(split[name], rel=1e-3), name


@pytest.mark.parametrize("loss", [ReinforceLoss(), CLIP], ids=["reinforce", "bapo"])
@pytest.mark.parametrize("kind", ["right", "again"])
def test_a_term_without_rows_changes_nothing(loss, kind, random_policy):
    terms = {"right": nll_term(kinds=IMITATE), "again": policy_term(loss, "token_mean", kinds=PUSH)}
    rows = rows_of([kind] * 3)
    alone, weights, _ = updated(random_policy, rows, terms[kind])
    for order in (terms.values(), reversed(terms.values())):
        both, found, _ = updated(random_policy, rows, *order)
        assert torch.equal(weights, found)
        assert both == alone


def test_an_observer_looks_on_where_the_first_term_has_no_rows(random_policy):
    term = policy_term(CLIP, "token_mean", kinds=PUSH)
    observers = (entropy_clip(CLIP, 1),)
    found, _, count = updated(random_policy, rows_of(["right"] * 2), term, nll_term(kinds=IMITATE), observers=observers)
    assert count == 1
    assert found["optim/grad_norm"] > 0
    assert all(np.isfinite(value) for value in found.values())


def test_minibatches_of_one_kind_each(random_policy):
    terms = nll_term(kinds=IMITATE), policy_term(CLIP, "token_mean", kinds=PUSH)
    found, _, count = updated(random_policy, rows_of(["right", "again"] * 2), *terms, minibatch=1)
    assert count == 4
    assert found["optim/updates"] == 4
