"""Critique-RL as a method: budget, schedule, stages (spec sections 3, 9.10), answers that are kept, settings read."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from support.benches import method_of, phases_of
from support.commands import Quiet, config_of
from whet.config import read_all, unread
from whet.config.reads import forget_reads
from whet.methods.critic.critique_rl import Answers, CritiqueRL
from whet.rewards import REWARDS
from whet.run import launch, session
from whet.types import Grade


@pytest.fixture
def method(random_model, tmp_path):
    """The method on a random model, in a run folder; settings as overrides."""

    def build(*overrides: str, grade=None) -> CritiqueRL:
        paths = (f"actor.path={random_model}", f"critic.path={random_model}")
        small = ("data.num_train=512", "data.num_validation=4", "data.num_test=4")
        return method_of(config_of("critique_rl", *paths, *small, *overrides), tmp_path / "run", grade)

    return build


def test_spec_9_10_the_paper_s_batch_makes_256_critiques_and_8_updates_a_step(method):
    paper = ("prompts_per_step=64", "group_size=4", "learning.num_epochs=2", "learning.minibatch_rows=64")
    made = method("stage1.num_steps=500", *(f"stage1.{setting}" for setting in paper))
    assert phases_of(made)["stage1"].updates(1)["critic"].num_updates == 500 * 8
    assert 500 * 64 == 32_000


def test_spec_9_10_learning_rate_warms_up_and_ends_at_a_tenth_of_its_peak(method):
    made = method("stage1.num_steps=10", "stage1.learning.learning_rate=1e-3", "stage1.learning.warmup_steps=4")
    rule = phases_of(made)["stage1"].updates(1)["critic"]
    assert [rule.learning_rate(i) for i in range(5)] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert rule.learning_rate(rule.num_updates) == pytest.approx(1e-4)
    rates = [rule.learning_rate(i) for i in range(4, rule.num_updates)]
    assert rates == sorted(rates, reverse=True)


def test_spec_9_10_stages_are_phases_and_stage_two_is_held_to_the_stage_one_critic(method):
    made = method("stage1.num_steps=2", "stage2.num_steps=2", "stage1.prompts_per_step=4",
                  "stage2.prompts_per_step=4", "warm_start.actor_steps=0", "warm_start.critic_steps=0",
                  "stage1.learning.learning_rate=0.01")  # fmt: skip
    phases = phases_of(made)
    assert list(phases) == ["stage1", "stage2", "test"]
    run, policies = made.run.loop, made.run.loop.policies
    run.run([phases["stage1"]])
    assert {"critic_sft", "critic_stage1"} <= policies.keys()
    run.fork("critic", "critic_stage1")  # as if stage I had ended in its best step
    phases["stage2"].begin()
    states = [policies[name].state().values() for name in ("critic", "critic_sft")]
    differs = [not torch.equal(a, b) for a, b in zip(*states, strict=True)]
    assert any(differs)
    first = phases["stage2"].collect(1)
    assert first.metrics["kl/ref"] == pytest.approx(0, abs=1e-6)
    assert {"reward/indirect", "reward/judged_right"} <= first.metrics.keys()
    assert "reward/direct" in phases["stage1"].collect(1).metrics


def test_leaving_a_stage_out_changes_start_and_reference(method):
    made = method("stage1.num_steps=0", "stage2.num_steps=1", "stage2.prompts_per_step=2")
    phases = phases_of(made)
    assert "stage1" not in phases
    phases["stage2"].begin()
    assert "critic_sft" in made.run.loop.policies
    assert phases["stage2"].collect(1).metrics["kl/ref"] == pytest.approx(0, abs=1e-6)


def test_a_second_time_starts_from_and_is_held_to_the_first_stage_two(method):
    one = ("num_steps=1", "prompts_per_step=3")
    made = method(*(f"stage{n}.{setting}" for n in (1, 2) for setting in one), "iterations=2",
                  "warm_start.actor_steps=0", "warm_start.critic_steps=0")  # fmt: skip
    phases = phases_of(made)
    assert list(phases) == ["stage1", "stage2", "stage1_2", "stage2_2", "test"]
    made.run.loop.run([phases["stage1"], phases["stage2"]])
    policies = made.run.loop.policies
    with torch.no_grad():  # as if stage II had found something
        policies["critic_stage2"].model.model.norm.weight.mul_(0.5)
    phases["stage1_2"].begin()
    assert torch.equal(policies["critic"].model.model.norm.weight, policies["critic_stage2"].model.model.norm.weight)
    batch = phases["stage1_2"].collect(1)
    assert batch.metrics["kl/ref"] == pytest.approx(0, abs=1e-6)
    assert "reward/direct" in batch.metrics
    asked = [[e.task.id for e in made._episodes(key, 1, getattr(made.config, key), time)]
             for time in (1, 2) for key in ("stage1", "stage2")]  # fmt: skip
    assert len({name for names in asked for name in names}) == 4 * 3


def test_once_through_both_stages_is_as_before(method):
    assert method().config.iterations == 1
    assert list(phases_of(method())) == ["sft_actor", "sft_critic", "stage1", "stage2", "test"]


def test_stage_two_goes_on_with_new_problems_and_rounds_come_after_the_last(method):
    made = method("stage1.num_steps=3", "stage1.prompts_per_step=4", "stage2.prompts_per_step=5", "data.num_train=20")

    def asked(stage, step):
        return [episode.task.id for episode in made._episodes(stage, step, getattr(made.config, stage))]

    first = [name for step in (1, 2, 3) for name in asked("stage1", step)]
    second = asked("stage2", 1)
    assert len(set(first + second)) == 17
    assert asked("stage2", 2)[3:] == first[:2]


def test_validation_is_a_plain_round_whatever_the_test_will_be(method):
    made = method("evaluation.oracle_verifier=true", "evaluation.num_rounds=2", "warm_start.actor_steps=0")
    found = made.evaluator.validate(0, phase="stage1").metrics
    assert found["n"] == 4
    assert found["unparsed"] == 1.0  # a random critic judged every answer, the right ones too


def test_a_stage_in_which_nothing_could_be_measured_is_still_kept(method):
    made = method("stage1.num_steps=1", "stage1.prompts_per_step=2", "stage2.num_steps=1", "stage2.prompts_per_step=2",
                  "warm_start.actor_steps=0", "warm_start.critic_steps=0", "faults.budget=1",
                  grade=lambda items: [Grade(score=None, reason="down") for _ in items])  # fmt: skip
    made.run.loop.run([phase for phase in made.phases() if phase.name != "test"])
    assert {"critic_stage1", "critic_stage2"} <= made.run.loop.policies.keys()
    events = (made.run.loop.folder.path / "events.jsonl").read_text()
    assert "unmeasured" in events


def test_the_schedule_counts_the_updates_that_are_made(method):
    made = method("warm_start.actor_steps=3", "warm_start.rows_per_step=10", "warm_start.learning.minibatch_rows=4",
                  "stage1.num_steps=2", "stage1.prompts_per_step=1000", "stage1.learning.minibatch_rows=64",
                  "data.num_train=20")  # fmt: skip
    phases = phases_of(made)
    assert phases["sft_actor"].updates(1)["actor"].num_updates == 3 * 3
    assert phases["stage1"].updates(1)["critic"].num_updates == 2 * 2 * 2  # 20 problems x 4 = 80 rows: 2 minibatches


def test_cached_answers_take_turns_when_a_problem_comes_again(method):
    made = method("answers=cached", "cached_per_task=2", "stage1.prompts_per_step=4", "data.num_train=8",
                  "stage1.num_steps=4", "roles.answer.temperature=1.0")  # fmt: skip
    made.run.loop.fork("critic", "critic_sft")
    episodes = [made._episodes("stage1", step, made.config.stage1) for step in (1, 3)]
    assert [e.task for e in episodes[0]] == [e.task for e in episodes[1]]
    assert [e.segments[0].text for e in episodes[0]] != [e.segments[0].text for e in episodes[1]]
    tasks = [episode.task for episode in episodes[0]]
    assert [made.answers.of(tasks, 8 * visit) for visit in (2, 3)] == [made.answers.of(tasks, 8 * i) for i in (0, 1)]
    assert made.answers.of(tasks, 0) != made.answers.of(tasks, 8)


def test_a_problem_that_comes_again_within_a_step_has_its_next_answer(method):
    """Ten problems, four a step: step 3 ends one round of the set and begins the next."""
    made = method("answers=cached", "cached_per_task=2", "stage1.prompts_per_step=4", "data.num_train=10",
                  "stage1.num_steps=20", "roles.answer.temperature=1.0")  # fmt: skip
    made._sample_answers()
    tasks = made.answers.tasks
    seen = {task.id: set() for task in tasks}
    for step in range(1, 11):
        now = made.run.next_tasks(step, 4)
        for name, segment in made.answers.of(now, 4 * (step - 1)).items():
            seen[name].add(made.answers.by_task[name].index(segment))
    assert all(numbers == {0, 1} for numbers in seen.values())


def test_cached_answers_are_sampled_once_and_kept_in_the_run_folder(method):
    made = method("answers=cached", "cached_per_task=2", "stage1.num_steps=2", "stage1.prompts_per_step=4",
                  "stage2.num_steps=0", "warm_start.actor_steps=0", "warm_start.critic_steps=0")  # fmt: skip
    phases = phases_of(made)
    phases["stage1"].begin()
    rows = phases["stage1"].collect(1).traces
    kept = [json.loads(line) for line in (made.run.loop.folder.path / "answers.jsonl").read_text().splitlines()]
    assert len(kept) == 2 * 8  # two answers of each of the problems that two steps come to
    assert {row["answer"] for row in rows} <= {row["answer"] for row in kept}
    assert phases["stage1"].collect(2).traces != rows


def test_a_problem_whose_cached_answer_was_lost_is_left_out_in_every_session(method):
    made = method("answers=cached", "stage1.prompts_per_step=4", "data.num_train=8", "stage1.num_steps=2",
                  "warm_start.critic_steps=0")  # fmt: skip
    made.keep_sft()
    made._sample_answers()
    lost, *rest = made.answers.tasks
    made.answers.put({task.id: made.answers.by_task[task.id] for task in rest})
    found = [episode.task.id for step in (1, 2) for episode in made._episodes("stage1", step, made.config.stage1)]
    assert lost.id not in found
    assert set(found) == {task.id for task in rest}
    again = Answers(made.run.loop.folder, [lost, *rest], None)
    assert again.is_ready
    assert again.tasks == rest


@pytest.mark.parametrize("sequence_level", [True, False])
def test_a_stage_takes_its_credit_from_the_level_that_is_asked_for(method, sequence_level):
    made = method(f"stage1.sequence_level={sequence_level}", "stage1.kl_coef=0.5", "stage1.prompts_per_step=3",
                  "warm_start.critic_steps=0", "stage1.scale=unit", "rewards.few_tokens=0.125")  # fmt: skip
    made.keep_sft()
    with torch.no_grad():
        made.run.loop.policies["critic_sft"].model.model.norm.weight.mul_(0.5)
    batch = phases_of(made)["stage1"].collect(1)
    assert batch.metrics["kl/ref"] != 0
    assert {len(np.unique(row.credit)) == 1 for row in batch.rows} == {sequence_level}
    assert batch.metrics["reward/mean"] == pytest.approx(
        batch.metrics["reward/direct"] + 0.125 * batch.metrics["reward/few_tokens"]
    )


@REWARDS.register("few_tokens")
def few_tokens(episode, index):
    """Minus a token's share of a hundred."""
    return -len(episode.segments[index].tokens) / 100


