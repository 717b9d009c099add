"""Rebuilds the tokenizer of a GGUF file: byte-level BPE, split as its merges were learnt.

A GGUF holds vocabulary and merges. How text is split before them, it only names (`tokenizer.ggml.pre`); the name stands
for code in llama.cpp. The names here are those whose splits were compared with llama.cpp's
(`tests/models/test_gguf.py`). Any other is refused, as tokens would differ silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from whet.config.base import ConfigError

CONTROL, USER_DEFINED = 3, 4
"""Kinds of tokens: those of chat templates and the like, and text that is one token wherever it occurs."""
_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS_APART = ("smollm",)
"""Each digit by itself, and then GPT-2's."""
SPLITS = {
    "qwen2": _CASELESS + r"\p{N}" + _REST,
    "deepseek-r1-qwen": _CASELESS + r"\p{N}" + _REST,
    "llama-bpe": _CASELESS + r"\p{N}{1,3}" + _REST,
}
OF_SHAPE = {"qwen2": ("qwen2", "deepseek-r1-qwen"), "llama": ("gpt-2", *DIGITS_APART, "llama-bpe")}
"""By the model's shape: `AutoTokenizer` gives any tokenizer beside a Qwen2 model the split of Qwen2."""


def tokenizer_of(meta: Mapping[str, Any], path: str) -> PreTrainedTokenizerFast:
    """
    Args:
        meta: the file's keys and values.
        path: for error messages.
    Raises: ConfigError where it is of another kind, or its split is not known here.
    """
    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "default")
    shape = meta["general.architecture"]
    if kind != "gpt2" or pre not in OF_SHAPE[shape]:
        raise ConfigError(
            f"{path!r} has a tokenizer that whet cannot rebuild to the letter (tokenizer.ggml.model = {kind!r}, "
            f"tokenizer.ggml.pre = {pre!r}): of a {shape} model it can gpt2 with {', '.join(OF_SHAPE[shape])}; take "
            "the model's folder from where its GGUF was made of"
        )
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    # Llama 3 takes a piece that is a token as it is, whether or not merges lead to it.
    bpe = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe"))
    bpe.normalizer = normalizers.NFC() if pre in OF_SHAPE["qwen2"] else None
    bpe.pre_tokenizer = split_of(pre)
    bpe.decoder = decoders.ByteLevel()
    for which in (CONTROL, USER_DEFINED):
        chosen = [token for token, kind_of_token in zip(tokens, kinds, strict=True) if kind_of_token == which]
        add = bpe.add_special_tokens if which == CONTROL else bpe.add_tokens
        add([AddedToken(token, normalized=False, special=which == CONTROL) for token in chosen])
    ends = _special_tokens(meta, tokens, kinds)
    if meta.get("tokenizer.ggml.add_bos_token"):
        start = ends["bos_token"]
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A {start} $B", special_tokens=[(start, vocabulary[start])]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, clean_up_tokenization_spaces=False, **ends)
    fast.model_max_length = meta[f"{shape}.context_length"]
    fast.chat_template = meta.get("tokenizer.chat_template")
    return fast


def split_of(pre: str) -> Any:
    """How text is split before merges, by llama.cpp's name of it."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in SPLITS)
    if pre in SPLITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated"), byte_level])
    if pre in DIGITS_APART:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _special_tokens(meta: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> dict[str, str]:
    """By transformers' names."""
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: meta.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    special_tokens = {name: tokens[index] for name, index in ids.items() if index is not None}
    spare = "<|endoftext|>"
    # Many trainers mask all padding: if it is the end token too, ends are never learnt.
    if special_tokens.get("pad_token") == special_tokens.get("eos_token") != spare and (spare, CONTROL) in zip(
        tokens, kinds, strict=True
    ):
        special_tokens["pad_token"] = spare
    return special_tokens
