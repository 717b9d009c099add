"""Cloning an agent: which weights are kept."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch

from support.agent_model import agent_model
from support.sessions import finished, session_of
from whet.config.parts import ModelConfig
from whet.methods.registry import preset_of
from whet.tasks.files import DataError

MAZE = (
    f"policy.path={agent_model()}", "data.env=maze", "data.num_train=3", "data.num_test=1", "data.num_validation=1",
    "num_steps=4", "rows_per_step=2", "validate_every=2", "sampling.max_new_tokens=8", "evaluation.max_turns=1",
)  # fmt: skip


def test_where_nothing_succeeds_the_last_weights_are_the_best(tmp_path):
    """A model of random weights does not find out of a maze in a turn, and what it was cloned for is RL after it."""
    session = finished("agent_clone", *MAZE, folder=tmp_path / "run")
    best, last = (session.loop.policies[name].causal_lm.state_dict() for name in ("policy_best", "policy"))
    assert all(torch.equal(best[name], last[name]) for name in last)
    [told] = [row for row in session.loop.folder.logs.rows("events.jsonl") if row["event"] == "none_succeeded"]
    assert told["message"] == (
        "train: nothing succeeded in any validation, so the best weights (policy_best) are the last ones that were "
        "validated"
    )


def test_experts_without_a_success_are_named_as_what_there_is_nothing_to_learn_from():
    with pytest.raises(DataError, match=r"the experts had no success; raise expert\.max_turns"):
        session_of("agent_clone", *MAZE, "expert.max_turns=1")


def facts_of(*settings):
    return session_of("agent_clone", *MAZE, *settings).algorithm


def test_the_dials_of_the_expert_say_what_is_learnt():
    """Three items: as many plays of each as asked, and without `keep_failures` no failure."""
    plain = facts_of()
    assert plain.run.info == ["3 trajectories to learn from"]
    several = facts_of(
        "expert.num_episodes=2", "expert.wrong_action=0.9", "expert.max_turns=6", "expert.keep_failures=true"
    )
    [fact] = several.run.info
    assert fact.startswith("6 trajectories to learn from, ")
    kept = int(fact.removesuffix(" of them failures").rpartition(" ")[2])
    assert 0 < kept <= 6
    assert not [
        warning for each in (plain, several) for warning in each.run.warnings if "marked as no success" in warning
    ]
    successes = facts_of("expert.num_episodes=2", "expert.wrong_action=0.9", "expert.max_turns=6") if kept < 6 else None
    assert successes is None or successes.run.info == [f"{6 - kept} trajectories to learn from"]


def test_experts_with_much_to_play_say_so_first(monkeypatch):
    """Of a thousand plays of each item a run would be silent for many minutes."""
    monkeypatch.setattr("whet.methods.agent.cloning.MANY", 5)
    settings = (*MAZE, "expert.num_episodes=2")
    assert not session_of("agent_clone", *MAZE).loop.progress.told
    assert session_of("agent_clone", *settings).loop.progress.told == [
        ("info", "the experts write 6 episodes before anything is learnt; expert.num_episodes says how many")
    ]


def test_a_validation_counts_all_its_episodes():
    """What chooses the best weights is the mean of the items' shares, and some share is neither 0 nor 1."""
    careless = ("data.num_validation=6", "data.num_train=8", "data.num_test=1", "expert.num_episodes=1")
    session = session_of(
        "agent_clone_careless", "policy.path=tiny_agent_careless", "policy.random_weights=null", *careless
    )
    found = session.algorithm.evaluator.validate(0)
    shares = [trace["share"] for trace in found.traces]
    assert len(shares) == 6
    assert found.metrics["success"] == pytest.approx(fmean(shares))
    assert found.metrics["k"] == 4
    assert set(shares) & {0.25, 0.5, 0.75}


def test_items_of_validation_are_not_cloned():
    """Careless play is of the training items alone, so that the best weights are chosen on items of nobody's play."""
    settings = ("expert.num_episodes=3", "expert.keep_failures=true", "expert.wrong_action=0.3")
    warnings = facts_of(*settings).run.warnings
    assert not [warning for warning in warnings if "demonstrated too" in warning]


def test_random_weights_are_of_their_seed_and_not_of_the_folder():
    """Of the folder only shape and tokenizer are taken."""
    states = [
        session_of("agent_clone", *MAZE, *seed).loop.policies["policy"].causal_lm.state_dict()
        for seed in ((), ("policy.random_weights=1",), ("policy.random_weights=1",), ("policy.random_weights=2",))
    ]
    saved, one, again, two = (state["model.embed_tokens.weight"] for state in states)
    assert torch.equal(one, again)
    assert one.shape == saved.shape
    assert not torch.equal(one, two)
    assert not torch.equal(one, saved)


def test_the_control_and_rl_share_the_play_and_the_items_of_the_agent_that_they_begin_with():
    raised, more, expert, rl = (
        preset_of(name).config
        for name in ("agent_clone_careless", "agent_clone_more", "agent_clone_expert", "agent_grpo_tiny")
    )
    assert raised.policy.random_weights is not None
    assert more.expert == raised.expert != expert.expert
    assert more.data == expert.data == rl.data == raised.data
    assert more.policy == expert.policy == rl.policy == ModelConfig(path="tiny_agent_careless")
    assert more.format == expert.format == rl.format == raised.format == "plain"
