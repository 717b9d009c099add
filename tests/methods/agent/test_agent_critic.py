"""A critic in the loop of an agent: who learns in which settings, what the agent is shown, what is refused."""

from __future__ import annotations

import json
from random import Random

import pytest
from pydantic import ValidationError

import whet
from support.agent_model import agent_model
from support.benches import method_of, phases_of
from support.sessions import finished
from whet.config import ConfigError, load
from whet.config.parts import ModelConfig
from whet.envs import ENVIRONMENTS
from whet.methods.agent.agent_critic import AgentCritic
from whet.methods.agent.agent_critic_config import AgentCriticConfig
from whet.methods.agent.oracles import Experts
from whet.methods.agent.warm_start import SFTExamples
from whet.methods.agent.warm_start_config import AgentWarmStart
from whet.methods.evaluator import EvalSettings
from whet.models.policy import load_policies
from whet.tasks.prompts import ACTING
from whet.trajectories.experts import expert_trajectories

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
    sizes = [f"{name}.prompts_per_step=3" for name in ("stage1", "stage2") if name in names]
    config = load(AgentCriticConfig, None, [*MAZE, *settings, *sizes])
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
        method_of(config, tmp_path / "run").evaluator.measure("x", EvalSettings(), of_run=False)


SMALL = (
    *MAZE, *MODEL, "data.num_validation=1", "num_threads=1", "rules=none", "sampling.max_new_tokens=8",
    "critique.max_new_tokens=8", "evaluation.max_turns=1", "warm_start.policy_steps=1", "warm_start.rows_per_step=2",
)  # fmt: skip


def test_a_horizon_goes_on_from_stage_to_stage(tmp_path):
    """Stage II begins with the third step of play; attempts for the warm start are played as stage I begins."""
    stages = [f"stage{n}.{each}" for n in (1, 2) for each in ("num_steps=2", "prompts_per_step=2", "group_size=2")]
    horizon = "schedule.max_turns={kind: steps, values: [1, 2, 3], at: [2, 4]}"
    more = ("warm_start.critic_steps=1", "warm_start.attempts=2")
    session = finished("agent_critic", *SMALL, *more, *stages, horizon, folder=tmp_path)
    rows = [row for row in session.loop.folder.read_metrics() if "turns/horizon" in row]
    assert [(row["phase"], row["turns/horizon"]) for row in rows] == [
        ("attempts", 1), ("stage1", 1), ("stage1", 2), ("stage2", 2), ("stage2", 3),
    ]  # fmt: skip
    for row in rows:
        assert row["turns/mean"] <= row["turns/horizon"]
        assert row["episodes/cut_by_horizon"] == row["episodes/cut"]


@whet.reward("one_a_critique")
def one_a_critique(episode, index):
    return 1.0


def test_a_weight_of_a_reward_counts_the_steps_of_its_stage(tmp_path):
    """As all settings of a stage but those of rollouts: stage II begins anew with the schedule's first value."""
    stages = [f"stage{n}.{each}" for n in (1, 2) for each in ("num_steps=2", "prompts_per_step=2", "group_size=2")]
    weight = "schedule.rewards.one_a_critique={kind: steps, values: [0, 100], at: [2]}"
    more = ("warm_start.critic_steps=0", "max_turns=1", "rewards.one_a_critique=1")
    session = finished("agent_critic", *SMALL, *more, *stages, weight, folder=tmp_path)
    rows = [row for row in session.loop.folder.read_metrics() if "reward/mean" in row]
    assert [(row["phase"], row["reward/mean"] > 50) for row in rows] == [
        ("stage1", False), ("stage1", True), ("stage2", False), ("stage2", True),
    ]  # fmt: skip


@pytest.mark.parametrize("critic", [("critic.kind=rule",), MODEL])
def test_where_actions_are_critiqued_the_agent_is_what_was_trained(tmp_path, critic):
    own = [setting for setting in SMALL if setting not in MODEL]
    settings = [*own, *critic, "of=action"]
    if critic != MODEL:
        settings.remove("critique.max_new_tokens=8")
    session = finished("agent_critic", *settings, "max_reviews=2", folder=tmp_path)
    assert [each.name for each in session.loop.done] == ["sft_policy", "test"]
    assert session.algorithm.spec.best_of(session.loop.policies) == "policy"
    rows = session.algorithm.evaluator.summary()
    assert list(rows) == ["no_critic", "critic"] + (["oracle"] if critic == MODEL else [])
    assert rows["no_critic"]["sent_back"] is None
    judged = rows["oracle" if critic == MODEL else "critic"]
    assert judged["sent_back"] > 0  # an agent of random weights does nothing that the expert would
    assert judged["unread"] == 0
    said = [event for event in read_events(tmp_path) if event["event"] == "unread_reviews"]
    assert len(said) == (critic == MODEL)
    if said:  # random weights write no verdict
        assert (rows["critic"]["unread"], rows["critic"]["sent_back"]) == (1, 0)
        assert "critic: 100% of its reviews have no verdict" in said[0]["message"]


def read_events(run):
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def test_a_shipped_model_reviews_no_actions_as_it_has_learnt_no_verdicts():
    with pytest.raises(ValidationError, match=r"tiny_agent has learnt no verdicts.*set critic\.kind=rule"):
        AgentCriticConfig(of="action")
    assert not AgentCriticConfig(of="action", critic={"kind": "rule"}).trains


@pytest.mark.parametrize(("of", "keys"), [
    ("attempt", ["acc", "acc_refine", "delta", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect",
                 "unparsed", "turns", "tokens"]),
    ("action", ["acc", "sent_back", "unread", "turns", "tokens"]),
])  # fmt: skip
def test_what_is_reviewed_before_it_is_done_has_no_before_and_after(of, keys):
    """An episode with reviews is one attempt: columns of what a critique changed would be 0 by construction."""
    config = load(AgentCriticConfig, None, [*MAZE, *RULE, f"of={of}"])
    report_spec = AgentCritic.spec.report_of(config)
    assert [column.key for column in report_spec.columns] == keys
    assert not [column for column in report_spec.columns if "question" in column.meaning or "nswer" in column.meaning]


@pytest.fixture(scope="module")
def agent():
    [policy] = load_policies({"policy": ModelConfig(path="tiny_agent_early")}).values()
    return policy


def sft_examples(name, items, of="attempt"):
    info = ENVIRONMENTS.get(name)
    shown = list(expert_trajectories(info, items, rules="", seed=3))
    return SFTExamples(shown, Experts({name: info}, {}, 4), "react", ACTING, of)


def drawn(name, items, agent, of="attempt", **settings):
    rows = sft_examples(name, items, of).draw(
        4, AgentWarmStart(**settings), agent, Random(0), shows_rules=lambda _: False, max_context=4000
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
