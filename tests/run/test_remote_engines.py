"""Whole runs whose engines hold copies of the weights: the same to the bit as with engines on the trainer's memory.

So each change of weights reaches the engine: updates, references, restarts, best weights, resume, adapters.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import same_numbers
from support.commands import Quiet
from support.remote_engine import RemoteEngine, make_engines_remote
from support.sessions import WORLD, finished, session_of
from whet.engines.local import LocalEngine
from whet.engines.protocol import Engine, Weights
from whet.errors import RunError
from whet.methods.registry import config_of
from whet.models.policy import Policy
from whet.run.launch import resume, start
from whet.run.session import Session, check_agreement
from whet.trainer.checkpoint import MANIFEST, load_state, newest_first, save_checkpoint
from whet.trainer.local import LocalTrainer
from whet.trainer.loop import Loop
from whet.trainer.selfchecks import PROBE_BUDGET, probe_rows
from whet.types import tail_row

GRPO = ("num_steps=3", "prompts_per_step=3", "group_size=3", "validate_every=1", "data.num_train=24",
        "data.num_validation=4", "data.num_test=4", "sampling.max_new_tokens=24", "evaluation.num_samples=1",
        "learning.learning_rate=0.003", "learning.minibatch_rows=5")  # fmt: skip
TWO_ROUNDS = ("num_rounds=2", "start=base")
RUNS = {
    "grpo": (),
    "critique_rl": (),  # two stages: the second begins anew with the reference's weights
    "critique_loop": TWO_ROUNDS,
    "agent_gradient": (),
}


def weights_of(folder: Path) -> dict[str, str]:
    """Digests of all policies' weights in the last checkpoint."""
    manifest = json.loads((newest_first(folder)[0] / MANIFEST).read_text())
    return {name: digest for name, digest in manifest.items() if name.startswith("policies/")}


@pytest.mark.integration
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_with_engines_that_hold_copies(name, tmp_path, monkeypatch):
    local = same_numbers.run(name, tmp_path / "local", *RUNS[name])
    made = make_engines_remote(monkeypatch)
    remote = same_numbers.run(name, tmp_path / "remote", *RUNS[name])
    assert remote == local
    assert weights_of(tmp_path / "remote") == weights_of(tmp_path / "local")
    assert any(step.texts for step in remote.values())
    assert max(engine.version or 0 for engine in made) > 0, "no engine has seen an update"


@pytest.mark.integration
def test_adapters_reach_engines_that_hold_copies(tmp_path, monkeypatch):
    settings = (*GRPO, "policy.lora.rank=4", "kl.coef=0.05")
    finished("grpo", *settings, folder=tmp_path / "local")
    made = make_engines_remote(monkeypatch)
    finished("grpo", *settings, folder=tmp_path / "remote")
    assert same_numbers.steps_of(tmp_path / "remote") == same_numbers.steps_of(tmp_path / "local")
    assert weights_of(tmp_path / "remote") == weights_of(tmp_path / "local")
    assert len(made) > 1


class Killed(BaseException):
    pass


class KillsAtStep(Quiet):
    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, shown: object) -> None:
        if step == self.at:
            raise Killed


@pytest.mark.integration
def test_a_run_that_is_killed_goes_on_the_same_with_engines_that_hold_copies(tmp_path, monkeypatch):
    settings, local, remote = (*GRPO, "checkpoint_every=1"), tmp_path / "local", tmp_path / "remote"
    finished("grpo", *settings, folder=local)
    make_engines_remote(monkeypatch)
    session = start(config_of("grpo", None, [*WORLD, *settings]), remote, KillsAtStep(2))
    assert isinstance(session, Session)
    with pytest.raises(Killed):
        session.go()
    saved = load_state(newest_first(remote)[0])
    assert (saved["began"], saved["step"], session.loop.step) == ("train", 1, 2)
    again = resume(remote, Quiet())
    assert isinstance(again, Session)
    again.go()
    assert same_numbers.steps_of(remote) == same_numbers.steps_of(local)
    assert weights_of(remote) == weights_of(local)


