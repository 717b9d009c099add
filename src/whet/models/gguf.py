"""Converts a GGUF file to a `save_pretrained` folder: config, weights in float32, tokenizer, chat template.

`transformers` reads GGUF too, but refuses to save what it read. It also drops the digit split of SmolLM2's tokenizer,
and takes half a minute for the rest of it. Here the `gguf` package reads and dequantises. A file is refused if the
folder would lose something that it says. Dequantised weights are exact copies of those in the file, and not the
weights that were quantised into it.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from safetensors import SafetensorError
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from whet.config.base import ConfigError
from whet.digests import digest
from whet.distribution import version
from whet.errors import RunError
from whet.files import whole_folder
from whet.models.gguf_ties import EMBEDDINGS, OUTPUT, finer_copy, said_of_copies
from whet.models.gguf_tokenizer import tokenizer_of
from whet.models.loading import named, reading
from whet.models.provenance import PROVENANCE, is_hub_id

HUB = "https://huggingface.co/"
SHAPES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
"""Keys below a shape's name, and transformers' names for them."""
READ = {"vocab_size", "rope.freq_base", "rope.dimension_count", "attention.key_length", "attention.value_length"}
"""Other keys that are accounted for."""
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROOM = 1.05
"""Disk space as a multiple of the weights' bytes: it includes the tokenizer and all else."""


@dataclass(frozen=True)
class Gguf:
    """An opened file: its keys and values, and its tensors as they are stored."""

    path: str
    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The architecture, such as llama."""
        return str(self.meta["general.architecture"])

    @cached_property
    def tied(self) -> str | None:
        """The copy of the embeddings with more bits, where two say the same. See `gguf_ties`."""
        return finer_copy(self.tensors)

    @property
    def num_weights(self) -> int:
        """Of the model. Two copies that say the same count once."""
        copies = sum(int(tensor.n_elements) for tensor in self.tensors.values())
        return copies - (int(self.tensors[self.tied].n_elements) if self.tied else 0)

    @property
    def quantisation(self) -> dict[str, int]:
        """Tensors by how they are stored, most frequent first."""
        return dict(Counter(tensor.tensor_type.name for tensor in self.tensors.values()).most_common())


def open_gguf(path: Path) -> Gguf:
    """
    Raises: ConfigError: it is missing, no GGUF, cut off, or of a shape whose folder would say something else.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; give a GGUF file, or smollm2 for the model of that name")
    with reading(f"{str(path)!r} is no GGUF file that can be read", "download it again, or give another"):
        reader = GGUFReader(path)
        meta = {name: field.contents() for name, field in reader.fields.items()}
        gguf = Gguf(str(path), meta, {tensor.name: tensor for tensor in reader.tensors})
        _check(gguf)
    return gguf


def _check(gguf: Gguf) -> None:
    shape = gguf.meta.get("general.architecture")
    if shape is None:
        raise ConfigError(f"{gguf.path!r} does not say what shape its model has (general.architecture): take another")
    if shape not in SHAPES:
        raise ConfigError(
            f"{gguf.path!r} is a model of the shape {shape!r}; whet reads {' and '.join(SHAPES)} from GGUF"
        )
    keys = {name.removeprefix(f"{shape}.") for name in gguf.meta if name.startswith(f"{shape}.")}
    if lost := keys - KEYS.keys() - READ:
        raise ConfigError(
            f"{gguf.path!r} sets {named(f'{shape}.{name}' for name in lost)}, which whet does not carry over, so the "
            "folder would be another model: take the model's folder from where its GGUF was made of"
        )
    if lost := {name for name in gguf.tensors if _name(name, shape) is None}:
        raise ConfigError(f"{gguf.path!r} has tensors that no plain {shape} model has ({named(lost)}): take another")


def convert(gguf: Gguf, folder: Path, source: Mapping[str, str], *, licence: Path | None = None) -> None:
    """Write the folder, whole or not at all.

    Args:
        folder: a new or empty one.
        source: where the file is from, for `provenance.json`.
        licence: a file to copy beside the weights.
    Raises: ConfigError: the folder is in use, the tokenizer is of another kind, weights are missing. RunError: it
        cannot be written.
    """
    check_free(folder, 4 * gguf.num_weights)
    with reading(f"{gguf.path!r} does not hold a whole model", "take another file"):
        tokenizer = tokenizer_of(gguf.meta, gguf.path)
        model = model_of(gguf, tokenizer)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with whole_folder(folder) as aside:
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            text = json.dumps(_provenance(gguf, source), indent=1, ensure_ascii=False) + "\n"
            (aside / PROVENANCE).write_text(text)
            if licence is not None:
                shutil.copyfile(licence, aside / "LICENSE")
            for file in aside.iterdir():  # safetensors writes for its owner alone
                file.chmod(0o644)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"{str(folder)!r} cannot be written ({error}): make room, or give another folder; nothing is left of it"
        ) from error


