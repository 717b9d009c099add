"""From a GGUF file to a folder as `save_pretrained` writes it: config, weights in float32, tokenizer, chat template.

`transformers` reads GGUF too, but refuses to save what it read, drops the digit split of SmolLM2's tokenizer, and takes
half a minute for the rest of it. Here the `gguf` package reads and dequantises; what a file says that would be lost in
the folder is a refusal. Dequantised weights are exact copies of what the file holds, and not the weights that were
quantised into it.
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
"""Of a shape, below its name, and what transformers calls them."""
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
"""Of the weights' bytes: tokenizer and all else."""


@dataclass(frozen=True)
class Gguf:
    """A file that was opened: its keys and values, and its tensors as they are stored."""

    path: str
    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The architecture, such as llama."""
        return str(self.meta["general.architecture"])

    @cached_property
    def tied(self) -> str | None:
        """Of two copies of the embeddings that say the same, the one with more bits. See `gguf_ties`."""
        return finer_copy(self.tensors)

    @property
    def num_weights(self) -> int:
        """Of the model; of two copies that say the same, one counts."""
        copies = sum(int(tensor.n_elements) for tensor in self.tensors.values())
        return copies - (int(self.tensors[self.tied].n_elements) if self.tied else 0)

    @property
    def quantisation(self) -> dict[str, int]:
        """Tensors by how they are stored, most frequent first."""
        return dict(Counter(tensor.tensor_type.name for tensor in self.tensors.values()).most_common())


def open_gguf(path: Path) -> Gguf:
    """
    Raises: ConfigError: it is not there, no GGUF, cut off, or of a shape whose folder would say something else.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; give a GGUF file, or smollm2 for the model of that name")
    with reading(f"{str(path)!r} is no GGUF file that can be read", "download it again, or give another"):
        reader = GGUFReader(path)
        meta = {name: field.contents() for name, field in reader.fields.items()}
        found = Gguf(str(path), meta, {tensor.name: tensor for tensor in reader.tensors})
        _check(found)
    return found


def _check(found: Gguf) -> None:
    shape = found.meta.get("general.architecture")
    if shape is None:
        raise ConfigError(f"{found.path!r} does not say what shape its model has (general.architecture): take another")
    if shape not in SHAPES:
        raise ConfigError(
            f"{found.path!r} is a model of the shape {shape!r}; whet reads {' and '.join(SHAPES)} from GGUF"
        )
    own = {name.removeprefix(f"{shape}.") for name in found.meta if name.startswith(f"{shape}.")}
    if lost := own - KEYS.keys() - READ:
        raise ConfigError(
            f"{found.path!r} sets {named(f'{shape}.{name}' for name in lost)}, which whet does not carry over, so the "
            "folder would be another model: take the model's folder from where its GGUF was made of"
        )
    if lost := {name for name in found.tensors if _name(name, shape) is None}:
        raise ConfigError(f"{found.path!r} has tensors that no plain {shape} model has ({named(lost)}): take another")


def convert(found: Gguf, folder: Path, source: Mapping[str, str], *, licence: Path | None = None) -> None:
    """Write the folder, whole or not at all.

    Args:
        folder: not there yet, or empty.
        source: where the file is from, for `provenance.json`.
        licence: a file to lay beside the weights.
    Raises: ConfigError: the folder is in use, the tokenizer is of another kind, weights are missing. RunError: it
        cannot be written.
    """
    check_free(folder, 4 * found.num_weights)
    with reading(f"{found.path!r} does not hold a whole model", "take another file"):
        tokenizer = tokenizer_of(found.meta, found.path)
        model = model_of(found, tokenizer)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with whole_folder(folder) as aside:
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            text = json.dumps(_provenance(found, source), indent=1, ensure_ascii=False) + "\n"
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
    """Raises: ConfigError where something is there; RunError where the disk has less room."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{str(folder)!r} is there and not empty: give a new folder, or delete it")
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    needed, free = int(num_bytes * ROOM), shutil.disk_usage(there).free
    if free < needed:
        raise RunError(f"{str(folder)!r} takes {needed / 1e9:.1f} GB, and its disk has {free / 1e9:.1f} GB: make room")


def model_of(found: Gguf, tokenizer: Any) -> Any:
    """The model with the file's weights, in float32.

    Raises: ConfigError; RuntimeError where weights are missing or have other shapes.
    """
    kind, model_class = SHAPES[found.shape]
    with torch.device("meta"):
        model = model_class(_config(found, kind, tokenizer))
    state = state_of(found)
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    ends = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = GenerationConfig(**ends)
    return model


def state_of(found: Gguf) -> dict[str, Tensor]:
    """The weights by transformers' names, in float32."""
    state = {}
    for name, tensor in found.tensors.items():
        if found.tied and name in (EMBEDDINGS, OUTPUT) and name != found.tied:
            continue
        weights = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if found.shape == "llama" and (".attn_q." in name or ".attn_k." in name):
            weights = _halves(weights, _of_shape(found, "attention.head_count" + "_kv" * (".attn_k." in name)))
        state[str(_name(EMBEDDINGS if name == found.tied else name, found.shape))] = weights
    return state


