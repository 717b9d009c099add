"""GGUF files of tiny random models, written as llama.cpp's converter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quantize
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KINDS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}


def random_model(shape: str, num_tokens: int, *, tied: bool) -> Any:
    config, model = KINDS[shape]
    torch.manual_seed(0)
    made = model(
        config(
            vocab_size=num_tokens, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": 5e4},
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in made.parameters():  # biases and norms too
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def write_gguf(
    path: Path,
    model: Any,
    tokenizer: Tokenizer,
    *,
    pre: str,
    kind: str = "F32",
    more: dict[str, Any] | None = None,
    kinds: dict[str, str] | None = None,
    output: torch.Tensor | None = None,
) -> Path:
    """
    Args:
        tokenizer: byte-level BPE whose first tokens are `SPECIAL`.
        kind: how matrices are stored.
        more: other keys, after the architecture's name, or whole ones of `general` and `tokenizer`: strings, bools and
            whole numbers.
        kinds: how single matrices are stored, by their names in the file.
        output: of a tied model, a second copy of the embeddings.
    """
    config, shape = model.config, model.config.model_type
    writer = GGUFWriter(path, shape)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, value in (more or {}).items():
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}[type(value)]
        add(name if name.startswith(("tokenizer.", "general.")) else f"{shape}.{name}", value)
    _write_tokenizer(writer, tokenizer, pre)
    names = get_tensor_name_map(MODEL_ARCH[shape.upper()], config.num_hidden_layers)
    for name, weights in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = _as_llama_cpp_has_it(name, weights, config).numpy()
        own = names.get_name(name, (".weight", ".bias"))
        stored = GGMLQuantizationType[(kinds or {}).get(own, kind) if weights.dim() == 2 else "F32"]
        writer.add_tensor(own, quantize(values, stored), raw_dtype=stored)
    if output is not None:
        stored = GGMLQuantizationType[(kinds or {}).get("output.weight", kind)]
        writer.add_tensor("output.weight", quantize(output.detach().numpy(), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer, pre: str) -> None:

    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in state["merges"]])
    writer.add_bos_token_id(SPECIAL.index("<|im_start|>"))
    writer.add_eos_token_id(SPECIAL.index("<|im_end|>"))
    writer.add_pad_token_id(SPECIAL.index("<|im_end|>"))
    writer.add_chat_template(CHATML)


def _as_llama_cpp_has_it(name: str, weights: torch.Tensor, config: Any) -> torch.Tensor:
    """Rows of Llama's queries and keys in llama.cpp's order: pairs of the rotation side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if config.model_type != "llama" or heads is None:
        return weights.detach()
    halves = weights.detach().reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return halves.transpose(1, 2).reshape(weights.shape).contiguous()
