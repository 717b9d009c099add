"""Suggestions: what is really near is suggested, and what only shares a common word is not."""

from __future__ import annotations

import pytest

from support.commands import config_of
from whet.config import ConfigError
from whet.methods import METHODS
from whet.near import is_near, near_names
from whet.registry import UnknownName


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("num_setps", "num_steps"), ("numsteps", "num_steps"), ("num_step", "num_steps"), ("max_steps", "num_steps"),
        ("steps", "num_steps"), ("lerning_rate", "learning_rate"), ("rate", "learning_rate"), ("kl", "kl_coef"),
        ("temprature", "temperature"), ("max_tokens", "max_new_tokens"), ("groupsize", "group_size"),
        ("Group_Size", "group_size"), ("grpp", "grpo"), ("best_of_m", "best_of_n"), ("tpo", "top"),
        ("checkpoints_every", "checkpoint_every"),
        ("pth", "path"), ("sede", "seed"),
    ],
)  # fmt: skip
def test_near_misses(given, known):
    assert is_near(given, known)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("num_gpus", "num_steps"), ("num_gpus", "num_groups"), ("num_gpus", "num_epochs"), ("num_nodes", "num_rounds"),
        ("max_grad", "max_turns"), ("num_workers", "num_threads"), ("sft", "nft"), ("agent_sac", "agent_dpo"),
        ("warmup_ratio", "warm_start"), ("fp16", "spc"), ("num", "num_steps_of_something"), ("use_vllm", "use_cache"),
        ("deepspeed", "seed"),
    ],
)  # fmt: skip
def test_what_is_not_meant(given, known):
    assert not is_near(given, known)


def test_the_nearest_come_first():
    assert near_names("num_step", ["actor_steps", "num_steps", "seed"], 2) == ["num_steps", "actor_steps"]
    assert near_names("num_gpus", ["num_steps", "num_threads"]) == []


@pytest.mark.parametrize("method", ["grpo", "critique_rl", "agent_grpo", "auto_critique"])
@pytest.mark.parametrize("key", ["num_gpus", "deepspeed", "fp16", "vllm"])
def test_a_key_of_another_library_gets_no_unfitting_suggestion(method, key):
    with pytest.raises(ConfigError) as error:
        config_of(method, f"{key}=2")
    assert f"unknown key {key}: the keys here are " in str(error.value)


def test_a_slip_in_a_key_still_gets_its_suggestion():
    with pytest.raises(ConfigError, match="unknown key num_setps: did you mean num_steps"):
        config_of("grpo", "num_setps=2")
    with pytest.raises(ConfigError, match=r"unknown key data.num_trian: did you mean data\.num_train\?"):
        config_of("grpo", "data.num_trian=2")


def test_methods():
    with pytest.raises(UnknownName, match="there is no method 'sft'; choose of: "):
        METHODS.get("sft")
    with pytest.raises(UnknownName, match="there is no method 'grppo'; did you mean 'grpo'"):
        METHODS.get("grppo")
