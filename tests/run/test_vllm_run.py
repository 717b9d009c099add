"""Whole runs that sample on servers with vLLM's routes: they learn as with whet's own engine, and stop at a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.sessions import finished, session_of
from support.vllm_server import AT_SYNC, FakeVllm, serving
from whet.config.parts import ModelConfig
from whet.engines import running
from whet.errors import RunError
from whet.models.policy import load_policies
from whet.run.session import check_agreement
from whet.trainer.loop import Loop

GRPO = ("num_steps=3", "prompts_per_step=3", "group_size=4", "validate_every=3", "data.num_train=24",
        "data.num_validation=4", "data.num_test=4", "sampling.max_new_tokens=64", "evaluation.num_samples=1",
        "learning.learning_rate=0.003", "learning.minibatch_rows=6", "sampling.temperature=0.8")  # fmt: skip


@pytest.fixture
def server() -> Iterator[FakeVllm]:
    """Its model has the shape of the run's, and other weights."""
    policy = load_policies({"policy": ModelConfig()})["policy"]
    with torch.no_grad():
        for _, parameter in policy.trainable_parameters():
            parameter.mul_(0.5)
    with serving(policy) as fake:
        yield fake


def there(server: FakeVllm) -> tuple[str, ...]:
    return ("engine.kind=vllm", f"engine.urls=[{server.url}]", "engine.limit_s=30")


def steps(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "optim/grad_norm" in str(row)]


@pytest.mark.integration
def test_a_run_of_grpo_learns_what_it_learns_with_its_own_engine(server, tmp_path, monkeypatch):
    # vLLM takes seeds of 63 bits: whet's own engine is given the same ones.
    monkeypatch.setattr(running, "_signed", lambda seed: seed & (2**63 - 1))
    finished("grpo", *GRPO, folder=tmp_path / "own")
    finished("grpo", *GRPO, *there(server), folder=tmp_path / "vllm")
    own, vllm = steps(tmp_path / "own"), steps(tmp_path / "vllm")
    assert len(own) == len(vllm) == 3
    keys = [key for key in own[0] if key.startswith(("reward", "optim/grad_norm", "rows/", "tokens"))]
    assert any(key.startswith("optim/grad_norm") for key in keys)
    for here, elsewhere in zip(own, vllm, strict=True):
        assert {key: elsewhere[key] for key in keys} == pytest.approx({key: here[key] for key in keys}, rel=1e-3)
    labels = [body["weight_version"] for path, body in server.calls if path == "/finish_weight_update"]
    versions = [int(label.split(":")[1]) for label in labels if label.startswith("policy:")]
    assert versions[:1] == [0]
    assert max(versions) == 6, "three steps of two updates each"


def test_the_check_at_the_start_asks_the_servers(server, tmp_path):
    session = session_of("grpo", *GRPO, *there(server), folder=tmp_path)
    assert check_agreement(session.loop.policies["policy"], session) < 1e-4
    assert server.num_replies > 0


@pytest.mark.integration
@pytest.mark.parametrize("fault", ["label_only", "stale_head", "other_reply", "abort_as_stop", "other_logprobs"])
def test_a_fault_that_comes_in_a_run_ends_it_before_the_next_update(fault, server, tmp_path, monkeypatch):
    step, made = Loop._step, list[int]()

    def then_breaks(loop: Loop, phase: object, number: int, trainers: object) -> None:
        step(loop, phase, number, trainers)
        made.append(loop.policies["policy"].version)
        server.fault = fault if made[-1] else ""  # the phase before training only measures

    monkeypatch.setattr(Loop, "_step", then_breaks)
    session = session_of("grpo", *GRPO, *there(server), folder=tmp_path)
    session.loop.folder.acquire()
    session.loop.folder.logs.rewind({})
    with pytest.raises(RunError) as error:
        session.go()
    assert server.url in str(error.value)
    # It is found in the second step: by a reply before its two updates, or when their weights are sent.
    assert made == [0, 2]
    assert session.loop.policies["policy"].version == (4 if fault in AT_SYNC and fault != "other_logprobs" else 2)


def test_workers_are_refused_beside_servers(tmp_path):
    with pytest.raises(ValueError, match=r"engine\.kind = vllm samples on servers, which workers would give different"):
        session_of("grpo", "engine.kind=vllm", "engine.urls=[http://127.0.0.1:1]", "cluster.workers=2", folder=tmp_path)
