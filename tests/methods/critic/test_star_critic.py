"""STaR for critics: which critiques are kept, how the classes are balanced, and where a round starts."""

from __future__ import annotations

import pytest
import torch

from support.episodes import exchange
from support.sessions import WARM, finished, session_of
from whet.credit import groups_of, refine_outcome, rewarded
from whet.methods.critic.star_critic import imitated, num_taken

SMALL = (*WARM, "num_rounds=2", "num_steps=2", "prompts_per_step=6", "validate_every=4", "learning.minibatch_rows=8")


def kept_of(episodes):
    scored = rewarded(episodes, "critic", {"refine": refine_outcome()})
    return [imitated(p) for group in groups_of(scored, "critic", "answer") for p in group if p.reward == 1.0]


def test_a_critique_is_kept_where_the_refinement_is_right_whatever_its_verdict():
    rows = kept_of([
        exchange(1.0, [("correct", [1.0]), ("wrong", [1.0]), ("correct", [0.0])], task="a"),
        exchange(0.0, [("correct", [1.0]), ("wrong", [0.0])], task="b"),
        exchange(0.0, [("wrong", [None])], task="c"),  # nobody knows
    ])  # fmt: skip
    assert [row.kind for row in rows] == ["right", "right", "wrong"]
    assert all(row.credit.tolist() == [1.0] * row.num_trained for row in rows)
    assert all(row.logprobs is None and row.temperature == 1.0 for row in rows)


@pytest.mark.parametrize(
    ("kept", "balanced", "count"),
    [
        ({"right": 30, "wrong": 5}, False, 35),
        ({"right": 30, "wrong": 5}, True, 10),
        ({"right": 3, "wrong": 0}, True, 0),
        ({}, False, 0),
    ],
)
def test_how_many_are_imitated(kept, balanced, count):
    assert num_taken(kept, balanced=balanced) == count


def test_a_balanced_pool_has_as_many_of_either_class():
    method = session_of("star_critic", *SMALL, "balanced=true").algorithm
    rows = kept_of([exchange(1.0, [("correct", [1.0] * 1)] * 5, task="a"), exchange(0.0, [("wrong", [1.0])] * 2)])
    method._queue.put("1", rows)
    drawn = [row.kind for row in method._draw(1, 1)]
    assert sorted(drawn) == ["right"] * 2 + ["wrong"] * 2


@pytest.mark.parametrize("anew", [True, False])
def test_a_round_starts_from_the_warm_start_or_from_the_round_before(anew):
    method = session_of("star_critic", *SMALL, f"anew={anew}").algorithm
    method._begin()
    policies = method.run.loop.policies
    with torch.no_grad():
        policies["critic"].model.model.norm.weight.mul_(0.5)
    method._restart()
    same = torch.equal(policies["critic"].model.model.norm.weight, policies["critic_sft"].model.model.norm.weight)
    assert same is anew


@pytest.mark.integration
def test_a_round_is_as_long_as_what_it_kept(tmp_path):
    session = finished("star_critic", *SMALL, folder=tmp_path)
    done = {each.name: each for each in session.loop.done}
    for number in (1, 2):
        kept = session.loop.found[f"sample_{number}"]
        assert 0 < sum(kept.values()) <= 2 * 6 * 4
        assert done[f"learn_{number}"].num_steps == max(1, round(2.0 * sum(kept.values()) / 8))
    assert {"no_critic", "sft_critic", "star"} == set(session.algorithm.evaluator.summary())
