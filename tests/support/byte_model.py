"""A model of random weights over byte-level BPE: it can write any text, and means nothing by it."""

from __future__ import annotations

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from support.tokenizers import MARKS, qwen2_style
from whet.models.policy import Policy


def byte_policy() -> Policy:
    """Its output has more rows than its tokenizer has tokens, as published models have."""
    torch.manual_seed(0)
    tokenizer = qwen2_style()
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 10, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)  # so that its distributions are not flat
    return Policy("policy", model, tokenizer, stop_ids=frozenset({tokenizer.convert_tokens_to_ids(MARKS[2])}))
