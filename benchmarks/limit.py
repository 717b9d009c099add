"""How far the engine and the trainer are from what this machine can do.

    .venv/bin/python benchmarks/limit.py

The ceiling is measured in the same run: float32 matrix products of the very shapes that a pass consists of, forward
and backward, with nothing between them; and the rate of a large memory copy. Prefill, decode and update are then put
beside it, and it is shown how the cost of a token grows with batch, length, vocabulary and model size.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from side_by_side import SHAPES, machine, policy_of, random_model, write
from whet.config.parts import LearningConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.models.scoring import micro_batches, token_logprobs
from whet.models.tiny import tiny_tokenizer
from whet.objectives import clipped_policy_loss
from whet.training.learner import Learner, UpdateRule
from whet.types import Request, Row, Sampling


def best(run: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of `repeats` runs, after one that does not count."""
    run()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def products(model: Any, tokens: int) -> list[tuple[int, int, int]]:
    """The matrix products of a forward pass over so many tokens: (tokens, inputs, outputs) each."""
    config = model.config
    heads = config.hidden_size // config.num_attention_heads * config.num_key_value_heads
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = [(hidden, hidden), (hidden, heads), (hidden, heads), (hidden, hidden)]
    layer += [(hidden, inner), (hidden, inner), (inner, hidden)]
    every = layer * config.num_hidden_layers + [(hidden, config.vocab_size)]
    return [(tokens, inputs, outputs) for inputs, outputs in every]


def ceiling(model: Any, tokens: int, *, backward: bool, repeats: int) -> tuple[float, float]:
    """Floating-point operations of the products, and seconds that they take alone."""
    shapes = products(model, tokens)
    data = {s: (torch.randn(s[0], s[1]), torch.randn(s[2], s[1]), torch.randn(s[0], s[2])) for s in set(shapes)}

    def run() -> None:
        for shape in shapes:
            x, weight, gradient = data[shape]
            torch.mm(x, weight.T)
            if backward:
                torch.mm(gradient, weight)
                torch.mm(gradient.T, x)

    count = sum(2 * n * i * o for n, i, o in shapes) * (3 if backward else 1)
    return count, best(run, repeats)


def rows_of(count: int, prompt: int, response: int, vocabulary: int) -> list[Row]:
    torch.manual_seed(0)
    length = prompt + response
    return [
        Row(
            policy="random",
            tokens=tuple(torch.randint(5, vocabulary, (length,)).tolist()),
            loss_mask=(False,) * prompt + (True,) * response,
            credit=(0.0,) * prompt + ((-1.0) ** i,) * response,
            logprobs=None,
        )
        for i in range(count)
    ]


def update(policy: Policy, rows: list[Row], token_budget: int) -> Callable[[], object]:
    """Forward, loss, backward and optimiser on these rows."""
    settings = LearningConfig(learning_rate=1e-6, minibatch_rows=len(rows), token_budget=token_budget)
    loss = partial(clipped_policy_loss, clip_low=0.2, clip_high=0.2)
    learner = Learner(policy, UpdateRule(loss, "token_mean", settings, num_updates=100, needs_old=False))
    return lambda: learner.update(rows, seed=0)


