"""The tiny agents' tokenizer and shape: words of the environments are one token each, others several."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2Tokenizer
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from whet.models.tiny import CHAT_TEMPLATE

READS_RULES = "reads_rules"
"""In a model's configuration. False: it has learnt the environments without their rules in the prompt."""
SPECIAL = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")
SPACED_DIGITS = tuple(f" {digit}" for digit in range(10))
"""Qwen2's rule splits the space from the digit, and every count would be two tokens."""
VOCABULARY = 1500
"""With it every word of TextCraft, BabyAI and maze is one token; Wordle's eight hundred take two or three."""


def word_tokenizer(words: Iterable[str], *, size: int = VOCABULARY) -> Qwen2Tokenizer:
    """Byte-level BPE trained on these words. It encodes any text, and decoding gives back the exact text.

    Args:
        words: each as often as it should count; see `pieces`.
        size: tokens, at most, before the digits with a space. Too few leave words in several tokens.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = _parting()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    trained.train_from_iterator(words, trainer)
    vocabulary, merges = _parts(trained)
    # As `AutoTokenizer` will load it: beside a Qwen2 model it takes this class and its rules, whatever the files say.
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary, merges=merges, unk_token=SPECIAL[0], pad_token=SPECIAL[0], eos_token=SPECIAL[3]
    )
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in SPACED_DIGITS])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def pieces(text: str) -> list[str]:
    """The words of a text, each with the space before it."""
    decoder = decoders.ByteLevel()
    return [decoder.decode([word]) for word, _ in _parting().pre_tokenize_str(text)]


def agent_config(vocabulary_size: int) -> Qwen2Config:
    """1.1 million weights, with `VOCABULARY` tokens."""
    return Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=336,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL.index("<|end|>"),
        pad_token_id=SPECIAL.index("<|pad|>"),
        **{READS_RULES: False},
    )


def _parting() -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _parts(trained: Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(trained.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]
