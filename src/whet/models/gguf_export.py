"""Writes a model as a GGUF file for llama.cpp: the reverse of `gguf`, for the same shapes and tokenizers.

Weights are written in float32, to the bit; llama.cpp's own tools quantise them. What llama.cpp would compute otherwise
(another rotary scaling, another split of text before byte-level BPE) is refused, and the written file is read back: its
tokenizer has to give the model's ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids, tokens_around
from whet.config.base import ConfigError
from whet.errors import RunError
from whet.models.gguf import KEYS, LAYER, SHAPES, TOP, open_gguf
from whet.models.gguf_tokenizer import CONTROL, OF_SHAPE, USER_DEFINED, split_of, tokenizer_of
from whet.models.loading import named

NORMAL, UNUSED = 1, 5
"""Kinds of tokens, beside those of `gguf_tokenizer`. Unused: rows of the embedding that no text has."""
PROBES = (
    "What is 7 + 12?\n\nThink first: 345,678 - 1.5e3 = x_1.",
    "  it's DON'T\twe'll \r\n\n  naïve Ünïcode 日本語 🙂 ﬁ é",
    "def f(x):\n    return {'a': [x**2, \"b\"]}\n",
)
"""Texts whose ids are compared."""


def write_gguf(model: Any, tokenizer: PreTrainedTokenizerBase, path: Path, *, about: Mapping[str, str]) -> None:
    """
    Args:
        model: of `transformers`, with whole weights.
        about: keys below `general.`, such as the licence.
    Raises: ConfigError where llama.cpp would compute something else. RunError where the file does not read back.
    """
    shape = check_shape(model.config)
    pre = split_name(tokenizer, shape)
    writer = GGUFWriter(path, shape)
    for key, value in about.items():
        writer.add_string(f"general.{key}", value)
    writer.add_file_type(LlamaFileType.ALL_F32)
    _write_config(writer, shape, model.config)
    _write_tokenizer(writer, tokenizer, pre, model)
    state = model.state_dict()
    names = {name: gguf_name(name) for name in state}
    if lost := {name for name, ours in names.items() if ours is None}:
        raise ConfigError(f"the model has weights that no plain {shape} model has ({named(lost)}): export it as it is")
    for name, weights in state.items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = in_llama_cpps_order(name, weights.detach().float(), model.config)
        writer.add_tensor(str(names[name]), values.numpy(), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    _check_ids(path, tokenizer)


def check_shape(config: Any) -> str:
    """The architecture, by llama.cpp's name.

    Raises: ConfigError where it is none that whet writes, or has a setting that llama.cpp has not.
    """
    shape = config.model_type
    if shape not in SHAPES:
        raise ConfigError(
            f"whet writes {' and '.join(SHAPES)} models as GGUF, and this one is {shape!r}: leave out --to"
        )
    rope = config.rope_parameters
    heads = config.hidden_size // config.num_attention_heads
    wanted: dict[str, tuple[Any, Any]] = {
        "hidden_act": (config.hidden_act, "silu"),
        "rope_type": (rope.get("rope_type", "default"), "default"),
        "partial_rotary_factor": (rope.get("partial_rotary_factor") or 1.0, 1.0),
        "head_dim": (getattr(config, "head_dim", None) or heads, heads),
        "attention_bias": (shape == "llama" and config.attention_bias, False),
        "mlp_bias": (shape == "llama" and config.mlp_bias, False),
        "use_sliding_window": (shape == "qwen2" and config.use_sliding_window, False),
    }
    for name, (value, only) in wanted.items():
        if value != only:
            raise ConfigError(
                f"whet writes {shape} models as GGUF only with {name} = {only}, and this has {value}: leave out --to"
            )
    return str(shape)


def split_name(tokenizer: PreTrainedTokenizerBase, shape: str) -> str:
    """llama.cpp's name for how a tokenizer splits text before its merges.

    Raises: ConfigError where it is no byte-level BPE, has no merges, or its split has no name that whet knows.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state: dict[str, Any] = json.loads(backend.to_str()) if backend is not None else {"model": {"type": "none"}}
    model = state["model"]
    if model["type"] == "BPE" and not model["merges"]:
        raise ConfigError(
            "the tokenizer has no merges (the model `tiny` has none), and llama.cpp loads no byte-level BPE without: "
            "leave out --to"
        )
    plain = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    strange = [key for key in plain if model.get(key)]
    strange += [
        kind for kind in ("lstrip", "rstrip", "single_word") for token in state.get("added_tokens", ()) if token[kind]
    ]
    if model["type"] == "BPE" and not strange:
        normalizer = (state["normalizer"] or {}).get("type")
        for pre in OF_SHAPE[shape]:
            same_split = _form(state["pre_tokenizer"]) == _form(json.loads(split_of(pre).__getstate__()))
            same_normalizer = normalizer == ("NFC" if shape == "qwen2" else None)
            if same_split and same_normalizer and bool(model.get("ignore_merges")) == (pre == "llama-bpe"):
                return pre
    raise ConfigError(
        f"the tokenizer is none that llama.cpp is known to split as it does: of a {shape} model whet writes byte-level "
        f"BPE of the kinds {', '.join(OF_SHAPE[shape])} as GGUF; leave out --to"
    )