def _halves(weights: Tensor, num_heads: int) -> Tensor:
    """Undoes llama.cpp's order of the rows: rotary pairs stand side by side there, and half a head apart here."""
    return weights.reshape(num_heads, -1, 2, *weights.shape[1:]).transpose(1, 2).reshape(weights.shape)


def _name(name: str, shape: str) -> str | None:
    """What transformers calls a tensor. None: the shape has none of that name."""
    stem, _, kind = name.rpartition(".")
    if kind == "bias" and (shape != "qwen2" or not stem.endswith(("attn_q", "attn_k", "attn_v"))):
        return None
    if stem in TOP and kind == "weight":
        return f"{TOP[stem]}.{kind}"
    match stem.split("."):
        case ["blk", number, part] if part in LAYER and kind in ("weight", "bias"):
            return f"model.layers.{number}.{LAYER[part]}.{kind}"
    return None


def _config(found: Gguf, kind: Any, tokenizer: Any) -> Any:
    settings = {ours: _of_shape(found, key) for key, ours in KEYS.items()}
    head_dim = settings["hidden_size"] // settings["num_attention_heads"]
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if found.meta.get(f"{found.shape}.{key}", head_dim) != head_dim:
            raise ConfigError(
                f"{found.path!r} has heads of {head_dim} numbers and another {found.shape}.{key}: take another"
            )
    base = float(found.meta.get(f"{found.shape}.rope.freq_base", 1e4))
    return kind(
        **settings,
        vocab_size=int(found.tensors["token_embd.weight"].shape[1]),
        rope_parameters={"rope_type": "default", "rope_theta": base},
        tie_word_embeddings=OUTPUT not in found.tensors or found.tied is not None,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )  # fmt: skip


def _of_shape(found: Gguf, key: str) -> Any:
    """Raises: ConfigError where the file does not say it."""
    given = found.meta.get(f"{found.shape}.{key}")
    if given is None and key == "attention.head_count_kv":
        return _of_shape(found, "attention.head_count")
    if given is None:
        raise ConfigError(f"{found.path!r} does not say {found.shape}.{key}: take another file")
    return given


def _provenance(found: Gguf, source: Mapping[str, str]) -> dict[str, Any]:
    return {
        **source,
        "file": Path(found.path).name,
        "sha256": digest(Path(found.path)),
        **stated(found, source),
        **({"tied": said_of_copies(found.tensors, found.tied)} if found.tied else {}),
        "tensors_by_quantisation": found.quantisation,
        "weights": "dequantised to float32: those that the file holds, and not the original model's"
        if set(found.quantisation) - {"F32", "F16", "BF16"}
        else "as in the file, in float32",
        "converted_by": f"whet {version()}",
    }


def stated(found: Gguf, source: Mapping[str, str]) -> dict[str, Any]:
    """Name, licence and base model as the file states them; else the licence that its source does.

    Returns: `license` is None where neither states one.
    """
    general = {name.removeprefix("general."): value for name, value in found.meta.items() if isinstance(value, str)}
    urls = (general.get(key) for key in ("source.repo_url", "repo_url", "base_model.0.repo_url"))
    hub_ids = [url.removeprefix(HUB).strip("/") for url in urls if url and url.startswith(HUB)]
    record = {"name": general.get("name"), "license": general.get("license", source.get("license"))}
    record |= {f"license_{key}": general.get(f"license.{key}") for key in ("name", "link")}
    record |= {"base_model": source.get("base_model", next(filter(is_hub_id, hub_ids), None))}
    if record["license"]:
        record["license"] = record["license"].lower()
    return {key: value for key, value in record.items() if value or key == "license"}
