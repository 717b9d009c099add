"""Multi-turn RL: the horizon's schedule (spec 9.1), what episodes are paid, how items are drawn, what is refused."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

import whet
from support.agent_model import agent_model
from whet.config import ConfigError, Steps, config_at
from whet.credit import ADVANTAGES, Earned
from whet.envs import ENVIRONMENTS
from whet.methods.agent_gradient import AgentGradient, AgentGradientConfig
from whet.runs.registry import preset_of
from whet.runs.worlds import parts
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


@pytest.mark.parametrize(
    ("name", "horizons", "sizes"),
    [
        ("agentgym_rl_textcraft", {1: 30, 201: 30}, (32, 8, 64)),
        ("scaling_inter_textcraft", {1: 10, 101: 20, 201: 30}, (32, 8, 64)),
        ("agentgym_rl_babyai", {1: 20}, (16, 8, 64)),
        ("scaling_inter_babyai", {100: 6, 101: 13, 201: 20}, (32, 4, 32)),
        ("scaling_inter_sciworld", {100: 10, 101: 20, 201: 30}, (16, 8, 64)),
    ],
)
def test_spec_5_6_the_published_settings(name, horizons, sizes):
    config = preset_of(name).config
    assert {step: config_at(config, step).max_turns for step in horizons} == horizons
    assert (config.prompts_per_step, config.group_size, config.learning.minibatch_rows) == sizes
    assert (config.kl.coef, config.kl.where, config.learning.learning_rate) == (0.001, "loss", 1e-6)
    assert list(config.data.env) == [name.rpartition("_")[2]]


def an_episode(world, *rewards, item=0):
    turns = tuple(
        Segment(role="agent", policy="policy", added=(1,), tokens=(2,), logprobs=(0.0,), versions=(), text="",
                stop_reason="eos", temperature=1.0, seed=i, parent=None, parsed={"reward": reward})
        for i, reward in enumerate(rewards)
    )  # fmt: skip
    return Episode(task=Task(id="t", prompt="", info={"environment": world, "item": item}), segments=turns)


@pytest.mark.parametrize(
    ("world", "rewards", "paid"),
    [
        ("sciworld", (20.0, 40.0), 0.6),  # spec 9.5: 60 of 100
        ("sciworld", (-100.0,), 0.0),
        ("babyai", (0.0, 0.2), 0.2),
        ("textcraft", (0.0, 1.0), 1.0),
    ],
)
def test_an_episode_is_paid_by_its_environments_scale(world, rewards, paid):
    method = SimpleNamespace(infos={world: ENVIRONMENTS.get(world)})
    found = AgentGradient.paid(method, an_episode(world, *rewards))
    assert found.reward == pytest.approx(paid)
    assert sum(found.gains) == pytest.approx(paid)


def test_turns_add_up_to_the_episode_where_the_score_has_an_end():
    """SciWorld takes 100 points for a fatal mistake: the episode comes to 0, and so do its turns together."""
    method = SimpleNamespace(infos={"sciworld": ENVIRONMENTS.get("sciworld")})
    found = AgentGradient.paid(method, an_episode("sciworld", 8.0, -108.0))
    assert (found.reward, found.gains) == (0.0, pytest.approx((0.08, -0.08)))


def test_an_episode_that_a_term_cannot_tell_of_is_not_paid():
    @whet.reward("cannot tell")
    def cannot(episode, index):
        return None

    method = SimpleNamespace(infos={"textcraft": ENVIRONMENTS.get("textcraft")})
    assert AgentGradient.paid(method, an_episode("textcraft", 1.0), {"cannot tell": 1.0}) is None
    assert AgentGradient.paid(method, an_episode("textcraft")) is None


def test_episodes_of_other_lengths_with_one_reward_teach_nothing():
    infos = {"textcraft": ENVIRONMENTS.get("textcraft")}
    method = SimpleNamespace(infos=infos, gradient=SimpleNamespace(advantage=ADVANTAGES.get("grpo")))
    group = [AgentGradient.paid(method, an_episode("textcraft", *gains)) for gains in ((0, 1), (0, 0, 1))]
    assert not AgentGradient._is_taught(method, AgentGradientConfig(), group, Earned([]))
    group.append(AgentGradient.paid(method, an_episode("textcraft", 0)))
    assert AgentGradient._is_taught(method, AgentGradientConfig(), group, Earned([]))


def test_terms_of_a_users_own_are_added_at_the_last_turn():
    @whet.reward("turns of agents")
    def turns(episode, index):
        return -index / 10

    method = SimpleNamespace(infos={"textcraft": ENVIRONMENTS.get("textcraft")})
    found = AgentGradient.paid(method, an_episode("textcraft", 0.0, 0.0, 1.0), {"turns of agents": 0.5})
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


@pytest.fixture(scope="module")
def settings():
    return {
        "policy": {"path": str(agent_model())}, "data": {"env": {"maze": 3, "counting": 1}, "num_test": 2,
        "num_validation": 2}, "prompts_per_step": 4, "group_size": 3, "num_steps": 3, "num_threads": 1,
        "rules": False, "sampling": {"max_new_tokens": 24}, "evaluation": {"max_turns": 2}, "progress": False,
        "schedule": {"max_turns": {"kind": "steps", "values": [1, 2, 3], "every": 1}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A world of a user's own: two turns and it is over."""
    file = tmp_path_factory.mktemp("worlds") / "counting.py"
    file.write_text(
        "import whet\n"
        "@whet.env('counting', splits={'train': range(20), 'test': range(20, 24)}, max_turns=4, parser='plain')\n"
        "class Counting:\n"
        "    def reset(self, item, *, seed=0):\n"
        "        self.left = 2\n"
        "        return 'go', {}\n"
        "    def step(self, action):\n"
        "        self.left -= 1\n"
        "        return 'on', len(action) / 1000, self.left == 0, False, {}\n"
    )
    return file