def shares(size: str, repeats: int) -> dict[str, Any]:
    """What prefill, decode and update reach of their products' ceilings."""
    model = random_model(size)
    policy = policy_of(model, tiny_tokenizer())
    engine = LocalEngine(policy)
    rows = rows_of(64, 48, 80, model.config.vocab_size)
    tokens = sum(len(row.tokens) for row in rows)
    contexts = [Request(context=row.tokens, sampling=Sampling(max_new_tokens=1), seed=i) for i, row in enumerate(rows)]
    batch, response = 256, 64
    requests = [
        Request(context=rows[i % 64].tokens[:48], sampling=Sampling(max_new_tokens=response), seed=i)
        for i in range(batch)
    ]
    forward = ceiling(model, tokens, backward=False, repeats=repeats)
    whole = ceiling(model, tokens, backward=True, repeats=repeats)
    step = ceiling(model, batch, backward=False, repeats=repeats)
    prefill_s = best(lambda: engine.generate(contexts), repeats)
    decode_s = best(lambda: engine.generate(requests), repeats) / response
    model.requires_grad_(True)
    update_s = best(update(policy, rows, 1 << 20), repeats)
    heads, head_size = model.config.num_key_value_heads, model.config.hidden_size // model.config.num_attention_heads
    memory = 2 * 4 * model.config.num_hidden_layers * heads * head_size * batch * (48 + response // 2)
    return {
        "size": size, "parameters": sum(p.numel() for p in model.parameters()), "tokens": tokens,
        "ceiling_gflops": {"forward": forward[0] / forward[1] / 1e9, "update": whole[0] / whole[1] / 1e9,
                           f"decode of {batch} rows": step[0] / step[1] / 1e9},
        "share": {"prefill": forward[1] / prefill_s, "update": whole[1] / update_s, "decode": step[1] / decode_s},
        "decode_ms": decode_s * 1e3, "decode_products_ms": step[1] * 1e3, "decode_memory_bytes": memory,
    }  # fmt: skip


def copy_rate(repeats: int) -> float:
    """Bytes a second read and written by a copy of 256 MiB."""
    source, target = torch.zeros(1 << 26), torch.empty(1 << 26)
    return 2 * 4 * (1 << 26) / best(lambda: target.copy_(source), repeats)


def growth(repeats: int) -> dict[str, dict[str, dict[str, float]]]:
    """Microseconds a token, of decode and update, as one size grows and the others stay."""
    found: dict[str, dict[str, dict[str, float]]] = {"batch": {}, "length": {}, "vocabulary": {}, "model": {}}

    def measure(size: str = "1M", batch: int = 64, length: int = 64, vocabulary: int = 512) -> dict[str, float]:
        model = random_model(size, vocabulary=vocabulary)
        policy = policy_of(model, tiny_tokenizer())
        engine = LocalEngine(policy, max_rows=batch)
        rows = rows_of(batch, 32, length - 32, vocabulary)
        requests = [
            Request(context=row.tokens[:32], sampling=Sampling(max_new_tokens=length - 32), seed=i)
            for i, row in enumerate(rows)
        ]
        count = batch * (length - 32)
        decode = best(lambda: engine.generate(requests), repeats) / count
        model.requires_grad_(True)
        return {"decode": decode * 1e6, "update": best(update(policy, rows, 8192), repeats) / (batch * length) * 1e6}

    for batch in (16, 64, 256):
        found["batch"][str(batch)] = measure(batch=batch)
    for length in (64, 256, 1024):
        found["length"][str(length)] = measure(length=length, batch=16)
    for vocabulary in (512, 8192, 32768, 151936):
        found["vocabulary"][str(vocabulary)] = measure(vocabulary=vocabulary, batch=16)
    for size in SHAPES:
        found["model"][size] = measure(size=size)
    return found


def peak_of_a_large_vocabulary(queue: Any) -> None:
    """Largest resident memory above the model of logprobs and gradient on 2048 tokens of 151,936 kinds."""
    model = random_model("0.4M", vocabulary=151936).requires_grad_(True)
    policy = policy_of(model, tiny_tokenizer())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # embedding and head have to have one
    [batch] = micro_batches(policy, rows_of(16, 32, 128 - 32, 151936), 2048)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    logprobs, _ = token_logprobs(policy, batch, entropy=True)
    logprobs.sum().backward()
    queue.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


def markdown(found: dict[str, Any]) -> str:
    where = found["machine"]
    lines = ["# How far from the limit", "", f"A copy of 256 MiB moves {found['copy_bytes_per_s'] / 1e9:.1f} GB/s.", ""]
    lines += ["| model | products: forward, update | prefill | update | decode, 256 rows | decode step, its products |"]
    lines += ["|---" * 6 + "|"]
    for row in found["shares"]:
        gflops = list(row["ceiling_gflops"].values())
        share = row["share"]
        lines.append(
            f"| {row['parameters'] / 1e6:.1f} M | {gflops[0]:.0f}, {gflops[1]:.0f} GFLOP/s | {share['prefill']:.0%} | "
            f"{share['update']:.0%} | {share['decode']:.0%} | {row['decode_ms']:.1f} ms, "
            f"{row['decode_products_ms']:.1f} ms |"
        )
    lines += ["", "Shares of the time that the pass's matrix products take alone.", ""]
    for name, sizes in found["growth"].items():
        lines += [f"| {name} | decode, us a token | update, us a token |", "|---|---|---|"]
        lines += [f"| {size} | {cost['decode']:.0f} | {cost['update']:.0f} |" for size, cost in sizes.items()]
        lines.append("")
    mib = found["large_vocabulary_bytes"] / 2**20
    lines += [f"2048 tokens, vocabulary 151,936: {mib:,.0f} MiB above model and gradients.", ""]
    lines += [f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["0.4M", "1M", "5M"], choices=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--name", default="limit", help="of the result files")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=peak_of_a_large_vocabulary, args=(queue,))
    child.start()
    large = queue.get()
    child.join()
    found = {
        "machine": machine(),
        "copy_bytes_per_s": copy_rate(options.repeats),
        "shares": [shares(size, options.repeats) for size in options.sizes],
        "growth": growth(options.repeats),
        "large_vocabulary_bytes": large,
    }
    write(options.name, found, markdown(found))


if __name__ == "__main__":
    main()
