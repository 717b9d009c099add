"""A critic paid for refinements alone: the indirect rewards, and PPO's value model beside a critic (Retroformer)."""

from __future__ import annotations

import pytest
import torch

from support.commands import config_of, logged
from support.episodes import exchange
from support.sessions import STEPS, WARM, finished, session_of
from whet.config import ConfigError
from whet.config.effects import acts
from whet.config.losses import VALUE_MODEL
from whet.credit import only, refine_outcome, rewarded, verdict_match
from whet.models.value import begin_anew

PPO = ("value.learning.minibatch_rows=12", "value.warmup_updates=2")


@pytest.mark.parametrize("verdict", ["correct", "wrong", None])
@pytest.mark.parametrize(
    ("table", "rewards"),  # of o, n = 1 1, 1 0, 0 1, 0 0
    [("refine", [1, 0, 1, 0]), ("delta", [0, -1, 1, 0]), ("correction", [0.2, 0, 1, 0])],
)
def test_spec_9_2_without_discrimination_the_verdict_is_irrelevant(verdict, table, rewards):
    episodes = [exchange(o, [(verdict, [n])]) for o, n in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))]
    terms = {"indirect": refine_outcome(table), "judged_right": verdict_match()}
    scored = rewarded(episodes, "critic", terms, only("indirect"))
    assert [episode.segments[1].rewards["total"] for episode in scored] == rewards


def test_ctrl_compares_critiques_and_retroformer_takes_a_value_model():
    ctrl, retroformer = config_of("ctrl"), config_of("retroformer")
    assert (ctrl.advantage, ctrl.kl.where) == ("grpo", "loss")
    assert (retroformer.advantage, retroformer.kl.where, retroformer.kl.estimator) == ("gae", "reward", "k1")
    assert ctrl.num_steps * ctrl.prompts_per_step * ctrl.group_size == 10_240  # as Critique-RL's two stages
    assert not acts(ctrl, "value")
    assert acts(retroformer, "value")


@pytest.mark.parametrize("name", ["ctrl", "ctrl_published"])
def test_ctrl_pays_nothing_without_a_readable_verdict(name, monkeypatch):
    """HKUNLP/critic-rl, `reward_revision`: 0 unless the critique holds a judgment that can be read."""
    assert config_of(name).requires_verdict
    method = session_of(name, *STEPS, *WARM).algorithm
    method._begin()
    episodes = [exchange(0.0, [(verdict, [n])]) for verdict in ("correct", "wrong", None) for n in (1.0, 0.0)]
    sampled = "whet.methods.critic.critic_gradient.sample_critiques"
    monkeypatch.setattr(sampled, lambda *_, **__: episodes)  # as if the two models had written these
    batch = method._collect(1)
    assert batch.metrics["reward/indirect"] == 0.5
    assert batch.metrics["reward/mean"] == pytest.approx(2 / 6)
    assert config_of("critic_gradient", "requires_verdict=false").requires_verdict is False


@pytest.mark.parametrize("name", ["retroformer", "retroformer_published"])
def test_retroformer_pays_the_difference_of_two_returns(name):
    config = config_of(name)
    assert (config.indirect, config.advantage, config.requires_verdict) == ("delta", "gae", False)


def test_ctrl_published_is_its_script():
    """examples/train_rl.sh and scripts/rl_config/trainer.yaml of HKUNLP/critic-rl."""
    config = config_of("ctrl_published")
    assert (config.prompts_per_step, config.group_size, config.roles.critique.max_new_tokens) == (1024, 8, 768)
    assert (config.roles.critique.temperature, config.roles.refinement.temperature) == (1.0, 0.0)
    assert (config.kl.coef, config.kl.estimator, config.kl.where) == (0.001, "k3", "loss")
    assert (config.entropy_coef, config.aggregation, config.advantage) == (0.001, "sequence_mean", "grpo")
    learning = config.learning
    assert (learning.learning_rate, learning.final_share, learning.num_epochs) == (1e-5, 1.0, 1)
    assert (learning.betas, learning.weight_decay) == ((0.9, 0.999), 0.01)
    assert learning.updates_a_step(1024 * 8) == 4


def test_retroformer_published_is_its_arguments():
    """trainer/args.py of weirayao/Retroformer, and TRL's defaults of then."""
    config = config_of("retroformer_published")
    assert config.prompts_per_step * config.group_size == 8
    assert (config.kl.coef, config.kl.where) == (0.2, "reward")
    assert (config.value.gamma, config.value.gae_lambda, config.value.clip) == (1.0, 0.95, 0.2)
    for learning in (config.learning, config.value.learning):
        assert (learning.learning_rate, learning.final_share, learning.num_epochs) == (1e-5, 1.0, 50)
        assert (learning.minibatch_rows, learning.betas, learning.weight_decay) == (2, (0.9, 0.999), 0.0)


def test_an_entropy_bonus_is_a_term_of_the_critics_loss():
    terms = session_of("ctrl", *STEPS, *WARM, "entropy_coef=0.01").algorithm._updates(1)["critic"].terms
    assert [term.weight for term in terms if term.needs_entropy] == [0.01]


def test_a_warm_up_without_end_is_refused():
    with pytest.raises(ConfigError, match="the policy never learns"):
        config_of("retroformer", "num_steps=4", "value.warmup_updates=4")


def test_the_value_model_begins_with_the_critic_of_the_warm_start():
    method = session_of("retroformer", *STEPS, *WARM, *PPO).algorithm
    policies = method.run.loop.policies
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


@pytest.mark.integration
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
    assert {"no_critic", "sft_critic", "helpful"} == set(session.algorithm.evaluator.summary())
