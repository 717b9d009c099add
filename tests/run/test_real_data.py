"""A method on a real set, with a tokenizer and a model made on the spot: it cannot learn, every part must work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from support.commands import metrics, whet
from support.rows import row_of
from whet.config.parts import LearningConfig, LoraConfig, ModelConfig
from whet.engines.local import LocalEngine
from whet.models.policy import load_policies
from whet.models.scoring import score
from whet.models.stand_in import CHATML
from whet.trainer.learner import Learner
from whet.trainer.losses import imitation
from whet.types import Request, Sampling


@pytest.fixture(scope="module")
def settings(gsm8k: Path, small_model: Path) -> list[str]:
    return [
        "data.kind=file", f"data.path={gsm8k}", "prompts=english", "data.timeout_s=5", "num_threads=1",
        f"actor.path={small_model}", f"critic.path={small_model}", "actor.lora.rank=4", "critic.lora.rank=4",
        "roles.answer.max_new_tokens=40", "roles.critique.max_new_tokens=48", "roles.refinement.max_new_tokens=40",
        "warm_start.actor_steps=2", "warm_start.critic_steps=2", "warm_start.rows_per_step=4",
        "stage1.num_steps=2", "stage1.prompts_per_step=3", "stage1.validate_every=2",
        "stage2.num_steps=2", "stage2.prompts_per_step=3", "stage2.validate_every=2",
        "evaluation.num_validation=4", "evaluation.num_test=4", "checkpoint_every=1",
    ]  # fmt: skip


def test_gsm8k_end_to_end_with_lora_adapters_that_share_a_base(settings, tmp_path):
    run = tmp_path / "run"
    whet("train", "critique_rl", *settings, "--out", run)
    rows = json.loads((run / "summary.json").read_text())["rows"]
    assert all(row["n"] == 4 for row in rows.values())
    assert {row["phase"] for row in metrics(run)} == {"sft_actor", "sft_critic", "stage1", "stage2", "test"}
    events = (run / "events.jsonl").read_text()
    assert "200 GSM8K rows" in events
    assert "LoRA adapter on a shared base" in events
    latest = run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()
    for name in ("actor", "critic", "critic_sft", "critic_stage1", "critic_stage2"):
        folder = latest / "policies" / name
        assert (folder / "adapter_config.json").exists()
        assert AutoPeftModelForCausalLM.from_pretrained(folder) is not None
        assert AutoTokenizer.from_pretrained(folder).chat_template == CHATML


@pytest.mark.integration
def test_lora_runs_resume_to_the_same_bits(settings, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for run in (whole, cut):
        whet("train", "critique_rl", *settings, "--out", run)
    shutil.rmtree(sorted((cut / "checkpoints").glob("step_*"))[1])
    (cut / "summary.json").unlink()
    whet("resume", cut)
    assert metrics(whole) == metrics(cut)


def test_adapters_share_the_base_and_stay_apart(small_model):
    config = ModelConfig(path=str(small_model), lora=LoraConfig(rank=4))
    policies = load_policies({"actor": config, "critic": config})
    actor, critic = policies["actor"], policies["critic"]
    assert actor.model is critic.model
    with torch.no_grad():
        for _, parameter in critic.trainable_parameters():
            parameter.normal_(std=0.2)
    row = row_of([5], range(6, 25))

    def scored(policy):
        return score(policy, [row], token_budget=100)[0]

    frozen = critic.fork("critic_kept")
    before = scored(actor), scored(critic)
    assert not torch.allclose(*before)
    assert torch.equal(scored(frozen), before[1])
    with torch.no_grad():
        for _, parameter in critic.trainable_parameters():
            parameter.add_(0.1)
    assert torch.equal(scored(actor), before[0])
    assert torch.equal(scored(frozen), before[1])
    assert not torch.allclose(scored(critic), before[1])
    request = Request(context=(5, 6, 7), sampling=Sampling(temperature=1.0, max_new_tokens=20), seed=3)
    assert LocalEngine(actor).generate([request])[0].tokens != LocalEngine(critic).generate([request])[0].tokens


ROW = row_of([5], range(6, 25), credit=1.0, policy="critic")


def test_bf16_master_weights_move_where_a_bf16_step_would_vanish(small_model):
    policy = load_policies({"critic": ModelConfig(path=str(small_model), dtype="bfloat16")})["critic"]
    learner = Learner(policy, imitation(LearningConfig(learning_rate=1e-5), 50))
    start = [master.clone() for master in learner.masters]
    losses = [learner.update([ROW], seed=0)["loss/nll"] for _ in range(40)]
    moved = max(float((a - b).abs().max()) for a, b in zip(start, learner.masters, strict=True))
    assert moved > 1e-4  # forty steps of 1e-5 add up
    assert losses[-1] < losses[0]


def test_gradient_checkpointing_recomputes_and_changes_no_gradient(small_model):
    gradients, forwards = {}, {}
    for on in (False, True):
        config = ModelConfig(path=str(small_model), gradient_checkpointing=on, lora=LoraConfig(rank=4))
        policy = load_policies({"critic": config})["critic"]
        torch.manual_seed(0)
        with torch.no_grad():
            for _, parameter in policy.trainable_parameters():
                parameter.normal_(std=0.1)
        calls = []
        mlp = policy.causal_lm.model.layers[0].mlp
        mlp.down_proj.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        learner = Learner(policy, imitation(LearningConfig(learning_rate=1e-9), 1))
        learner.num_updates, learner._apply = 1, (lambda: 0.0)  # keeps the gradients to look at
        learner.update([ROW], seed=0)
        gradients[on] = [parameter.grad.clone() for parameter in learner.parameters]
        forwards[on] = len(calls)
        assert not any(module.training for module in policy.model.modules())
    assert forwards == {False: 1, True: 2}
    for plain, recomputed in zip(gradients[False], gradients[True], strict=True):
        torch.testing.assert_close(plain, recomputed)
