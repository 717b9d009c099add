"""A critic in the loop of an agent: who learns in which settings, what the agent is shown, what is refused."""

from __future__ import annotations

from random import Random

import pytest
from pydantic import ValidationError

from support.agent_model import agent_model
from support.benches import method_of, phases_of
from whet.config import ConfigError, load
from whet.config.parts import ModelConfig
from whet.envs import ENVIRONMENTS
from whet.envs.experts import expert_trajectories
from whet.methods.agent_critic import AgentCriticConfig
from whet.models.policy import load_policies
from whet.play.agent_oracles import Experts
from whet.runs.agent_warm_start import AgentWarmStart, Lessons
from whet.runs.method import EvalSettings
from whet.tasks.dialects import ACTING

MAZE = (f"policy.path={agent_model()}", "data.env=maze", "data.num_train=3", "data.num_test=2", "max_context=4000")
MODEL, RULE = (f"critic.path={agent_model()}",), ("critic.kind=rule",)
ENDPOINT = ("critic.kind=endpoint", "critic.url=http://127.0.0.1:9/v1", "critic.model=m")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (MODEL, ["sft_policy", "attempts", "sft_critic", "stage1", "stage2", "test"]),
        ((*MODEL, "warm_start.policy_steps=0", "stage1.num_steps=0"), ["attempts", "sft_critic", "stage2", "test"]),
        (RULE, ["sft_policy", "test"]),
        ((*RULE, "warm_start.policy_steps=0"), ["test"]),
        (ENDPOINT, ["sft_policy", "test"]),
    ],
)
def test_what_is_trained_depends_on_who_sits_there(settings, names, tmp_path):
    config = load(AgentCriticConfig, None, [*MAZE, *settings])
    method = method_of(config, tmp_path / "run")
    assert list(phases_of(method)) == names
    assert config.trains == (settings[0] in MODEL)


def test_a_greedy_critic_learns_nothing_and_is_refused():
    with pytest.raises(ValidationError, match=r"critique\.temperature = 0"):
        AgentCriticConfig(critique={"temperature": 0})
    assert AgentCriticConfig(critique={"temperature": 0}, critic={"kind": "rule", "name": "judge"}).critic.name


def test_there_is_no_critic_of_another_name(tmp_path):
    config = load(AgentCriticConfig, None, [*MAZE, *RULE, "warm_start.policy_steps=0"])
    with pytest.raises(ConfigError, match="no critic 'x'; choose of: no_critic, critic, oracle, judge, empty, false"):
        method_of(config, tmp_path / "run").measure("x", EvalSettings(), of_run=False)


@pytest.fixture(scope="module")
def agent():
    [policy] = load_policies({"policy": ModelConfig(path="tiny_agent_early")}).values()
    return policy


def lessons(name, items, of="attempt"):
    info = ENVIRONMENTS.get(name)
    shown = list(expert_trajectories(info, items, rules="", seed=3))
    return Lessons(shown, Experts({name: info}, {}, 4), "react", ACTING, of)


def drawn(name, items, agent, of="attempt", **settings):
    rows = lessons(name, items, of).draw(
        4, AgentWarmStart(**settings), agent, Random(0), shows_rules=False, max_context=4000
    )
    return [(agent.tokenizer.decode(row.tokens), agent.tokenizer.decode(row.tokens[row.trains])) for row in rows]


def test_an_agent_learns_from_episodes_that_begin_with_the_experts_plan(agent):
    """The plan stands in front and does not train; what the agent says of it does."""
    for whole, learnt in drawn("textcraft", [0, 60], agent, critiqued=1, drilled=0):
        first = whole.partition("<|assistant|>")[0]
        plan = first.partition("\n\nFor ")[2].partition("\nSuccess: missing<|end|>")[0]
        assert plan
        assert f"For {plan}" in learnt, "what the expert thinks first is the plan"
        assert "Success" not in learnt
    assert all("Success" not in whole for whole, _ in drawn("textcraft", [0, 60], agent, critiqued=0))


def test_an_agent_that_is_misled_is_shown_another_plan_and_does_the_right_thing(agent):
    for whole, learnt in drawn("textcraft", [0, 60], agent, critiqued=1, drilled=0, misled=1):
        plan = whole.partition("\n\nFor ")[2].partition("\nSuccess: missing<|end|>")[0]
        assert plan
        assert plan not in learnt


def test_a_drill_is_one_reply_that_goes_by_a_plan_which_nothing_else_tells(agent):
    for whole, learnt in drawn("textcraft", [0, 60, 90, 120], agent, critiqued=1, drilled=1):
        goal = whole.partition("Goal: craft ")[2].partition(".")[0]
        plan = whole.partition("\n\nFor ")[2].partition("\nSuccess: missing<|end|>")[0]
        assert learnt.startswith(f"Thought:\nFor {plan}\n\nAction:\n"), goal
        assert learnt.count("Action:") == 1


def test_where_a_plan_lists_actions_the_agent_takes_them_and_thinks_no_more(agent):
    for whole, learnt in drawn("maze", [4], agent, critiqued=1, drilled=0):
        plan = whole.partition("Success: missing")[0].splitlines()[-4:]
        said = learnt.split("Action:\n")[1:5]
        assert [each.splitlines()[0].removesuffix("<|end|>Thought:") for each in said] == plan
        assert "Let me go on by the plan." in learnt


def test_an_action_that_is_sent_back_does_not_train_and_the_one_after_it_does(agent):
    for whole, learnt in drawn("textcraft", [0, 60], agent, of="action", critiqued=1):
        before, _, after = whole.partition("\nSuccess: missing<|end|>")
        sent_back, better = before.rpartition("Action:\n")[2].split("<|end|><|user|>")
        assert after.startswith(f"<|assistant|>Thought:\nLet me go on by the plan.\n\nAction:\n{better}<|end|>")
        assert better in learnt
        assert sent_back != better


def test_words_of_the_terse_critiques_are_single_tokens_of_the_tiny_agents(agent):
    for right in (True, False):
        assert len(agent.tokenizer.encode(f"\n{ACTING.closing(right=right)}")) == 4
