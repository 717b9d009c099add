"""`whet export --to gguf`: our engine and llama.cpp agree on the file, and other models are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import whet
from support.byte_model import byte_policy
from support.gguf_files import CHATML, SPECIAL, random_model
from support.llama_cpp import compare_with_llama_cpp
from whet.config import ConfigError
from whet.models.gguf import open_gguf, state_of
from whet.models.gguf_export import write_gguf
from whet.models.gguf_tokenizer import split_of, tokenizer_of
from whet.models.policy import Policy
from whet.models.shipped import TINY

TEXTS = [
    "What is 7 + 12?", "7 + 5 * 3 = 22, right?", "Solve: 12 - 4", "I see a wall.\n\n\nGo north", "it's 1234567 + 89",
    "naïve ünïcode 日本語 🙂", "def f(x):\n    return x**2", "  spaces   and\ttabs ", "DON'T we'll", "a < b, c > d",
]  # fmt: skip


def tokenizer_for(pre: str) -> PreTrainedTokenizerFast:
    """Byte-level BPE that splits as llama.cpp does by that name."""
    bpe = Backend(models.BPE(ignore_merges=pre == "llama-bpe"))
    bpe.pre_tokenizer = split_of(pre)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False
    )
    bpe.train_from_iterator(TEXTS * 20, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=SPECIAL[1], eos_token=SPECIAL[2], pad_token=SPECIAL[0]
    )
    fast.chat_template = CHATML
    return fast


@pytest.mark.parametrize(("pre", "tied"), [("gpt-2", True), ("smollm", False), ("llama-bpe", True)])
def test_a_llama_reads_back_to_the_bit(tmp_path, pre, tied):
    tokenizer = tokenizer_for(pre)
    model = random_model("llama", len(tokenizer) + 7, tied=tied)
    check_file(tmp_path / "model.gguf", model, tokenizer, pre)


def test_a_qwen2_reads_back_to_the_bit(tmp_path):
    policy = byte_policy()
    check_file(tmp_path / "model.gguf", policy.causal_lm, policy.tokenizer, "qwen2")


def check_file(path: Path, model, tokenizer, pre: str) -> None:
    write_gguf(model, tokenizer, path, about={"license": "apache-2.0"})
    gguf = open_gguf(path)
    assert (gguf.meta["tokenizer.ggml.pre"], gguf.meta["general.license"]) == (pre, "apache-2.0")
    state = model.state_dict()
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    read = state_of(gguf)
    assert read.keys() == state.keys()
    for name, weights in state.items():
        assert torch.equal(read[name], weights), name
    there = tokenizer_of(gguf.meta, str(path))
    for text in TEXTS:
        assert there.encode(text) == tokenizer.encode(text)
    assert there.chat_template == tokenizer.chat_template


@pytest.mark.integration
@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_llama_cpp_writes_what_our_engine_writes(tmp_path, pre):
    policy = byte_policy()
    tokenizer = policy.tokenizer if pre == "qwen2" else tokenizer_for(pre)
    if pre != "qwen2":
        policy = Policy("policy", random_model("llama", len(tokenizer), tied=False), tokenizer, stop_ids=frozenset({2}))
    path = tmp_path / "model.gguf"
    write_gguf(policy.causal_lm, tokenizer, path, about={})
    compare_with_llama_cpp(path, policy, TEXTS, num_tokens=8)


def test_a_run_is_exported_for_llama_cpp(tmp_path):
    policy = byte_policy()
    policy.causal_lm.save_pretrained(tmp_path / "base")
    policy.tokenizer.save_pretrained(tmp_path / "base")
    data = {"kind": "basics", "num_train": 8, "num_validation": 2, "num_test": 2}
    run = whet.train(
        "grpo", out=tmp_path / "run", policy={"path": str(tmp_path / "base")}, data=data, prompts="short", num_steps=1,
        prompts_per_step=2, group_size=2, sampling={"max_new_tokens": 4}, progress=False, num_threads=1,
        evaluation={"num_samples": 0},
    ).folder  # fmt: skip
    folder = whet.export(run, tmp_path / "gguf", to="gguf")
    [file] = folder.glob("*.gguf")
    card = (folder / "README.md").read_text()
    assert "library_name: gguf" in card
    assert f"llama-server -m {file.name}" in card
    assert "from_pretrained" not in card
    assert json.loads((folder / "provenance.json").read_text())["trained_from"]
    plain = whet.export(run, tmp_path / "plain", file.stem)
    weights = Policy("policy", *loaded(plain))
    for name, values in state_of(open_gguf(file)).items():
        assert torch.equal(values, weights.causal_lm.state_dict()[name])


def loaded(folder: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_other_shapes_and_tokenizers_are_refused_in_a_sentence(tmp_path):
    tokenizer = tokenizer_for("gpt-2")
    llama = random_model("llama", len(tokenizer), tied=True)
    scaled = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        )
    )  # fmt: skip
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=2))
    word_level = PreTrainedTokenizerFast(tokenizer_object=Backend(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    other_split = tokenizer_for("gpt-2")
    other_split.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    prefixed = tokenizer_for("gpt-2")
    prefixed.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    for model, with_tokenizer, says in (
        (gpt2, tokenizer, "whet writes llama and qwen2 models as GGUF, and this one is 'gpt2'"),
        (scaled, tokenizer, "only with rope_type = default, and this has linear"),
        (llama, word_level, "byte-level BPE of the kinds gpt-2, smollm, llama-bpe"),
        (llama, other_split, "the tokenizer is none that llama.cpp is known to split as it does"),
        (llama, prefixed, "the tokenizer is none that llama.cpp is known to split as it does"),
        (llama, byte_policy().tokenizer, "of a llama model whet writes byte-level BPE"),
        (*loaded(TINY), "the tokenizer has no merges"),
    ):
        with pytest.raises(ConfigError, match=says):
            write_gguf(model, with_tokenizer, tmp_path / "model.gguf", about={})
