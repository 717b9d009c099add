"""What `whet eval` can measure before a run has come to all of it, and how rule critics are sampled."""

from pathlib import Path

import pytest

from support.sessions import STEPS, WARM, session_of
from whet.config import ConfigError
from whet.methods.evaluator import EvalSettings
from whet.run.evaluate import target_of


def test_a_run_without_a_best_policy_yet_measures_the_last():
    method = session_of("grpo", *STEPS).algorithm
    assert method.evaluator.targets(of_run=True) == ("last",)
    with pytest.raises(ConfigError, match="no policy 'best' to measure, as no validation has chosen it yet"):
        method.evaluator.measure("best", EvalSettings(), of_run=True)
    method.run.loop.fork("policy", "policy_best")
    assert method.evaluator.targets(of_run=True) == ("best", "last")


@pytest.mark.parametrize("critic", ["oracle", "no_critic", "critic", "self"])
def test_every_critic_is_measured_at_the_temperature_that_was_asked_for(critic):
    method = session_of("critique_rl", *WARM).algorithm
    rounds = method.evaluator._measured_rounds(critic, EvalSettings(num_samples=2), 1.3)
    assert rounds.actor.sampling.temperature == rounds.reviser.sampling.temperature == 1.3


def test_a_seat_that_the_settings_leave_empty_is_not_loaded():
    rule = session_of("rltf_sd", *STEPS, "feedback=oracle")
    assert set(rule.loop.policies) == {"policy"}
    assert set(session_of("rltf_sd", *STEPS).loop.policies) == {"policy", "critic"}


@pytest.mark.parametrize("method", ["nft", "ref_critic", "score_rl", "critique_coder", "critique_dpo", "grpo"])
def test_more_problems_a_step_than_there_are_is_refused(method):
    with pytest.raises(ConfigError, match="prompts_per_step = 65 is more than the 64 training problems"):
        session_of(method, "prompts_per_step=65")


def test_a_name_that_is_a_method_and_a_run_is_nobodys_guess(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo").mkdir()
    (tmp_path / "grpo" / "config.yaml").write_text("method: policy_gradient\n")
    with pytest.raises(ConfigError, match=r"grpo is a method, and a run's folder here: write \./grpo for the run"):
        target_of("grpo", None, [])
    assert target_of("./grpo", None, [])[1] == Path("grpo")
    assert target_of("bapo", None, [])[1] is None
