"""A critic paid for refinements alone: the indirect rewards, and PPO's value model beside a critic (Retroformer)."""

from __future__ import annotations

import pytest
import torch

from support.commands import config_of, logged
from support.episodes import exchange
from support.sessions import STEPS, WARM, finished, session_of
from whet.config import ConfigError
from whet.credit import only, refine_outcome, rewarded, verdict_match
from whet.models.value import begin_anew
from whet.runs.values import VALUE_MODEL

PPO = ("value.learning.minibatch_rows=12", "value.warmup_updates=2")


@pytest.mark.parametrize("verdict", ["correct", "wrong", None])
@pytest.mark.parametrize(
    ("table", "rewards"),  # of o, n = 1 1, 1 0, 0 1, 0 0
    [("refine", [1, 0, 1, 0]), ("delta", [0, -1, 1, 0]), ("correction", [0.2, 0, 1, 0])],
)
def test_spec_9_2_without_discrimination_the_verdict_is_irrelevant(verdict, table, rewards):
    episodes = [exchange(o, [(verdict, [n])]) for o, n in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))]
    terms = {"indirect": refine_outcome(table), "judged_right": verdict_match()}
    paid = rewarded(episodes, "critic", terms, only("indirect"))
    assert [episode.segments[1].rewards["total"] for episode in paid] == rewards


def test_ctrl_compares_critiques_and_retroformer_takes_a_value_model():
    ctrl, retroformer = config_of("ctrl"), config_of("retroformer")
    assert (ctrl.advantage, ctrl.kl.where) == ("grpo", "loss")
    assert (retroformer.advantage, retroformer.kl.where, retroformer.kl.estimator) == ("gae", "reward", "k1")
    assert ctrl.num_steps * ctrl.prompts_per_step * ctrl.group_size == 10_240  # as Critique-RL's two stages
    assert "value" in ctrl.idle()
    assert "value" not in retroformer.idle()


def test_a_warm_up_without_end_is_refused():
    with pytest.raises(ConfigError, match="the policy never learns"):
        config_of("retroformer", "num_steps=4", "value.warmup_updates=4")


def test_the_value_model_begins_with_the_critic_of_the_warm_start():
    method = session_of("retroformer", *STEPS, *WARM, *PPO).method
    policies = method.loop.policies
    with torch.no_grad():
        policies["critic"].model.model.norm.weight.mul_(0.5)  # as a warm start would
        policies[VALUE_MODEL].model.score.weight.fill_(1.0)
    method._begin()
    weight = policies[VALUE_MODEL].model.model.norm.weight
    assert torch.equal(weight, policies["critic"].model.model.norm.weight)
    assert torch.equal(weight, policies["critic_sft"].model.model.norm.weight)
    assert not policies[VALUE_MODEL].model.score.weight.any()


def test_begin_anew_leaves_the_policy_alone(random_policy):
    from whet.models.value import value_model_of

    made = value_model_of(random_policy, VALUE_MODEL)
    before = {name: value.clone() for name, value in random_policy.state().items()}
    with torch.no_grad():
        made.model.model.norm.weight.fill_(7.0)
    begin_anew(made, random_policy)
    assert all(torch.equal(before[name], value) for name, value in random_policy.state().items())
    assert torch.equal(made.model.model.norm.weight, random_policy.model.model.norm.weight)


def test_a_retroformer_run_trains_the_values_first_and_then_the_critic_too(tmp_path):
    session = finished("retroformer", *STEPS, *WARM, *PPO, "num_steps=3", folder=tmp_path)
    train = {row["step"]: row for row in logged(tmp_path) if row["phase"] == "train" and row["step"]}
    assert session.loop.policies[VALUE_MODEL].version == 3 * 2  # two updates of 12 rows a step
    assert "loss/mean" not in train[1], "the critic waits for two updates of the value model"
    for step in (2, 3):
        assert train[step]["loss/mean"] is not None
        assert train[step]["value/explained"] <= 1
    assert all(row["value_model.value/error"] >= 0 for row in train.values())
    assert all(row["kl/ref"] is not None for row in train.values())
    assert {"no_critic", "sft_critic", "helpful"} == set(session.method.summary())