def _form(part: Mapping[str, Any] | None) -> Any:
    """What decides how a pre-tokenizer splits, without what does not."""
    if part is None:
        return None
    if part["type"] == "Sequence":
        return [_form(inner) for inner in part["pretokenizers"]]
    return {key: value for key, value in part.items() if key != "trim_offsets"}


def gguf_name(name: str) -> str | None:
    """llama.cpp's name of a tensor. None: no plain model has it."""
    stem, _, kind = name.rpartition(".")
    tops = {ours: theirs for theirs, ours in TOP.items()}
    if stem in tops:
        return f"{tops[stem]}.{kind}"
    match stem.split(".", 3):
        case ["model", "layers", number, part]:
            layer = {ours: theirs for theirs, ours in LAYER.items()}.get(part)
            return None if layer is None else f"blk.{number}.{layer}.{kind}"
    return None


def in_llama_cpps_order(name: str, weights: Tensor, config: Any) -> Tensor:
    """Rows of Llama's queries and keys with the pairs of the rotation side by side; all else as it is."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if config.model_type != "llama" or heads is None:
        return weights
    halves = weights.reshape(heads, 2, -1, *weights.shape[1:])
    return halves.transpose(1, 2).reshape(weights.shape).contiguous()


def _write_config(writer: GGUFWriter, shape: str, config: Any) -> None:
    for key, ours in KEYS.items():
        value = getattr(config, ours)
        add: Callable[[str, Any], None] = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{shape}.{key}", value)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: GGUFWriter, tokenizer: Any, pre: str, model: Any) -> None:
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {token["id"]: token for token in state["added_tokens"]}
    texts = {index: token for token, index in state["model"]["vocab"].items()}
    texts |= {index: token["content"] for index, token in added.items()}
    size = model.config.vocab_size
    kinds = {index: CONTROL if token["special"] else USER_DEFINED for index, token in added.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([texts.get(index, f"[PAD{index}]") for index in range(size)])
    writer.add_token_types([kinds.get(index, NORMAL) if index in texts else UNUSED for index in range(size)])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]]
    )
    ends = model.generation_config.eos_token_id if model.generation_config is not None else None
    others = [end for end in (ends if isinstance(ends, list) else [ends]) if end not in (None, tokenizer.eos_token_id)]
    for add, index in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_eot_token_id, others[0] if others else None),
    ):
        if index is not None:
            add(index)
    writer.add_add_bos_token(_begins(tokenizer))
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _begins(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether its texts begin with a token for that. Raises: ConfigError where it adds other tokens."""
    before, after = tokens_around(tokenizer)
    if after or before not in ((), (tokenizer.bos_token_id,)):
        raise ConfigError("the tokenizer adds tokens to a text that GGUF has no setting for: leave out --to")
    return bool(before)


def _check_ids(path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises: RunError where the file's tokenizer gives other ids."""
    there = tokenizer_of(open_gguf(path).meta, str(path))
    for text in PROBES:
        if text_ids(there, text) != text_ids(tokenizer, text) or tokens_around(there) != tokens_around(tokenizer):
            raise RunError(
                f"the tokenizer of {path.name} gives other ids than the model's for {text!r}: do not use the file"
            )
