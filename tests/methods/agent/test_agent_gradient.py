"""Multi-turn RL: the horizon's schedule (spec 9.1), published settings, what episodes are paid, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

import whet
from whet.config import Steps, config_at
from whet.credit import ADVANTAGES, AssignedCredit
from whet.envs import ENVIRONMENTS
from whet.methods.agent.agent_gradient import AgentGradient
from whet.methods.agent.agent_gradient_config import AgentGradientConfig
from whet.methods.environment_tasks import parts
from whet.methods.registry import preset_of
from whet.types import Episode, Segment, Task


@pytest.mark.parametrize(
    ("values", "every", "expected"),
    [
        ((8, 12, 15), 80, {1: 8, 80: 8, 81: 12, 160: 12, 161: 15, 1000: 15}),
        ((10, 20, 30), 100, {100: 10, 101: 20, 102: 20, 200: 20, 201: 30}),
        ((7,), 5, {1: 7, 6: 7, 999: 7}),
    ],
)
def test_spec_9_1_the_horizon_is_a_function_of_the_step_alone(values, every, expected):
    """So a resumed run has the horizon of one that was not: step 101 after a checkpoint at 100 has 20 turns, and 102
    too, where the published code skips to 30."""
    config = AgentGradientConfig(schedule={"max_turns": Steps(values=values, every=every)})
    assert {step: config_at(config, step).max_turns for step in expected} == expected
    by_steps = Steps(values=values, at=tuple(1 + i * every for i in range(1, len(values))))
    other = AgentGradientConfig(schedule={"max_turns": by_steps})
    assert [config_at(other, step).max_turns for step in range(1, 300)] == [
        config_at(config, step).max_turns for step in range(1, 300)
    ]


def published_horizons(values, every, *, resumed_at, until):
    """By step, as the published code has them after a checkpoint was loaded. Its counter is moved on behind each step,
    and where it is a multiple of `every` the next horizon begins. A fresh run's counter is the step itself; loading
    sets it to the checkpoint's step, though the step that comes is the one after it."""
    stage, counter, found = resumed_at // every, max(resumed_at, 1), {}
    for step in range(resumed_at + 1, until + 1):
        found[step] = values[min(stage, len(values) - 1)]
        stage += counter % every == 0
        counter += 1
    return found


@pytest.mark.parametrize(
    ("resumed_at", "published"),
    [
        (0, {1: 10, 100: 10, 101: 20, 200: 20, 201: 30, 300: 30}),
        (100, {101: 20, 102: 30, 201: 30}),
        (75, {76: 10, 101: 10, 102: 20, 201: 20, 202: 30}),
    ],
)
def test_spec_9_1_the_published_horizon_depends_on_where_a_run_was_resumed(resumed_at, published):
    """Ours does not, so the two are equal in a fresh run and in no other."""
    found = published_horizons((10, 20, 30), 100, resumed_at=resumed_at, until=300)
    assert {step: found[step] for step in published} == published
    config = AgentGradientConfig(schedule={"max_turns": Steps(values=(10, 20, 30), every=100)})
    others = [step for step, horizon in found.items() if config_at(config, step).max_turns != horizon]
    assert others == {0: [], 100: list(range(102, 201)), 75: [101, 201]}[resumed_at]


def test_a_schedule_has_one_way_to_say_when():
    with pytest.raises(ValidationError, match="one of `at` and `every`"):
        Steps(values=(1, 2), at=(5,), every=5)


