"""What the speed benchmarks share: random models of a given size, fair repeats, the machine, result files."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from study import processor
from whet.models.policy import Policy
from whet.run_folder.folder import environment

SHAPES = {"0.4M": (96, 3), "1M": (160, 4), "5M": (288, 5), "20M": (480, 8)}
"""Hidden size and layers."""
BUSY = 0.5
"""Cores' worth of other work above which timings are not to be trusted."""


def random_model(size: str, *, vocabulary: int = 512, seed: int = 0, **options: Any) -> Qwen2ForCausalLM:
    """A randomly initialised Qwen2-shaped model: grouped-query attention (4 heads, 2 of keys and values)."""
    hidden, layers = SHAPES[size]
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=hidden * 8 // 3, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=0, **options,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval().requires_grad_(False)


def policy_of(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> Policy:
    """As the library holds it; nothing ends a reply but its length."""
    return Policy("random", model, tokenizer, stop_ids=frozenset())


def timed(sides: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, list[float]]:
    """Seconds of each side, in turn, `repeats` times after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def others_at_work(seconds: float = 2.0) -> float:
    """How many cores are busy while this process sleeps for so long. The load average would also tell of what it has
    done itself in the last minutes."""
    return psutil.cpu_percent(seconds) / 100 * (psutil.cpu_count() or 1)


def machine() -> dict[str, Any]:
    """Where and with what this was measured; `others` is the work that was there before."""
    found = environment(0, "cpu")
    return {
        **{
            key: found[key]
            for key in ("torch", "transformers", "python", "platform", "num_threads", "num_cores", "commit")
        },
        "processor": processor(),
        "others": others_at_work(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", *sys.argv]),
    }
