"""`whet eval` of a critic's run: plain answers, the actor as its own critic, more refinements, another actor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from support.commands import Quiet, config_of
from support.sessions import STEPS, WARM, WORLD
from whet.config import ConfigError, to_yaml
from whet.methods.evaluator import EvalSettings
from whet.run import launch
from whet.run.evaluate import beside_training, evaluate, target_of


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    launch.start(config_of("ref_critic", *WORLD, *STEPS, *WARM), folder, Quiet()).go()
    return folder


def measured(run: Path, *changed: str, **asked):
    config, folder = target_of(str(run), None, changed)
    return evaluate(config, folder, EvalSettings(changed=changed, **asked), Quiet())


def records(run: Path, beginning: str) -> list[tuple[str, dict]]:
    files = sorted((run / "eval").glob(f"{beginning}*.json"))
    return [(file.name, json.loads(file.read_text())) for file in files]


@pytest.mark.integration
def test_plain_answers_have_no_critic_and_a_majority_of_their_own(run):
    found, _ = measured(run, names=("no_critic", "critic_sft"), num_samples=3)
    plain, sft = found["no_critic"], found["sft_critic"]
    assert plain["acc_dis"] is None
    assert plain["majority_refine"] == plain["majority_answer"] == sft["majority_answer"]  # the same seeds
    [(name, record)] = records(run, "no_critic-test-k3")
    assert name == "no_critic-test-k3-r1-t0.7.json"
    assert record["scaling"]["majority_answer"].keys() == {"1", "2", "3"}
    assert record["scaling"]["majority_answer"]["3"] == plain["majority_answer"]


def test_the_default_rows_are_those_of_trainings_table(run):
    found, session = measured(run)
    rows = json.loads((run / "summary.json").read_text())["rows"]
    assert list(found) == list(rows)
    keys = [column.key for column in session.algorithm.spec.report_of(session.algorithm.config).columns]
    assert [found["no_critic"].get(key) for key in keys] == [rows["no_critic"].get(key) for key in keys]


def test_how_a_measurement_stands_to_trainings_table_is_said(run):
    def said(*changed: str, **asked) -> str:
        config, folder = target_of(str(run), None, changed)
        return beside_training(folder, config, "questions", EvalSettings(changed=changed, **asked))

    begun = "Beside the table of training: "
    assert said() == f"{begun}the same test questions; the same sampling."
    assert said(split="validation") == f"{begun}other questions (the validation split); the same sampling."
    assert said("data.num_test=3").startswith(f"{begun}other questions (data.num_test: 12 -> 3); ")
    assert "other sampling (8 sampled each here, 1 there; --samples 1 is as there)" in said(num_samples=8)
    assert said("evaluation.num_rounds=2").endswith("other settings (evaluation.num_rounds: 1 -> 2).")


def test_another_grader_of_the_same_questions_is_no_other_questions(tmp_path):
    settings = ("prompts=english", "data.kind=file", f"data.path={tmp_path / 'rows.jsonl'}")
    (tmp_path / "config.yaml").write_text(to_yaml(config_of("grpo", *settings)))
    (tmp_path / "summary.json").write_text("{}")
    config = config_of("grpo", *settings, "data.grader=published:gsm8k")
    said = beside_training(tmp_path, config, "problems", EvalSettings())
    words = "the same test problems; another grader (data.grader: math_verify -> published:gsm8k); "
    assert said.startswith(f"Beside the table of training: {words}")


def test_a_critic_may_be_called_as_its_row_is(run):
    by_row, by_policy = (measured(run, names=(name,))[0] for name in ("sft_critic", "critic_sft"))
    assert by_row == by_policy
    assert by_row.keys() == {"sft_critic"}


def test_self_refine_puts_the_actor_in_the_critics_seat(run):
    found, session = measured(run, "evaluation.num_rounds=2", names=("self",))
    assert found["self"]["unparsed"] < 1  # the tiny model was raised on critiques too
    assert found["self"]["n"] == 12
    [rounds] = [session.algorithm.evaluator._measured_rounds("self", EvalSettings(), 0.7)]
    assert rounds.critic.policy == rounds.actor.policy == "actor"
    assert rounds.num_rounds == 2


def test_refinements_are_sampled_after_one_greedy_critique(run):
    found, _ = measured(run, names=("critic_sft",), num_refinements=4)
    row = found["sft_critic"]
    assert 0 <= row["pass@1"] <= row["pass@2"] <= row["pass@4"] <= 1
    [(name, record)] = records(run, "sft_critic-test-k1-r1-m4")
    assert name == "sft_critic-test-k1-r1-m4-t0.7.json"
    assert record["settings"]["num_refinements"] == 4


def test_two_ways_to_sample_more_are_not_mixed(run):
    with pytest.raises(ConfigError, match="4 refinements of one answer are measured with one sample and one round"):
        measured(run, num_refinements=4, num_samples=2)


def test_another_actor_sits_in_for_the_runs_own_and_the_critics_are_the_runs(run, random_model):
    own, before = measured(run, names=("critic_refined",))
    other, after = measured(run, f"actor.path={random_model}", names=("critic_refined",))
    weights = [{name: p.state() for name, p in session.loop.policies.items()} for session in (before, after)]
    for name in weights[0]:
        same = all(torch.equal(weights[0][name][key], weights[1][name][key]) for key in weights[0][name])
        assert same is (name != "actor"), name
    assert other["ref_critic"]["acc"] < own["ref_critic"]["acc"]
    named = {name: record["settings"]["changed"] for name, record in records(run, "ref_critic-test-k1-r1")}
    assert len(named) == 2
    assert [f"actor.path={random_model}"] in named.values()


def test_another_critic_is_refused(run, random_model):
    with pytest.raises(ConfigError, match=r"critic.path changes the model.*another may sit in for: actor"):
        measured(run, f"critic.path={random_model}")
