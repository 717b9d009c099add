"""Tokens a second of the local engine, beside `transformers` on the same work.

    .venv/bin/python benchmarks/rollout.py                    # everything, a quarter of an hour on two cores
    .venv/bin/python benchmarks/rollout.py --sizes 1M --batches 256

Two workloads, as reinforcement learning has them. *grouped*: eight responses to each prompt, lengths drawn from a
long-tailed distribution (log-normal, mean 40, at most 256). *uniform*: different prompts, 64 tokens each. Lengths are
set beforehand, the same for all sides; prompts have one length, so that nobody pads. Every side samples at temperature
1; that they write the same is checked greedily.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from side_by_side import SHAPES, machine, policy_of, random_model, spread, timed
from study import write
from whet.engines.local import LocalEngine
from whet.models.tiny import tiny_tokenizer
from whet.types import Request, Sampling

PROMPT = 48
GROUP = 8
MEAN, LONGEST = 40, 256
UNIFORM = 64


class Lengths(StoppingCriteria):
    """Each row ends at its own length."""

    def __init__(self, prompt: int, lengths: Sequence[int]) -> None:
        self.ends = prompt + torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        return input_ids.shape[1] >= self.ends


def long_tailed(count: int, rng: random.Random) -> list[int]:
    """Log-normal with sigma 1, scaled until the mean of what is left after the cut is `MEAN`."""
    draws = [rng.lognormvariate(0.0, 1.0) for _ in range(count)]
    low, high = 1.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        lengths = [min(LONGEST, max(1, round(draw * middle))) for draw in draws]
        low, high = (middle, high) if sum(lengths) < MEAN * count else (low, middle)
    return lengths


def workload(kind: str, batch: int, vocabulary: int) -> list[Request]:
    rng = random.Random(f"{kind}/{batch}")
    share = GROUP if kind == "grouped" else 1
    prompts = [tuple(rng.randrange(5, vocabulary) for _ in range(PROMPT)) for _ in range(batch // share)]
    lengths = long_tailed(batch, rng) if kind == "grouped" else [UNIFORM] * batch
    return [
        Request(context=prompts[i // share], sampling=Sampling(max_new_tokens=length), seed=i)
        for i, length in enumerate(lengths)
    ]


def generation(model: Any, requests: Sequence[Request], cache: str | None, *, greedy: bool = False) -> list[list[int]]:
    """`model.generate` on all requests in one batch. `cache`: None for the dynamic one, or an implementation."""
    ids = torch.tensor([request.context for request in requests])
    lengths = [request.sampling.max_new_tokens for request in requests]
    config = GenerationConfig(
        max_new_tokens=max(lengths), do_sample=not greedy, temperature=1.0, top_k=0, top_p=1.0, use_cache=True,
        pad_token_id=0, eos_token_id=None, cache_implementation=cache, disable_compile=True,
    )  # fmt: skip
    stop = StoppingCriteriaList([Lengths(ids.shape[1], lengths)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, stopping_criteria=stop)
    return [row[ids.shape[1] :][:length].tolist() for row, length in zip(out, lengths, strict=True)]


def continuous(model: Any, requests: Sequence[Request]) -> list[list[int]]:
    """transformers' continuous batching: requests in one queue, each with its own limit."""
    config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0)
    manager = model.init_continuous_batching(generation_config=config)
    manager.start()
    names = [
        manager.add_request(list(r.context), max_new_tokens=r.sampling.max_new_tokens, eos_token_id=-1)
        for r in requests
    ]
    found = {}
    while len(found) < len(requests):
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            found[result.request_id] = result.generated_tokens
        elif not manager.is_running():
            raise RuntimeError("transformers' continuous batching stopped")
    manager.stop(block=True)
    return [found[name] for name in names]


def whet_side(engine: LocalEngine, requests: Sequence[Request]) -> Callable[[], None]:
    """Checks that every request got its tokens."""

    def run() -> None:
        completions = engine.generate(requests)
        assert [len(c.tokens) for c in completions] == [r.sampling.max_new_tokens for r in requests]

    return run