PUBLISHED = {
    "agentgym_rl_textcraft": ({1: 30, 201: 30}, (32, 8, 8), (374, 30), (512, 10240)),
    "scaling_inter_textcraft": ({1: 10, 101: 20, 201: 30}, (32, 8, 8), (374, 30), (512, 10240)),
    "agentgym_rl_babyai": ({1: 20, 201: 20}, (16, 8, 8), (810, 10), (200, 4096)),
    "scaling_inter_babyai": ({100: 6, 101: 13, 201: 20}, (32, 4, 8), (810, 20), (512, 8192)),
    "agentgym_rl_sciworld": ({1: 20, 201: 20}, (16, 8, 8), (2120, 10), (200, 4096)),
    "scaling_inter_sciworld": ({100: 10, 101: 20, 201: 30}, (16, 8, 8), (2120, 10), (200, 8192)),
}
"""Horizons by step; items of a step, samples of each, items of an update; items in all, epochs; tokens of a turn and of
an episode."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_spec_5_6_the_published_settings(name):
    config = preset_of(name).config
    horizons, (items, samples, mini), (num_items, epochs), lengths = PUBLISHED[name]
    assert {step: config_at(config, step).max_turns for step in horizons} == horizons
    assert (config.prompts_per_step, config.group_size, config.learning.minibatch_rows) == (
        items, samples, mini * samples,
    )  # fmt: skip
    assert config.num_steps == num_items // items * epochs  # a last batch that is not full is dropped
    assert (config.sampling.max_new_tokens, config.max_context) == lengths
    assert (config.advantage, config.kl.coef, config.kl.where, config.entropy_coef) == ("grpo", 0.001, "loss", 0.001)
    assert (config.loss.bounds.low, config.loss.bounds.high) == (0.8, 1.2)
    learning = config.learning
    assert (learning.learning_rate, learning.final_share, learning.num_epochs) == (1e-6, 1.0, 1)
    assert (learning.betas, learning.weight_decay, learning.max_grad_norm) == ((0.9, 0.999), 0.01, 1.0)
    assert config.aggregation == "sequence_mean"  # micro-batches of one episode, whose means are averaged
    assert config.checkpoint_every == 25
    assert list(config.data.env) == [name.rpartition("_")[2]]
    assert config.evaluation.max_turns == max(horizons.values())  # measured as far as it is trained


def test_spec_5_7_ppo_takes_returns_minus_values():
    """algorithm.gamma and algorithm.lam are 1 in the published configuration."""
    assert (preset_of("agent_ppo").config.value.gamma, preset_of("agent_ppo").config.value.gae_lambda) == (1.0, 1.0)


def an_episode(env, *rewards, item=0):
    turns = tuple(
        Segment(role="agent", policy="policy", added=(1,), tokens=(2,), logprobs=(0.0,), versions=(), text="",
                stop_reason="eos", temperature=1.0, seed=i, parent=None, parsed={"reward": reward})
        for i, reward in enumerate(rewards)
    )  # fmt: skip
    return Episode(task=Task(id="t", prompt="", info={"environment": env, "item": item}), segments=turns)


@pytest.mark.parametrize(
    ("env", "rewards", "scored"),
    [
        ("sciworld", (20.0, 40.0), 0.6),  # spec 9.5: 60 of 100
        ("sciworld", (-100.0,), 0.0),
        ("babyai", (0.0, 0.2), 0.2),
        ("textcraft", (0.0, 1.0), 1.0),
    ],
)
def test_an_episode_is_paid_by_its_environments_scale(env, rewards, scored):
    method = SimpleNamespace(rollouts=SimpleNamespace(infos={env: ENVIRONMENTS.get(env)}))
    found = AgentGradient.scored(method, an_episode(env, *rewards))
    assert found.reward == pytest.approx(scored)
    assert sum(found.gains) == pytest.approx(scored)


def test_turns_add_up_to_the_episode_where_the_score_has_an_end():
    """SciWorld takes 100 points for a fatal mistake: the episode comes to 0, and so do its turns together."""
    method = SimpleNamespace(rollouts=SimpleNamespace(infos={"sciworld": ENVIRONMENTS.get("sciworld")}))
    found = AgentGradient.scored(method, an_episode("sciworld", 8.0, -108.0))
    assert (found.reward, found.gains) == (0.0, pytest.approx((0.08, -0.08)))


def test_an_episode_that_a_term_cannot_tell_of_is_not_paid():
    @whet.reward("cannot tell")
    def cannot(episode, index):
        return None

    method = SimpleNamespace(rollouts=SimpleNamespace(infos={"textcraft": ENVIRONMENTS.get("textcraft")}))
    assert AgentGradient.scored(method, an_episode("textcraft", 1.0), {"cannot tell": 1.0}) is None
    assert AgentGradient.scored(method, an_episode("textcraft")) is None


def test_episodes_of_other_lengths_with_one_reward_teach_nothing():
    infos = {"textcraft": ENVIRONMENTS.get("textcraft")}
    method = SimpleNamespace(
        rollouts=SimpleNamespace(infos=infos), gradient=SimpleNamespace(advantage=ADVANTAGES.get("grpo"))
    )
    group = [AgentGradient.scored(method, an_episode("textcraft", *gains)) for gains in ((0, 1), (0, 0, 1))]
    assert not AgentGradient._is_taught(method, AgentGradientConfig(), group, AssignedCredit([]))
    group.append(AgentGradient.scored(method, an_episode("textcraft", 0)))
    assert AgentGradient._is_taught(method, AgentGradientConfig(), group, AssignedCredit([]))


def test_terms_of_a_users_own_are_added_at_the_last_turn():
    @whet.reward("turns of agents")
    def turns(episode, index):
        return -index / 10

    method = SimpleNamespace(rollouts=SimpleNamespace(infos={"textcraft": ENVIRONMENTS.get("textcraft")}))
    found = AgentGradient.scored(method, an_episode("textcraft", 0.0, 0.0, 1.0), {"turns of agents": 0.5})
    assert found.reward == pytest.approx(0.9)
    assert found.gains == pytest.approx((0.0, 0.0, 0.9))


@pytest.mark.parametrize(
    ("shares", "count", "expected"),
    [
        ({"a": 1.0}, 5, {"a": 5}),
        ({"a": 1.0, "b": 1.0}, 5, {"a": 3, "b": 2}),
        ({"a": 3.0, "b": 1.0}, 8, {"a": 6, "b": 2}),
        ({"a": 98.0, "b": 1.0, "c": 1.0}, 8, {"a": 6, "b": 1, "c": 1}),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, 2, {"a": 1, "b": 1, "c": 0}),
    ],
)
def test_items_are_shared_out(shares, count, expected):
    assert parts(shares, count) == expected
    assert sum(expected.values()) == count


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sampling": {"temperature": 0}}, "all episodes of an item equal"),
        ({"off_policy": {"kind": "partial"}}, "partial is of single replies"),
        ({"credit": {"per": "gigpo"}, "advantage": "gae"}, "gae takes a value model"),
        ({"credit": {"per": "turn"}, "kl": {"coef": 0.1, "where": "reward"}}, r"goes with kl\.where = loss"),
        ({"correction": {}}, "correction needs proximal"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, says):
    with pytest.raises(ValidationError, match=says):
        AgentGradientConfig(**settings)