def test_each_change_in_place_reaches_the_engine(tmp_path, monkeypatch):
    """One by one: the best weights or a reference, a round that starts again, a checkpoint that is loaded."""
    made = make_engines_remote(monkeypatch)
    session = session_of("grpo", *GRPO, folder=tmp_path)
    loop, runtime = session.loop, session.algorithm.run.runtime
    other = loop.fork("policy", "other")
    with torch.no_grad():
        for _, parameter in other.trainable_parameters():
            parameter.mul_(1.5)
    loop.freeze("policy", "best")
    rows = probe_rows(loop.policies["policy"])

    def sampled_by(name: str) -> list[list[float]]:
        engine_scores = [scores.tolist() for scores in runtime.engine(name).score(rows)]
        trainer_scores = loop.trainer(name).score(rows, token_budget=PROBE_BUDGET)
        assert engine_scores == [scores.tolist() for scores in trainer_scores]
        return engine_scores

    initial, others = sampled_by("policy"), sampled_by("other")
    assert sampled_by("best") == initial != others
    trainers = {name: loop.trainer(name) for name in loop.policies}
    state = {"forks": loop.forks, "versions": {name: trainer.version for name, trainer in trainers.items()}}
    saved = save_checkpoint(tmp_path, 1, trainers, {}, state, loop.store)
    loop.fork("other", "best")
    assert (sampled_by("best"), sampled_by("policy")) == (others, initial)
    loop.restart("policy", "other")
    assert sampled_by("policy") == others
    assert runtime.engine("policy").version == 1
    loop.load_policies(saved)
    assert (sampled_by("policy"), sampled_by("best"), sampled_by("other")) == (initial, initial, others)
    assert len(made) == 3, "an engine is made once"


def test_the_check_before_the_first_step_asks_the_runs_own_engine(tmp_path, monkeypatch):
    made = make_engines_remote(monkeypatch)
    session = session_of("grpo", *GRPO, folder=tmp_path)
    policy = session.loop.policies["policy"]
    assert check_agreement(policy, session) < 1e-4
    [engine] = made
    assert engine is session.algorithm.run.runtime.engine("policy")
    assert engine.num_tokens > 0
    with torch.no_grad():
        for _, parameter in policy.trainable_parameters():
            parameter.mul_(1.1)
    with pytest.raises(RunError, match="the engine's logprobs of policy 'policy' differ from the trainer's by "):
        check_agreement(policy, session)


def test_the_check_ends_in_a_sentence_where_a_row_trains_fewer_tokens_than_were_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr("whet.run.session.tail_row", lambda name, context, tokens, credit: tail_row(
        name, (*context, tokens[0]), tokens[1:], credit))  # fmt: skip
    session = session_of("grpo", *GRPO, folder=tmp_path)
    with pytest.raises(RunError, match=r"of row 1 of a probe the engine has \d+ logprobs, and the trainer \d+, so"):
        check_agreement(session.loop.policies["policy"], session)


# --- planted: a change that does not reach the engine -----------------------------------------------------------------


def stopped(folder: Path) -> str:
    """What a run says that a check ends."""
    with pytest.raises(RunError) as error:
        finished("grpo", *GRPO, folder=folder)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_push_that_is_left_out_stops_the_run(tmp_path, monkeypatch):
    push, pushed = LocalTrainer.push, []

    def skips_the_second(self: LocalTrainer, engine: Engine) -> None:
        pushed.append(self.version)
        if len(pushed) != 2:
            push(self, engine)

    monkeypatch.setattr(LocalTrainer, "push", skips_the_second)
    make_engines_remote(monkeypatch)
    says = stopped(tmp_path)
    assert "the engine of policy 'policy' does not hold the trainer's weights: " in says
    assert f"its version is {pushed[0]}, and the trainer's is {pushed[1]}" in says
    assert len(pushed) == 2, "it stops before anything is sampled"


def test_an_engine_that_takes_the_number_without_the_weights_stops_the_run(tmp_path, monkeypatch):
    update, updated = RemoteEngine.update_weights, []

    def keeps_the_old_ones(self: RemoteEngine, version: int, source: Weights) -> None:
        updated.append(version)
        if len(updated) == 1:
            update(self, version, source)
        self._version = version

    monkeypatch.setattr(RemoteEngine, "update_weights", keeps_the_old_ones)
    make_engines_remote(monkeypatch)
    assert "the logprobs of a probe differ by " in stopped(tmp_path)
    assert len(updated) > 1


def test_a_change_that_nobody_pushes_stops_the_run_before_it_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(Loop, "push", lambda loop, name: None)
    make_engines_remote(monkeypatch)
    says = stopped(tmp_path)
    assert "the engine of the policy holds weights of version 0, and the policy is at version " in says


def test_engines_on_the_trainers_memory_cost_no_probe(tmp_path, monkeypatch):
    def scored(self: LocalEngine, rows: Any, **_: Any) -> None:
        raise AssertionError("nothing is to be scored")

    monkeypatch.setattr(LocalEngine, "score", scored)
    monkeypatch.setattr(Policy, "state", scored)
    session = session_of("grpo", *GRPO, folder=tmp_path)
    engine = session.algorithm.run.runtime.engine("policy")
    session.loop.push("policy")
    assert engine.version == session.loop.policies["policy"].version