def check_free(folder: Path, num_bytes: int) -> None:
    """Raises: ConfigError where the folder is in use; RunError where the disk has less room."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{str(folder)!r} is there and not empty: give a new folder, or delete it")
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    needed, free = int(num_bytes * ROOM), shutil.disk_usage(there).free
    if free < needed:
        raise RunError(f"{str(folder)!r} takes {needed / 1e9:.1f} GB, and its disk has {free / 1e9:.1f} GB: make room")


def model_of(gguf: Gguf, tokenizer: Any) -> Any:
    """The model with the file's weights, in float32.

    Raises: ConfigError; RuntimeError where weights are missing or have other shapes.
    """
    kind, model_class = SHAPES[gguf.shape]
    with torch.device("meta"):
        model = model_class(_config(gguf, kind, tokenizer))
    state = state_of(gguf)
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    ends = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = GenerationConfig(**ends)
    return model


def state_of(gguf: Gguf) -> dict[str, Tensor]:
    """The weights by transformers' names, in float32."""
    state = {}
    for name, tensor in gguf.tensors.items():
        if gguf.tied and name in (EMBEDDINGS, OUTPUT) and name != gguf.tied:
            continue
        weights = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if gguf.shape == "llama" and (".attn_q." in name or ".attn_k." in name):
            weights = _halves(weights, _of_shape(gguf, "attention.head_count" + "_kv" * (".attn_k." in name)))
        state[str(_name(EMBEDDINGS if name == gguf.tied else name, gguf.shape))] = weights
    return state


def _halves(weights: Tensor, num_heads: int) -> Tensor:
    """Undoes llama.cpp's order of rows: rotary pairs are side by side there, and half a head apart here."""
    return weights.reshape(num_heads, -1, 2, *weights.shape[1:]).transpose(1, 2).reshape(weights.shape)


def _name(name: str, shape: str) -> str | None:
    """Transformers' name of a tensor. None: the shape has none of that name."""
    stem, _, kind = name.rpartition(".")
    if kind == "bias" and (shape != "qwen2" or not stem.endswith(("attn_q", "attn_k", "attn_v"))):
        return None
    if stem in TOP and kind == "weight":
        return f"{TOP[stem]}.{kind}"
    match stem.split("."):
        case ["blk", number, part] if part in LAYER and kind in ("weight", "bias"):
            return f"model.layers.{number}.{LAYER[part]}.{kind}"
    return None


def _config(gguf: Gguf, kind: Any, tokenizer: Any) -> Any:
    settings = {ours: _of_shape(gguf, key) for key, ours in KEYS.items()}
    head_dim = settings["hidden_size"] // settings["num_attention_heads"]
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if gguf.meta.get(f"{gguf.shape}.{key}", head_dim) != head_dim:
            raise ConfigError(
                f"{gguf.path!r} has heads of {head_dim} numbers and another {gguf.shape}.{key}: take another"
            )
    base = float(gguf.meta.get(f"{gguf.shape}.rope.freq_base", 1e4))
    return kind(
        **settings,
        vocab_size=int(gguf.tensors["token_embd.weight"].shape[1]),
        rope_parameters={"rope_type": "default", "rope_theta": base},
        tie_word_embeddings=OUTPUT not in gguf.tensors or gguf.tied is not None,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def _of_shape(gguf: Gguf, key: str) -> Any:
    """Raises: ConfigError where the file lacks the key."""
    value = gguf.meta.get(f"{gguf.shape}.{key}")
    if value is None and key == "attention.head_count_kv":
        return _of_shape(gguf, "attention.head_count")
    if value is None:
        raise ConfigError(f"{gguf.path!r} does not say {gguf.shape}.{key}: take another file")
    return value


def _provenance(gguf: Gguf, source: Mapping[str, str]) -> dict[str, Any]:
    return {
        **source,
        "file": Path(gguf.path).name,
        "sha256": digest(Path(gguf.path)),
        **stated(gguf, source),
        **({"tied": said_of_copies(gguf.tensors, gguf.tied)} if gguf.tied else {}),
        "tensors_by_quantisation": gguf.quantisation,
        "weights": "dequantised to float32: those that the file holds, and not the original model's"
        if set(gguf.quantisation) - {"F32", "F16", "BF16"}
        else "as in the file, in float32",
        "converted_by": f"whet {version()}",
    }


def stated(gguf: Gguf, source: Mapping[str, str]) -> dict[str, Any]:
    """Name, licence and base model as the file states them; otherwise its source's licence.

    Returns: `license` is None where neither states one.
    """
    general = {name.removeprefix("general."): value for name, value in gguf.meta.items() if isinstance(value, str)}
    urls = (general.get(key) for key in ("source.repo_url", "repo_url", "base_model.0.repo_url"))
    hub_ids = [url.removeprefix(HUB).strip("/") for url in urls if url and url.startswith(HUB)]
    record = {"name": general.get("name"), "license": general.get("license", source.get("license"))}
    record |= {f"license_{key}": general.get(f"license.{key}") for key in ("name", "link")}
    record |= {"base_model": source.get("base_model", next(filter(is_hub_id, hub_ids), None))}
    if record["license"]:
        record["license"] = record["license"].lower()
    return {key: value for key, value in record.items() if value or key == "license"}
