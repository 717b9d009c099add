"""Two copies of the embeddings in a GGUF file: one matrix where quantisation explains every difference, else two."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, dequantize, quantize
from safetensors.torch import load_file
from tokenizers import Tokenizer

from models.test_gguf import bpe as bpe  # a fixture
from support.gguf_files import random_model, write_gguf
from support.llama_cpp import LlamaCpp
from whet.config.parts import ModelConfig
from whet.models.gguf_ties import EMBEDDINGS, OUTPUT, finer_copy
from whet.models.loading import load_model
from whet.models.packaged import get

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Finest first."""


def two_copies(path: Path, bpe: Tokenizer, first: str, second: str, output=None) -> Path:
    """A tied Qwen2 whose file holds its embeddings twice.

    Args:
        output: the second copy before it is quantised. None: the embeddings.
    """
    model = random_model("qwen2", bpe.get_vocab_size(), tied=True)
    output = model.get_input_embeddings().weight if output is None else output(model.get_input_embeddings().weight)
    return write_gguf(path, model, bpe, pre="qwen2", kinds={EMBEDDINGS: first, OUTPUT: second}, output=output)


def finer(path: Path) -> str | None:
    return finer_copy({tensor.name: tensor for tensor in GGUFReader(path).tensors})


@pytest.mark.parametrize(("first", "second"), list(permutations(KINDS, 2)))
def test_one_matrix_in_two_quantisations_is_one(tmp_path, bpe, first, second):
    taken = finer(two_copies(tmp_path / "m.gguf", bpe, first, second))
    bits = {kind: KINDS.index(kind) for kind in (first, second)}
    if {first, second} == {"F16", "BF16"}:  # as many bits
        assert taken == EMBEDDINGS
    else:
        assert taken == (EMBEDDINGS if bits[first] < bits[second] else OUTPUT)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_one_type_are_one_only_where_they_are_equal(tmp_path, bpe, kind):
    assert finer(two_copies(tmp_path / "m.gguf", bpe, kind, kind)) == EMBEDDINGS
    assert finer(two_copies(tmp_path / "n.gguf", bpe, kind, kind, lambda weights: weights * 1.02)) is None


def one_row(weights: torch.Tensor) -> torch.Tensor:
    changed = weights.detach().clone()
    changed[7] = -changed[7]
    return changed


def one_weight(weights: torch.Tensor) -> torch.Tensor:
    changed = weights.detach().clone()
    changed[7, 3] += 0.5 * changed[7, :32].abs().max()
    return changed


@pytest.mark.parametrize(("first", "second"), [("Q5_0", "Q8_0"), ("Q4_0", "F32"), ("Q8_0", "F16"), ("Q8_0", "Q4_1")])
@pytest.mark.parametrize(
    "output", [torch.randn_like, one_row, one_weight, lambda weights: 1.2 * weights, lambda weights: weights.flip(0)]
)
def test_two_matrices_stay_two(tmp_path, bpe, first, second, output):
    torch.manual_seed(1)
    assert finer(two_copies(tmp_path / "m.gguf", bpe, first, second, output)) is None


def test_differences_that_are_all_within_a_step_but_larger_than_rounding_makes_them_are_of_two(tmp_path, bpe):
    """A head that was trained a little apart from its embeddings: 0.7 of a step everywhere."""

    def apart(weights: torch.Tensor) -> torch.Tensor:
        rounded = dequantize(quantize(weights.detach().numpy(), GGMLQuantizationType.Q4_0), GGMLQuantizationType.Q4_0)
        steps = np.repeat(np.abs(rounded.reshape(len(rounded), -1, 32)).max(-1) / 8, 32, axis=-1)
        signs = np.sign(np.random.default_rng(0).standard_normal(rounded.shape))
        return torch.from_numpy((rounded + 0.7 * steps * signs).astype(np.float32))

    assert finer(two_copies(tmp_path / "m.gguf", bpe, "Q4_0", "F32", apart)) is None


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_k_types_count_too(kind):
    """The `gguf` package reads K types and makes none: blocks of random bytes, and the other copy made from them."""
    rng = np.random.default_rng(0)
    number = GGMLQuantizationType[kind]
    num_bytes = {"Q4_K": 144, "Q6_K": 210}[kind]
    raw = rng.integers(0, 256, (64, num_bytes), dtype=np.uint8)
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    raw[:, -2:] = scale
    if kind == "Q4_K":
        raw[:, :2], raw[:, 2:4] = scale, scale
    weights = dequantize(raw, number)

    class Tensor:
        def __init__(self, data, tensor_type, values):
            self.data, self.tensor_type, self.shape = data, tensor_type, values.T.shape
            self.n_bytes, self.n_elements = data.nbytes, values.size

    other = GGMLQuantizationType.Q8_0
    second = Tensor(quantize(weights, other), other, weights)
    assert finer_copy({EMBEDDINGS: Tensor(raw, number, weights), OUTPUT: second}) == OUTPUT
    second = Tensor(quantize(weights[::-1].copy(), other), other, weights)
    assert finer_copy({EMBEDDINGS: Tensor(raw, number, weights), OUTPUT: second}) is None


def test_get_keeps_one_matrix_and_says_so(tmp_path, bpe):
    path = two_copies(tmp_path / "m.gguf", bpe, "Q5_0", "Q8_0")
    lines: list[str] = []
    get(str(path), tmp_path / "m", lines.append)
    said = (
        "token_embd (Q5_0) and output (Q8_0) say the same within their quantisation: they are one matrix here, taken "
        "from output"
    )
    assert said in lines
    assert json.loads((tmp_path / "m" / "provenance.json").read_text())["tied"] == said
    assert json.loads((tmp_path / "m" / "config.json").read_text())["tie_word_embeddings"] is True
    state = load_file(tmp_path / "m" / "model.safetensors")
    assert "lm_head.weight" not in state
    finest = next(tensor for tensor in GGUFReader(path).tensors if tensor.name == OUTPUT)
    assert torch.equal(
        state["model.embed_tokens.weight"], torch.from_numpy(dequantize(finest.data, finest.tensor_type))
    )
    model = load_model(ModelConfig(path=str(tmp_path / "m"), device="cpu"))
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    num_millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert f"a qwen2 model of {num_millions:.0f} million weights" in lines[0]


def test_two_matrices_are_kept_apart_and_are_llama_cpps(tmp_path, bpe):
    path = two_copies(tmp_path / "m.gguf", bpe, "F32", "F32", lambda weights: weights.flip(0) * 0.5)
    lines: list[str] = []
    get(str(path), tmp_path / "m", lines.append)
    assert not [line for line in lines if "say the same" in line]
    model = load_model(ModelConfig(path=str(tmp_path / "m"), device="cpu"))
    assert not torch.equal(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    ids = list(range(40))
    ours = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(ours, LlamaCpp(path).logprobs(ids, len(ours)), atol=0.02, rtol=0)