def other_side(write_all: Callable[[], list[list[int]]], requests: Sequence[Request]) -> Callable[[], None]:
    """Likewise."""

    def run() -> None:
        assert [len(tokens) for tokens in write_all()] == [r.sampling.max_new_tokens for r in requests]

    return run


def same_greedy_text(engine: LocalEngine, model: Any, requests: Sequence[Request]) -> float:
    """Share of requests for which both sides write the same tokens greedily (float32 rounding may part a tie)."""
    greedy = [replace(r, sampling=replace(r.sampling, temperature=0.0)) for r in requests]
    ours = [list(c.tokens) for c in engine.generate(greedy)]
    theirs = generation(model, greedy, None, greedy=True)
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(requests)


def case(size: str, kind: str, batch: int, repeats: int, *, with_continuous: bool) -> dict[str, Any]:
    """One row of the table: every side's tokens a second, and ours as a multiple of each."""
    model = random_model(size)
    engine = LocalEngine(policy_of(model, tiny_tokenizer()))
    requests = workload(kind, batch, model.config.vocab_size)
    same = same_greedy_text(engine, model, requests[:: max(1, batch // 16)])
    assert same >= 0.9, f"only {same:.0%} of greedy responses agree"
    sides = {
        "whet": whet_side(engine, requests),
        "generate, dynamic cache": other_side(lambda: generation(model, requests, None), requests),
        "generate, static cache": other_side(lambda: generation(model, requests, "static"), requests),
    }
    if with_continuous:
        sides["continuous batching"] = other_side(lambda: continuous(model, requests), requests)
    seconds = timed(sides, repeats=repeats)
    tokens = sum(r.sampling.max_new_tokens for r in requests)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "size": size, "workload": kind, "batch": batch, "tokens": tokens, "same_greedy_text": same,
        "tokens_per_s": {name: spread([tokens / s for s in values]) for name, values in seconds.items()},
        "times_faster": {
            name: spread([theirs / ours for ours, theirs in zip(seconds["whet"], values, strict=True)])
            for name, values in seconds.items() if name != "whet"
        },
    }  # fmt: skip


def markdown(rows: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row["tokens_per_s"]))
    lines = [
        "# Rollouts: the local engine beside transformers",
        "",
        "Tokens a second (median), and in brackets how many times faster whet is (median, smallest to largest of the "
        "repeats, each repeat beside its own). *grouped*: 8 responses a prompt, long-tailed lengths (mean 40, at most "
        "256); *uniform*: 64 tokens each.",
        "",
        "| model | workload | batch | " + " | ".join(names) + " |",
        "|---" * (3 + len(names)) + "|",
    ]
    for row in rows:
        cells = []
        for name in names:
            found, times = row["tokens_per_s"].get(name), row["times_faster"].get(name)
            rate = f"{found['median']:,.0f}" if found else "–"
            cells.append(
                rate + (f" ({times['median']:.1f}, {times['min']:.1f} to {times['max']:.1f})" if times else "")
            )
        lines.append(
            f"| {row['parameters'] / 1e6:.1f} M | {row['workload']} | {row['batch']} | " + " | ".join(cells) + " |"
        )
    lines += ["", f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["0.4M", "1M", "5M"], choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--workloads", nargs="+", default=["grouped", "uniform"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--continuous",
        nargs="+",
        default=["1M"],
        choices=["none", *SHAPES],
        help="sizes that continuous batching is tried on",
    )
    parser.add_argument("--name", default="rollout", help="of the result files")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    where, rows = machine(), []
    for size in options.sizes:
        for kind in options.workloads:
            for batch in options.batches:
                rows.append(case(size, kind, batch, options.repeats, with_continuous=size in options.continuous))
                print(json.dumps(rows[-1]), flush=True)
    write(options.name, {"machine": where, "rows": rows}, markdown(rows, where))


if __name__ == "__main__":
    main()
