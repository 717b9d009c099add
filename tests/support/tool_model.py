"""A model that calls a tool, and tells its answer: random weights that have learnt two replies by heart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from support.tokenizers import MARKS, qwen2_style
from whet.chat import render, text_ids
from whet.models.policy import Policy
from whet.tool_calls import function

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
"""Chat templates as models are published with them."""
ADD = function(
    "add",
    "Adds two numbers.",
    {name: {"type": "integer", "description": "a number"} for name in ("a", "b")},
    ["a", "b"],
)
NUMBERS = {"a": 7, "b": 5}
ASKED: dict[str, Any] = {"role": "user", "content": "What is 7 + 5?"}
CALLS = 'I add them.\n<tool_call>\n{"name": "add", "arguments": {"a": 7, "b": 5}}\n</tool_call>'
SAYS = "7 + 5 is 12."


def calling(answer: str) -> tuple[list[dict[str, str]], str]:
    """A conversation after the call has been answered, and the tools, as `whet.chat.render` takes them."""
    made = {"id": "c", "type": "function", "function": {"name": "add", "arguments": NUMBERS}}
    messages = [
        ASKED,
        {"role": "assistant", "content": "I add them.", "more": json.dumps({"tool_calls": [made]})},
        {"role": "tool", "content": answer},
    ]
    return messages, json.dumps([ADD])


def tool_tokenizer(
    tools: Sequence[dict[str, Any]] = (ADD,), asked: str = ASKED["content"], replies: Sequence[str] = (CALLS, SAYS)
) -> PreTrainedTokenizerBase:
    """A tokenizer with Qwen2.5's chat template, whose pieces suit these texts."""
    template = (TEMPLATES / "qwen2_5.jinja").read_text(encoding="utf-8")
    chat = [{"role": "user", "content": asked}]
    shown = qwen2_style(template=template).apply_chat_template(
        chat, tools=[*tools], add_generation_prompt=True, tokenize=False
    )
    said = [str(shown), *replies, "<tool_response>\n12\n</tool_response>"]
    return qwen2_style(template=template, said=said, size=700)


def calling_model(
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[tuple[list[dict[str, str]], str]],
    tools: Sequence[dict[str, Any]],
) -> tuple[Qwen2ForCausalLM, int]:
    """A small model that has learnt these replies by heart, and its end token. It takes some seconds to learn."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    end = tokenizer.convert_tokens_to_ids(MARKS[2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(120):
        messages, reply = examples[step % len(examples)]
        prompt, written = render(tokenizer, messages, tools=json.dumps([*tools])), [*text_ids(tokenizer, reply), end]
        labels = torch.tensor([[-100] * len(prompt) + written])
        loss = model(input_ids=torch.tensor([[*prompt, *written]]), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), end


def tool_policy() -> Policy:
    """It calls `add`, and tells the answer."""
    tokenizer = tool_tokenizer()
    after, _ = calling("12")
    model, end = calling_model(tokenizer, [([ASKED], CALLS), (after, SAYS)], [ADD])
    return Policy("policy", model, tokenizer, stop_ids=frozenset({end}))
