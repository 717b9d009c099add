"""A model that calls a tool, and tells its answer: random weights that have learnt two replies by heart."""

from __future__ import annotations

import json
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


def tool_tokenizer() -> PreTrainedTokenizerBase:
    template = (TEMPLATES / "qwen2_5.jinja").read_text(encoding="utf-8")
    plain = qwen2_style(template=template)
    shown = plain.apply_chat_template([ASKED], tools=[ADD], add_generation_prompt=True, tokenize=False)
    return qwen2_style(
        template=template, said=[str(shown), CALLS, SAYS, "<tool_response>\n12\n</tool_response>"], size=700
    )


def tool_policy() -> Policy:
    """It takes some seconds to learn."""
    torch.manual_seed(0)
    tokenizer = tool_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    end = tokenizer.convert_tokens_to_ids(MARKS[2])
    after, tools = calling("12")
    examples = [
        (render(tokenizer, [ASKED], tools=tools), [*text_ids(tokenizer, CALLS), end]),
        (render(tokenizer, after, tools=tools), [*text_ids(tokenizer, SAYS), end]),
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        for prompt, reply in examples:
            ids = torch.tensor([[*prompt, *reply]])
            labels = torch.tensor([[-100] * len(prompt) + reply])
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return Policy("policy", model.eval(), tokenizer, stop_ids=frozenset({end}))