@pytest.mark.slow
def test_a_run_mixes_worlds_and_its_horizon_grows(tmp_path, settings, counting):
    run = whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **settings)
    rows = [row for row in run.metrics_of("train") if row["step"]]
    assert [row["turns/horizon"] for row in rows] == [1, 2, 3]
    assert all(row["turns/mean"] <= row["turns/horizon"] for row in rows)
    assert rows[0]["turns/mean"] == 1
    assert rows[0]["episodes/cut"] == 1
    worlds = Counter(trace["task"].partition("_")[0] for trace in run.traces if trace["phase"] == "train")
    assert {"reward/success[maze]", "reward/success[counting]"} <= rows[0].keys()
    assert worlds
    assert run.table["before"]["n"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agent_ppo", "agent_rloo", "agent_reinforce_pp", "agent_bapo", "agent_gigpo"])
def test_the_others_run_too(tmp_path, settings, counting, name):
    own = {**settings, "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "num_steps": 1}
    if name == "agent_ppo":
        own["value"] = {"warmup_updates": 0}
    run = whet.train(name, out=tmp_path / "run", plugins=[counting], **(own | {"schedule": {}, "max_turns": 2}))
    [row] = [row for row in run.metrics_of("train") if row["step"]]
    assert row["reward/mean"] > 0
    assert ("value/explained" in row) == (name == "agent_ppo")


def test_single_episodes_cannot_be_compared(tmp_path, settings, counting):
    own = {**settings, "data": {"env": "counting"}, "group_size": 1}
    with pytest.raises(ConfigError, match="compares the episodes of a group"):
        whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **own)


def test_each_world_has_an_item_in_a_step(tmp_path, settings, counting):
    with pytest.raises(ConfigError, match="prompts_per_step = 1 leaves none for some of the 2"):
        whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **(settings | {"prompts_per_step": 1}))
