"""NFT as a method: its rows, and that its update is Dr. GRPO's while nothing has moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from support.episodes import segment_of
from support.sessions import STEPS, session_of
from whet.credit import ADVANTAGES, assign_credit, differ
from whet.evaluation.protocol import is_right
from whet.methods.policy.nft import has_both, rate_of, signed_rows
from whet.objectives import clipped_policy_loss
from whet.trainer import Term, Update, on_tokens
from whet.trainer.learner import Learner
from whet.types import Grade

WHOLE = (*STEPS, "learning.minibatch_rows=1000", "learning.max_grad_norm=1e9")
"""One update a step, whose gradient nothing scales."""


def groups_of_a_step(method, step=1):
    """Mixed groups as the method samples them."""
    from whet.credit import groups_of, is_mixed, outcome, rewarded
    from whet.methods.sampling import whole
    from whet.methods.solvers import solve_rollout

    rollout = solve_rollout(method, "policy", "train", step)
    sampled = whole(rollout, method.run.runtime, iter([method.run.next_tasks(step, 12)]), 8)
    episodes = [rewarded(group, "solver", {"outcome": outcome()}) for group in sampled.groups]
    return [g for g in (groups_of(group, "solver", "task")[0] for group in episodes) if is_mixed(g)]


def gradient(policy, rows, rule):
    """Of one update on these rows, flat."""
    twin = policy.fork("twin")
    twin.frozen = False
    learner = Learner(twin, rule)
    kept = []
    learner.optimizer.step = lambda: kept.append(torch.cat([p.grad.flatten().clone() for p in learner.parameters]))
    learner.update([replace(row, policy="twin") for row in rows], seed=0)
    return kept[0]


def test_rows_carry_a_sign_and_their_groups_rate():
    session = session_of("nft", *STEPS)
    for group in groups_of_a_step(session.algorithm):
        rows = signed_rows(group)
        right = [is_right(scored.segment) for scored in group]
        assert {row.extra["rate"] for row in rows} == {sum(right) / len(right)}
        assert [float(row.credit[0]) for row in rows] == [1.0 if each else -1.0 for each in right]


def test_groups_all_right_or_all_wrong_are_left_out_whatever_their_scores():
    """Scores of 0.2 and 0.6 differ, and none is right: nothing tells right from wrong."""
    method = session_of("nft", *STEPS).algorithm
    [group, *_] = groups_of_a_step(method)
    right = [scored for scored in group if is_right(scored.segment)]
    assert rate_of(right) == 1.0
    assert rate_of([scored for scored in group if not is_right(scored.segment)]) == 0.0
    assert 0 < rate_of(group) < 1
    batch = method._collect(1)
    assert all(0 < row.extra["rate"] < 1 for row in batch.rows)
    assert any(trace["credit"] in (1.0, -1.0) for trace in batch.traces)


def test_resampling_waits_for_problems_with_right_and_wrong_replies():
    replies = [segment_of("solver", policy="policy", grade=Grade(score=score)) for score in (0.0, 0.01, 1.0)]
    assert [has_both(replies[:2]), has_both(replies[1:]), has_both(replies[2:])] == [False, True, False]
    assert differ(replies[:2])  # scores may differ where nothing is right


@pytest.mark.parametrize(("omega", "advantage"), [("dr_grpo", "dr_grpo"), ("grpo", "grpo")])
def test_on_policy_the_gradient_is_that_of_the_group_relative_loss(omega, advantage):
    session = session_of(
        "nft", *STEPS, "learning.minibatch_rows=1000", "learning.max_grad_norm=1e9", f"loss.omega={omega}"
    )
    method, policy = session.algorithm, session.loop.policies["policy"]
    groups = groups_of_a_step(method)
    assert len(groups) >= 2, "nothing to compare"
    nft = gradient(policy, [row for group in groups for row in signed_rows(group)], method._updates(1)["policy"])
    term = Term(
        on_tokens(clipped_policy_loss, low=0.0, high=1e6), aggregation="constant",
        constant_length=method.config.sampling.max_new_tokens,
    )  # fmt: skip
    rule = Update((term,), method.config.learning, 10)
    rows = assign_credit(groups, ADVANTAGES.get(advantage)).rows
    wanted = gradient(policy, rows, rule)
    if advantage == "grpo":  # ours divides by the unbiased std, NFT's weight is the population's
        wanted = wanted * (8 / 7) ** 0.5
    torch.testing.assert_close(nft, wanted, rtol=2e-3, atol=1e-6 * float(wanted.abs().max()) + 1e-7)


def test_without_negative_weight_wrong_answers_teach_nothing():
    session = session_of(
        "nft", *STEPS, "learning.minibatch_rows=1000", "learning.max_grad_norm=1e9", "loss.negative_weight=0"
    )
    method, policy = session.algorithm, session.loop.policies["policy"]
    rows = [row for group in groups_of_a_step(method) for row in signed_rows(group)]
    wrong = [row for row in rows if row.credit[0] < 0]
    assert wrong
    assert not gradient(policy, wrong, method._updates(1)["policy"]).any()
