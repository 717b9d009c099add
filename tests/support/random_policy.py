"""A policy that costs nothing: the tiny architecture with random weights."""

from __future__ import annotations

import torch
from transformers import Qwen2ForCausalLM

from whet.models.policy import Policy
from whet.models.tiny import SPECIAL, tiny_config, tiny_tokenizer


def random_policy(dtype: torch.dtype = torch.float32) -> Policy:
    """The tiny architecture with random weights (drawn wide, so that its distributions are not flat)."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    model = Qwen2ForCausalLM(tiny_config(len(tokenizer))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return Policy("policy", model.to(dtype), tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))