# --- settings that are really read ----------------------------------------------------------------------------------


def test_every_key_is_read_by_a_run_that_uses_its_part(random_model, tmp_path, monkeypatch):
    """All is promised to be read as the run goes on: hold the method to that."""
    monkeypatch.setattr(session, "read_all", lambda config: None)
    monkeypatch.setattr(launch, "check_all_read", lambda config: None)
    settings = {
        "seed": 5, "num_threads": 1, "actor.path": random_model, "critic.path": random_model,
        "actor.dtype": "float32", "actor.device": "cpu", "critic.gradient_checkpointing": "true",
        "critic.lora.rank": 2, "critic.lora.alpha": 3.0, "data.min_steps": 2, "data.max_steps": 4,
        "data.num_train": 65, "data.num_validation": 5, "data.num_test": 6, "engine.max_rows": 50,
        "engine.prefill_tokens": 4000, "answers": "cached", "cached_per_task": 2, "checkpoint_every": 3,
        "traces_per_step": 3, "warm_start.actor_steps": 1, "warm_start.critic_steps": 1,
        "warm_start.rows_per_step": 4, "warm_start.refine_share": 0.5, "evaluation.num_rounds": 2,
        "evaluation.history": "last", "evaluation.oracle_verifier": "true", "evaluation.num_validation": 3,
        "evaluation.num_test": 3, "stage1.scale": "unit", "stage2.indirect": "delta", "stage2.combine": "additive",
        "stage2.weight": 0.3,
    }  # fmt: skip
    for role in ("answer", "critique", "refinement"):
        settings |= {f"roles.{role}.temperature": 0.9, f"roles.{role}.top_p": 0.9}
        settings |= {f"roles.{role}.max_new_tokens": 20, f"roles.{role}.stop": "['zzz']"}
    for name in ("stage1", "stage2"):
        settings |= {f"{name}.num_steps": 1, f"{name}.prompts_per_step": 3, f"{name}.group_size": 3}
        settings |= {f"{name}.kl_coef": 0.02, f"{name}.sequence_level": "true", f"{name}.clip": 0.3}
        settings |= {f"{name}.validate_every": 1}
    for name in ("warm_start", "stage1", "stage2"):
        settings |= {f"{name}.learning.{key}": value for key, value in {
            "learning_rate": 1e-4, "final_share": 0.2, "warmup_steps": 1, "betas": "[0.8, 0.9]", "weight_decay": 0.01,
            "max_grad_norm": 0.5, "minibatch_rows": 5, "num_epochs": 3, "token_budget": 500}.items()}  # fmt: skip
    settings["stage2.discrimination"] = "true"
    config = config_of("critique_rl", *(f"{key}={value}" for key, value in settings.items()))
    forget_reads(config)
    begun = launch.start(config, tmp_path / "run", Quiet())
    assert isinstance(begun, session.Session)
    begun.go()
    assert unread(config) == []
    read_all(config)
