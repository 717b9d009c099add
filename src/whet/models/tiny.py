"""The tiny models: a lossless tokenizer for chains of sums, and a Qwen2-style model of a third of a million weights."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Config

from whet.tasks.chains import MAX_STEPS

SPECIAL = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>", "<|unknown|>")
PIECES = (
    *"0123456789",
    " + ", " - ", " * ", " = ", "\n",
    *(f"{line}Step {n}: " for line in ("", "\n") for n in range(1, MAX_STEPS + 1)),
    "\nThe answer is ", ", claimed ", ": Correct", ": Wrong", ", so write ", "\nCorrectness of the final answer",
    "Solve: ", "Critique: ", "Refine: ",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Word level, one token a piece, spaces included in the pieces: decoding gives back the exact text.

    The pieces are *added* tokens, which every tokenizer class finds before its own rules. `AutoTokenizer` loads any
    tokenizer beside a Qwen2 model as `Qwen2Tokenizer`, whatever the files say. That class has its own pre-tokenizer,
    which would split our pieces.
    """
    vocabulary = {piece: index for index, piece in enumerate((*SPECIAL, *PIECES))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<|unknown|>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in SPECIAL])
    longest_first = sorted(PIECES, key=len, reverse=True)
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in longest_first])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>", unk_token="<|unknown|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def is_tiny(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer is that of the tiny models."""
    return set(PIECES) <= tokenizer.get_vocab().keys()


def tiny_config(vocabulary_size: int, *, hidden_size: int = 96, num_layers: int = 3) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 8 // 3,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL.index("<|end|>"),
        pad_token_id=SPECIAL.index("<|pad|>"),
    )
