"""Tokenizers with control tokens of several kinds, and texts that spell them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

from whet.models.shipped import AGENTS
from whet.models.stand_in import CHATML
from whet.models.tiny import tiny_tokenizer

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SAID = ["What is 7 + 12?\n\nThink first.", "user\n\nassistant\n\n", "I see a wall.\n\n\nGo north", "a < b, c > d"]


def qwen2_style(
    *, special_marks: bool = True, template: str = CHATML, said: Sequence[str] = SAID, size: int = 400
) -> PreTrainedTokenizerBase:
    """Byte-level BPE with ChatML, in which tags are added tokens and not special.

    Args:
        special_marks: False: what the template writes around turns is not flagged special either, but its end is.
        said: texts that it learns its pieces from.
        size: of its vocabulary, without marks and tags.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        [*said] * 50, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    vocabulary = trained.get_vocab()
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    tokenizer = Qwen2Tokenizer(vocab=vocabulary, merges=merges, pad_token=MARKS[0], eos_token=MARKS[2])
    tokenizer.add_tokens([
        AddedToken(each, special=special_marks or each == MARKS[2], normalized=False) for each in MARKS
    ])  # fmt: skip
    tokenizer.add_tokens([AddedToken(each, special=False, normalized=False) for each in TAGS])
    tokenizer.chat_template = template
    return tokenizer


def folding() -> PreTrainedTokenizerBase:
    """A word-level tokenizer that lower-cases and folds wide characters before it looks for its marks."""
    words = ["<user>", "<end>", "<unk>", "<", ">", "user", "end", "hello", "assistant"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(each, normalized=True, special=False) for each in ("<user>", "<end>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>", pad_token="<end>")
    fast.chat_template = (
        "{% for m in messages %}<user> {{ m['role'] }} {{ m['content'] }} <end>{% endfor %}"
        "{% if add_generation_prompt %}<user> assistant {% endif %}"
    )
    return fast


def spaced() -> PreTrainedTokenizerBase:
    """Pieces that begin with their space, which a text gets at its beginning too."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trained.decoder = decoders.Metaspace(prepend_scheme="first")
    letters = sorted({*"".join(SAID), *"abcdefghijklmnopqrstuvwxyz<|>_0123456789+:"})
    trained.train_from_iterator(
        [*SAID] * 50, trainers.BpeTrainer(vocab_size=200, initial_alphabet=letters, show_progress=False)
    )
    trained.add_tokens([AddedToken("<|user|>", normalized=False), AddedToken("<|end|>", normalized=False)])
    fast = PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<|end|>", pad_token="<|user|>")
    fast.chat_template = "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}<|end|>{% endfor %}a:"
    return fast


def tiny_agent() -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    return tokenizer


KINDS = {
    "tiny": (tiny_tokenizer, ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")),
    "tiny_agent": (tiny_agent, ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")),
    "qwen2": (qwen2_style, MARKS),
    "qwen2, marks not special": (lambda: qwen2_style(special_marks=False), MARKS),
}
"""How a tokenizer is made, and its control tokens, by hand."""


def hostile_texts(spellings: Sequence[str], count: int, *, seed: int = 0) -> Iterator[str]:
    """Texts that hold every spelling, some cut in two, among words and characters of all kinds."""
    rng = random.Random(seed)
    words = ["hello", " ", "\n", "12", "<", ">", "|", "<|", "|>", "< |", "a<b>", "im_end", "é", "\U000f0000", "7 + 5"]
    for _ in range(count):
        pieces = [*spellings, *rng.choices(words, k=8)]
        cut = rng.choice(spellings)
        at = rng.randrange(1, len(cut))
        pieces += [cut[:at] + rng.choice(spellings) + cut[at:]]
        rng.shuffle(pieces)
        # The template's own text goes on where a message ends.
        yield cut[at:] + "".join(pieces) + cut[:at]
