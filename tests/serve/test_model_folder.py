"""`whet serve` on a model's folder, without a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import openai
import pytest

from support.byte_model import byte_policy
from support.commands import whet
from support.served import served
from whet.chat import render
from whet.config import ConfigError
from whet.engines.local import LocalEngine
from whet.serve.models import MODEL_TOKENS, is_model_folder, served_folder
from whet.types import Request, Sampling


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """As `save_pretrained` writes it."""
    policy, folder = byte_policy(), tmp_path_factory.mktemp("models") / "byte-model"
    policy.causal_lm.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def test_it_is_served_under_the_folders_name_and_writes_what_the_engine_writes(folder):
    cast = served_folder(folder)
    [(name, policy)] = cast.policies.items()
    with served(cast) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)
        [model] = client.models.list()
        asked = [{"role": "user", "content": "What is 7 + 12?"}]
        done = client.chat.completions.create(model="byte-model", messages=asked, temperature=0)
    assert (model.id, model.model_extra["max_model_len"], name) == ("byte-model", 2048, "byte-model")
    context = render(policy.tokenizer, asked)
    sampling = Sampling(temperature=0.0, max_new_tokens=MODEL_TOKENS)
    [alone] = LocalEngine(policy).generate([Request(context=context, sampling=sampling, seed=0)])
    assert done.choices[0].message.content == policy.tokenizer.decode(alone.tokens, skip_special_tokens=True)
    assert done.usage.completion_tokens == len(alone.tokens)


def test_a_run_is_no_model_folder_and_a_folder_of_neither_is_told(folder, tmp_path):
    assert is_model_folder(folder)
    assert not is_model_folder(tmp_path)
    (tmp_path / "config.yaml").write_text("method: grpo")
    (tmp_path / "config.json").write_text("{}")
    assert not is_model_folder(tmp_path)
    done = whet("serve", tmp_path / "nothing", check=False)
    assert done.returncode == 2
    assert "holds neither a run (config.yaml) nor a model (config.json)" in " ".join(done.stderr.split())
    done = whet("serve", tmp_path, "--dtype", "bfloat16", check=False)
    assert "--dtype goes with a model folder" in " ".join(done.stderr.split())


def test_products_that_a_model_cannot_have_are_refused_before_anything_is_served(folder, tmp_path):
    odd = tmp_path / "odd"
    shutil.copytree(folder, odd)
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    done = whet("serve", odd, "--products", "int8", "--port", "0", check=False)
    assert done.returncode == 2
    assert "serving" not in done.stdout
    assert "an engine with products in int8 needs a model of the plain Llama shape" in " ".join(done.stderr.split())


def test_an_adapter_alone_and_other_policies_are_refused(folder, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "x"}))
    assert is_model_folder(tmp_path)
    with pytest.raises(ConfigError, match="holds an adapter alone: serve the run"):
        served_folder(tmp_path)
    with pytest.raises(ConfigError, match="has no policy 'critic': leave --policy out"):
        served_folder(folder, ["critic"])
