"""How far the engine and the trainer are from what this machine can do.

    .venv/bin/python benchmarks/limit.py

The ceiling is measured in the same run: float32 matrix products of the very shapes that a pass consists of, forward
and backward, with nothing between them; and the rates at which memory is copied and read. Prefill, decode and update
are then put beside it, and it is shown how the cost of a token grows with batch, length, vocabulary and model size.
Last comes a design that was weighed and left: a key/value memory in which a group's rows share their prompt's part.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from side_by_side import SHAPES, machine, policy_of, random_model
from study import write
from whet.config.parts import LearningConfig
from whet.engines.local import LocalEngine
from whet.engines.runners import attention_products
from whet.models.policy import Policy
from whet.models.scoring import micro_batches, token_logprobs
from whet.models.tiny import tiny_tokenizer
from whet.objectives import clipped_policy_loss
from whet.trainer.learner import Learner
from whet.trainer.terms import Term, Update, on_tokens
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
            trains=range(prompt, length),
            credit=[(-1.0) ** i] * response,
            logprobs=None,
        )
        for i in range(count)
    ]


def update(policy: Policy, rows: list[Row], token_budget: int) -> Callable[[], object]:
    """Forward, loss, backward and optimiser on these rows."""
    settings = LearningConfig(learning_rate=1e-6, minibatch_rows=len(rows), token_budget=token_budget)
    term = Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2), needs_old=False)
    learner = Learner(policy, Update((term,), settings, num_updates=100))
    return lambda: learner.update(rows, seed=0)


def shares(size: str, repeats: int) -> dict[str, Any]:
    """What prefill, decode and update reach of their products' ceilings."""
    model = random_model(size)
    policy = policy_of(model, tiny_tokenizer())
    engine = LocalEngine(policy)
    rows = rows_of(64, 48, 80, model.config.vocab_size)
    tokens = sum(len(row.tokens) for row in rows)
    texts = [tuple(row.tokens.tolist()) for row in rows]
    contexts = [Request(context=text, sampling=Sampling(max_new_tokens=1), seed=i) for i, text in enumerate(texts)]
    forward = ceiling(model, tokens, backward=False, repeats=repeats)
    whole = ceiling(model, tokens, backward=True, repeats=repeats)
    prefill_s = best(lambda: engine.generate(contexts), repeats)
    batch, prompt, response = 256, 48, 64
    step = ceiling(model, batch, backward=False, repeats=repeats)

    def generate(length: int) -> Callable[[], object]:
        sampling = Sampling(max_new_tokens=length)
        requests = [Request(context=texts[i % 64][:prompt], sampling=sampling, seed=i) for i in range(batch)]
        return lambda: engine.generate(requests)

    decode_s = (best(generate(response + 1), repeats) - best(generate(1), repeats)) / response
    attention_s, attention_bytes = attention_alone(model, batch, prompt + response // 2, repeats)
    model.requires_grad_(True)
    update_s = best(update(policy, rows, LearningConfig().token_budget), repeats)
    return {
        "size": size, "parameters": sum(p.numel() for p in model.parameters()), "tokens": tokens,
        "ceiling_gflops": {"forward": forward[0] / forward[1] / 1e9, "update": whole[0] / whole[1] / 1e9,
                           f"decode of {batch} rows": step[0] / step[1] / 1e9},
        "share": {"prefill": forward[1] / prefill_s, "update": whole[1] / update_s, "decode": step[1] / decode_s},
        "decode_ms": {"all": decode_s * 1e3, "products": step[1] * 1e3, "attention": attention_s * 1e3},
        "attention_bytes": attention_bytes,
    }  # fmt: skip


def attention_alone(model: Any, rows: int, length: int, repeats: int) -> tuple[float, int]:
    """Seconds of a decode step's attention over so many tokens a row, and the bytes of keys and values it reads."""
    config = model.config
    heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    layers = [torch.randn(2, rows * heads, length, size) for _ in range(config.num_hidden_layers)]
    queries = torch.randn(rows * heads, config.num_attention_heads // heads, size)
    bias = torch.zeros(rows * heads, 1, length)

    def run() -> None:
        for keys, values in layers:
            attention_products(queries, keys, values, bias)

    return best(run, repeats), sum(layer.nbytes for layer in layers)


def shared_prompt(prompt: int, response: int, repeats: int) -> dict[str, float]:
    """One layer's attention with each prompt's keys and values copied to every row, as the engine does, and with them
    stored once: queries are gathered by group for the prompt's part, and the two parts meet in one softmax."""
    rows, group, heads, size = 256, 8, 2, 40
    queries = torch.randn(rows * heads, 2, size)
    once = torch.randn(2, rows // group * heads, prompt, size)
    own = torch.randn(2, rows * heads, response, size)
    order = torch.randperm(rows)  # the engine's rows are in no order of groups
    back = order.argsort()
    prompts = once.unflatten(1, (-1, heads)).repeat_interleave(group, dim=1)[:, back].flatten(1, 2)
    copied = torch.cat((prompts, own), dim=2)
    bias = torch.zeros(rows * heads, 1, prompt + response)

    def by_group(x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(rows, -1).index_select(0, order).view(rows // group, group, heads, -1)
        return x.transpose(1, 2).reshape(rows // group * heads, group * 2, -1)

    def by_row(x: torch.Tensor) -> torch.Tensor:
        x = x.view(rows // group, heads, group, -1).transpose(1, 2).reshape(rows, -1)
        return x.index_select(0, back).view(rows * heads, 2, -1)

    def apart() -> torch.Tensor:
        first = by_row(torch.bmm(by_group(queries), once[0].mT))
        weights = (torch.cat((first, torch.bmm(queries, own[0].mT)), -1) * size**-0.5).softmax(-1)
        second = torch.bmm(weights[..., prompt:], own[1])
        return by_row(torch.bmm(by_group(weights[..., :prompt]), once[1])) + second

    def together() -> torch.Tensor:
        return attention_products(queries, copied[0], copied[1], bias)

    torch.testing.assert_close(apart(), together(), atol=1e-4, rtol=1e-4)
    together_s = best(together, repeats)
    return {"prompt": prompt, "response": response, "copied_us": together_s * 1e6,
            "stored_once_us": best(apart, repeats) * 1e6}  # fmt: skip


def rates(repeats: int) -> dict[str, float]:
    """Bytes a second of a copy of 256 MiB (read and written), and of reading as much."""
    source, target = torch.zeros(1 << 26), torch.empty(1 << 26)
    count = 4 * (1 << 26)
    return {
        "copy": 2 * count / best(lambda: target.copy_(source), repeats),
        "read": count / best(lambda: source.sum(), repeats),
    }


GROWTH = (
    "How the cost of a token grows. Where the table does not say otherwise: size 1M, 64 rows (16 for length and "
    "vocabulary) of 64 tokens, 32 of them prompt, vocabulary 512. Decode includes the prefill and counts "
    "written tokens, update counts all:"
)


def growth(repeats: int) -> dict[str, dict[str, dict[str, float]]]:
    """Microseconds a token, of decode and update, as one size grows and the others stay."""
    found: dict[str, dict[str, dict[str, float]]] = {"batch": {}, "length": {}, "vocabulary": {}, "model": {}}

    def measure(size: str = "1M", batch: int = 64, length: int = 64, vocabulary: int = 512) -> dict[str, float]:
        model = random_model(size, vocabulary=vocabulary)
        policy = policy_of(model, tiny_tokenizer())
        engine = LocalEngine(policy, max_rows=batch)
        rows = rows_of(batch, 32, length - 32, vocabulary)
        requests = [
            Request(context=tuple(row.tokens[:32].tolist()), sampling=Sampling(max_new_tokens=length - 32), seed=i)
            for i, row in enumerate(rows)
        ]
        count = batch * (length - 32)
        decode = best(lambda: engine.generate(requests), repeats) / count
        model.requires_grad_(True)
        return {
            "decode": decode * 1e6,
            "update": best(update(policy, rows, LearningConfig().token_budget), repeats) / (batch * length) * 1e6,
        }

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
    memory = found["bytes_per_s"]
    lines = [
        "# How far from the limit",
        "",
        f"Memory: {memory['copy'] / 1e9:.1f} GB/s copied (read and written), {memory['read'] / 1e9:.1f} GB/s read.",
        "",
        "Shares of the time that a pass takes which its matrix products alone take, in this run (attention's products "
        "not counted):",
        "",
        "| model | products: forward, update | prefill | update | decode, 256 rows |",
        "|---|---|---|---|---|",
    ]
    for row in found["shares"]:
        gflops, share = row["ceiling_gflops"], row["share"]
        lines.append(
            f"| {row['parameters'] / 1e6:.1f} M | {gflops['forward']:.0f}, {gflops['update']:.0f} GFLOP/s | "
            f"{share['prefill']:.0%} | {share['update']:.0%} | {share['decode']:.0%} |"
        )
    lines += [
        "",
        "A decode step of 256 rows with 80 tokens each, in ms. Attention reads every row's keys and values for one "
        "query or two: it is bound by memory.",
        "",
        "| model | step | products | attention alone | its reads at that rate | the rest: calls, norms, sampling |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["shares"]:
        ms = row["decode_ms"]
        reads = row["attention_bytes"] / memory["read"] * 1e3
        lines.append(
            f"| {row['parameters'] / 1e6:.1f} M | {ms['all']:.1f} | {ms['products']:.1f} | {ms['attention']:.1f} | "
            f"{reads:.1f} | {ms['all'] - ms['products'] - ms['attention']:.1f} |"
        )
    lines += ["", GROWTH, ""]
    for name, sizes in found["growth"].items():
        lines += [f"| {name} | decode, us a token | update, us a token |", "|---|---|---|"]
        lines += [f"| {size} | {cost['decode']:.0f} | {cost['update']:.0f} |" for size, cost in sizes.items()]
        lines.append("")
    mib = found["large_vocabulary_bytes"] / 2**20
    lines += [f"2048 tokens, vocabulary 151,936: {mib:,.0f} MiB above model and gradients.", ""]
    lines += [
        "Attention of one layer, 256 rows in groups of 8: a prompt's keys and values copied to each row (what the "
        "engine does), or stored once and attended to by group:",
        "",
        "| prompt | response so far | copied, us | stored once, us |",
        "|---|---|---|---|",
    ]
    for case in found["shared_prompts"]:
        lines.append(
            f"| {case['prompt']} | {case['response']} | {case['copied_us']:.0f} | {case['stored_once_us']:.0f} |"
        )
    lines += ["", f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", ""]
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
        "bytes_per_s": rates(options.repeats),
        "shares": [shares(size, options.repeats) for size in options.sizes],
        "growth": growth(options.repeats),
        "large_vocabulary_bytes": large,
        "shared_prompts": [
            shared_prompt(prompt, response, 4 * options.repeats)
            for prompt, response in ((48, 16), (48, 64), (128, 16), (128, 64), (300, 64))
        ],
    }
    write(options.name, found, markdown(found))


if __name__ == "__main__":
    main()
