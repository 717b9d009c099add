"""Runs from random weights, once they are over: what is loaded is what they have learnt."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import whet
from support.agent_model import agent_model
from whet.config import ConfigError
from whet.config.parts import LoraConfig, ModelConfig
from whet.models.policy import load_policies
from whet.run.load import load_run

MAZE = {
    "data": {"env": "maze", "num_train": 3, "num_test": 1, "num_validation": 1}, "num_steps": 1, "rows_per_step": 2,
    "validate_every": 1, "sampling": {"max_new_tokens": 4}, "evaluation": {"max_turns": 1}, "num_threads": 1,
    "learning": {"learning_rate": 0.01},
}  # fmt: skip


def test_weights_of_the_checkpoint_are_loaded_and_not_drawn_anew(tmp_path):
    policy = {"path": str(agent_model()), "random_weights": 0}
    run = whet.train("agent_clone", out=tmp_path / "run", progress=False, policy=policy, **MAZE)
    trained = load_run(run.folder)
    saved = load_file(trained.place("policy") / "model.safetensors")
    loaded = trained.load(["policy"], device="cpu")["policy"].causal_lm.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in saved.items())
    drawn = load_policies({"policy": ModelConfig(path=str(agent_model()), random_weights=0)})["policy"]
    assert any(not torch.equal(loaded[name], value) for name, value in drawn.causal_lm.state_dict().items())


def test_adapters_over_weights_of_several_seeds_have_a_base_each():
    lora = LoraConfig(rank=1)
    path = str(agent_model())
    seeds = {"folder": None, "first": 1, "second": 2, "again": 1}
    models = {name: ModelConfig(path=path, random_weights=seed, lora=lora) for name, seed in seeds.items()}
    bases = {name: policy.model for name, policy in load_policies(models).items()}
    assert bases["first"] is bases["again"]
    assert len({id(base) for base in bases.values()}) == 3


def test_an_adapter_over_random_weights_is_exported_merged_alone(tmp_path):
    """No folder holds its base, so an adapter alone is of no use; merged it gives the run's logits."""
    policy = {"path": str(agent_model()), "random_weights": 3, "lora": {"rank": 2}}
    run = whet.train("agent_clone", out=tmp_path / "run", progress=False, policy=policy, **MAZE).folder
    with pytest.raises(ConfigError, match=r"lies over random weights, .*--merge"):
        whet.export(run, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
    merged = AutoModelForCausalLM.from_pretrained(whet.export(run, tmp_path / "merged", merge=True))
    ids = torch.tensor([[1, 2, 3]])
    name = load_run(run).best
    [best] = load_run(run).load([name], device="cpu").values()
    best.model.set_adapter(name)
    assert torch.allclose(merged(ids).logits, best.model(ids).logits, atol=1e-4)
