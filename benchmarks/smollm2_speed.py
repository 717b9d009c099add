"""SmolLM2-135M on one thread: each type of products, beside `transformers.generate`, llama.cpp, CTranslate2 and TRL.

    .venv/bin/whet get smollm2 models/smollm2
    .venv/bin/uv pip install --python .venv/bin/python -c constraints.txt -e '.[benchmarks]' xllamacpp ctranslate2
    .venv/bin/python benchmarks/smollm2_speed.py --model models/smollm2 --gguf models/smollm2.gguf

Every side does the same work in turn, `--repeats` times. CPU seconds are of the process with all its threads; a shared
machine stretches the clock beside them. *uniform*: different prompts of 32 tokens, and as many new tokens for each row.
*grouped*: eight replies to a prompt, long-tailed lengths. *step*: a GRPO step of 4 prompts x 4 replies of at most 24
tokens, each side in a process of its own; the first step of each is left out. Products in bfloat16 need amx_bf16 or
avx512_bf16: without them those sides are left out.
llama.cpp has its weights in 4 bits (Q4_1), as the package ships them, and is asked over HTTP in this process.
CTranslate2 has them in 8 bits, as its own converter makes them. Each is left out where its package is not installed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rollout import generation
from side_by_side import machine, spread
from study import write
from whet.config.parts import LearningConfig, ModelConfig
from whet.engines.local import LocalEngine
from whet.engines.products import BFLOAT16, instructions
from whet.models.policy import Policy, load_policies
from whet.objectives import clipped_policy_loss
from whet.trainer.learner import Learner
from whet.trainer.losses import corrected
from whet.trainer.terms import Term, Update, on_tokens
from whet.types import Request, Row, Sampling

PROMPT, NEW = 32, {1: 48, 16: 32, 64: 32}
"""Tokens of a prompt; new tokens of a row, by the number of rows."""
GROUP, MEAN, LONGEST = 8, 24, 96
PROMPTS, REPLIES, REPLY = 4, 4, 24
RATE = 1e-6
Timed = dict[str, list[float]]


def clocked(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds of this process, and seconds by the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def load(folder: Path) -> Policy:
    policy = load_policies({"policy": ModelConfig(path=str(folder), device="cpu")})["policy"]
    policy.stop_ids = frozenset()  # lengths are set beforehand
    return policy


def products() -> list[str]:
    has_bfloat16 = any(name in instructions() for name in BFLOAT16)
    return ["float32", *(["bfloat16"] if has_bfloat16 else [])]


def requests_of(lengths: Sequence[int], share: int = 1) -> list[Request]:
    """Requests of so many new tokens, `share` of them to each prompt."""
    rng = random.Random(0)
    contexts = [tuple(rng.randrange(100, 40_000) for _ in range(PROMPT)) for _ in range(-(-len(lengths) // share))]
    return [
        Request(context=contexts[i // share], sampling=Sampling(max_new_tokens=length), seed=i)
        for i, length in enumerate(lengths)
    ]


def long_tailed(count: int) -> list[int]:
    """Log-normal with sigma 1, scaled until the mean of what is left after the cut is `MEAN`."""
    rng = random.Random(1)
    draws = [rng.lognormvariate(0.0, 1.0) for _ in range(count)]
    scale = next(s / 10 for s in range(1, 10_000) if sum(min(LONGEST, d * s / 10) for d in draws) >= MEAN * count)
    return [min(LONGEST, max(1, round(draw * scale))) for draw in draws]


# --- generating -------------------------------------------------------------------------------------------------------


class LlamaCpp:
    """llama.cpp's server in this process, on one thread."""

    def __init__(self, path: Path, rows: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 256 * rows, rows, False, -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(params)
        self._threads = ThreadPoolExecutor(rows)

    def generate(self, requests: Sequence[Request]) -> list[int]:
        return list(self._threads.map(self._complete, requests))

    def _complete(self, request: Request) -> int:
        body = {
            "prompt": list(request.context), "n_predict": request.sampling.max_new_tokens, "temperature": 1.0,
            "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": request.seed, "ignore_eos": True, "cache_prompt": False,
        }  # fmt: skip
        address = f"{self._server.listening_address}/completion"
        asked = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=300) as answer:
            return int(json.load(answer)["tokens_predicted"])


class CTranslate2:
    """CTranslate2 in 8 bits, on one thread, from a folder that its converter wrote."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        import ctranslate2

        self._generator = ctranslate2.Generator(str(folder), compute_type="int8", inter_threads=1, intra_threads=1)
        self._tokenizer = policy.tokenizer

    def generate(self, requests: Sequence[Request]) -> Any:
        """Replies to requests of one length: it writes a batch until its last row ends."""
        prompts = [self._tokenizer.convert_ids_to_tokens(list(request.context)) for request in requests]
        (length,) = {request.sampling.max_new_tokens for request in requests}
        found = self._generator.generate_batch(
            prompts, max_length=length, min_length=length, sampling_topk=0, include_prompt_in_result=False
        )
        assert all(len(each.sequences_ids[0]) == length for each in found)
        return found


def converted(folder: Path, into: Path) -> Path | None:
    """A model in CTranslate2's format and 8 bits. None: the package is not installed."""
    try:
        from ctranslate2.converters import TransformersConverter
    except ImportError:
        return None
    return Path(TransformersConverter(str(folder)).convert(str(into / "ctranslate2"), quantization="int8"))


def sides_of(
    policy: Policy, kind: str, rows: int, gguf: Path | None, int8: Path | None
) -> dict[str, Callable[[Sequence[Request]], Any]]:
    """What generates, by its name."""
    kinds = [*products(), *(["int8"] if rows == 1 else [])]
    sides: dict[str, Callable[[Sequence[Request]], Any]] = {
        f"whet, {name}": LocalEngine(policy, products=name).generate for name in kinds
    }
    sides["generate"] = lambda requests: generation(policy.causal_lm, requests, None)
    if kind == "grouped":
        sides["generate, static cache"] = lambda requests: generation(policy.causal_lm, requests, "static")
    if gguf is not None and kind == "uniform" and rows <= 16:
        sides["llama.cpp, Q4_1"] = LlamaCpp(gguf, rows).generate
    if int8 is not None and kind == "uniform":
        sides["CTranslate2, int8"] = CTranslate2(int8, policy).generate
    return sides


def generating(
    policy: Policy, kind: str, rows: int, repeats: int, *, gguf: Path | None = None, int8: Path | None = None
) -> dict[str, Any]:
    """New tokens a CPU second of every side. Of uniform work, prefill is taken off, and given by itself."""
    lengths = long_tailed(rows) if kind == "grouped" else [NEW[rows]] * rows
    requests = requests_of(lengths, GROUP if kind == "grouped" else 1)
    first = requests_of([1] * rows)
    sides = sides_of(policy, kind, rows, gguf, int8)
    rates, walls, prefills = ({name: list[float]() for name in sides} for _ in range(3))
    for side in sides.values():
        side(first[:2])
    for _ in range(repeats):
        for name, side in sides.items():
            before = clocked(lambda side=side: side(first)) if kind == "uniform" else (0.0, 0.0)
            cpu, wall = clocked(lambda side=side: side(requests))
            num_tokens = sum(lengths) - (rows if kind == "uniform" else 0)
            rates[name].append(num_tokens / (cpu - before[0]))
            walls[name].append(num_tokens / (wall - before[1]))
            prefills[name].append(before[0])
        print(kind, rows, {name: round(values[-1], 1) for name, values in rates.items()}, flush=True)
    return {
        "kind": kind, "rows": rows, "new_tokens": sum(lengths),
        "per_cpu_s": {name: spread(values) for name, values in rates.items()},
        "per_s": {name: spread(values) for name, values in walls.items()},
        "prefill_cpu_s": {name: spread(values) for name, values in prefills.items()},
    }  # fmt: skip


# --- a step -----------------------------------------------------------------------------------------------------------


def reward(text: str) -> float:
    """The share of lower-case letters."""
    return sum(letter.islower() for letter in text) / max(1, len(text))


def texts(count: int) -> list[str]:
    return ["".join(random.Random(i).choice("abcdefgh ") for _ in range(64)) for i in range(count)]


def whet_step(folder: Path, steps: int, *, engine_in: str, update_in: str) -> dict[str, Any]:
    """Seconds and tokens of each step.

    Args:
        folder: of the model.
        steps: that count; one goes before them.
        engine_in: `engine.products`.
        update_in: `learning.products`.
    """
    policy = load(folder)
    policy.model.requires_grad_(True)
    engine = LocalEngine(policy, products=engine_in)
    learning = LearningConfig(learning_rate=RATE, final_share=1.0, minibatch_rows=PROMPTS * REPLIES, products=update_in)
    rule = Update((Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2)),), learning, num_updates=steps + 1)
    learner = Learner(policy, rule if engine_in == "float32" else corrected(rule))
    every = [tuple(policy.tokenizer.encode(text)) for text in texts(PROMPTS * (steps + 1))]
    found: dict[str, list[float]] = {"cpu": [], "wall": [], "rollout_cpu": [], "kl": [], "tokens": []}
    for step in range(steps + 1):
        cpu, wall = time.process_time(), time.perf_counter()
        contexts = [context for context in every[step * PROMPTS :][:PROMPTS] for _ in range(REPLIES)]
        sampling = Sampling(max_new_tokens=REPLY)
        completions = engine.generate(
            [Request(context=c, sampling=sampling, seed=step * 100 + i) for i, c in enumerate(contexts)]
        )
        found["rollout_cpu"].append(time.process_time() - cpu)
        groups = torch.tensor([reward(policy.tokenizer.decode(c.tokens)) for c in completions]).view(PROMPTS, REPLIES)
        credit = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        rows = [
            Row(
                policy="policy",
                tokens=context + done.tokens,
                trains=range(len(context), len(context) + len(done.tokens)),
                credit=[each] * len(done.tokens),
                logprobs=done.logprobs,
            )
            for context, done, each in zip(contexts, completions, credit.flatten().tolist(), strict=True)
        ]
        engine.rest()
        metrics = learner.update(rows, seed=step)
        engine.update_weights(policy.version, policy)
        found["cpu"].append(time.process_time() - cpu)
        found["wall"].append(time.perf_counter() - wall)
        found["tokens"].append(sum(len(done.tokens) for done in completions))
        found["kl"].append(metrics["kl/sampler"])
    return {name: values[1:] for name, values in found.items()} | {"gib": peak()}


def trl_step(folder: Path, steps: int, *, autocast: bool) -> dict[str, Any]:
    """As `whet_step`. With `autocast`, its passes multiply in bfloat16."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    found: dict[str, list[float]] = {"cpu": [], "wall": [], "tokens": []}

    def graded(completions: list[str], completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        found["tokens"].append(sum(map(len, completion_ids)))
        return [reward(text) for text in completions]

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.begun = time.process_time(), time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            found["cpu"].append(time.process_time() - self.begun[0])
            found["wall"].append(time.perf_counter() - self.begun[1])

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out, use_cpu=True, bf16=autocast, fp16=False, report_to=[], disable_tqdm=True,
            logging_strategy="no", save_strategy="no", per_device_train_batch_size=PROMPTS * REPLIES,
            num_generations=REPLIES, max_completion_length=REPLY, max_steps=steps + 1, learning_rate=RATE, beta=0.0,
            num_iterations=1, temperature=1.0, loss_type="dapo", gradient_checkpointing=False, shuffle_dataset=False,
            lr_scheduler_type="constant", adam_beta2=0.95, weight_decay=0.0, max_grad_norm=1.0,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model, reward_funcs=graded, args=config,
            train_dataset=Dataset.from_dict({"prompt": texts(PROMPTS * (steps + 1))}),
            processing_class=AutoTokenizer.from_pretrained(folder), callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    return {name: values[1:] for name, values in found.items()} | {"gib": peak()}


def peak() -> float:
    """Largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


STEPS: Mapping[str, Callable[[Path, int], dict[str, Any]]] = {
    "whet, float32": partial(whet_step, engine_in="float32", update_in="float32"),
    "whet, bfloat16 engine": partial(whet_step, engine_in="bfloat16", update_in="float32"),
    "whet, bfloat16 engine and update": partial(whet_step, engine_in="bfloat16", update_in="bfloat16"),
    "TRL, float32": partial(trl_step, autocast=False),
    "TRL, bfloat16 autocast": partial(trl_step, autocast=True),
}
"""The sides of a step, by name."""


def stepping(options: argparse.Namespace) -> dict[str, Any]:
    """Every side in a process of its own, in turn."""
    left_out = [*(["TRL"] if options.no_trl else []), *([] if "bfloat16" in products() else ["bfloat16"])]
    sides = [name for name in STEPS if not any(word in name for word in left_out)]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(options.repeats):
        for side in sides:
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                command = [sys.executable, __file__, "--model", options.model, "--steps", options.steps]
                subprocess.run([*map(str, command), "--side", side, "--out", file.name], check=True)
                runs[side].append(json.loads(Path(file.name).read_text()))
            print("step", side, runs[side][-1], flush=True)
    for side, each in runs.items():
        tokens = sum(sum(run["tokens"]) for run in each)
        assert tokens > 0.85 * REPLY * PROMPTS * REPLIES * options.steps * len(each), f"{side} wrote only {tokens}"
    numbers = ("cpu", "wall", "rollout_cpu", "kl")
    return {
        side: {
            **{name: spread([v for run in each for v in run[name]]) for name in numbers if name in each[0]},
            "gib": spread([run["gib"] for run in each]),
        }
        for side, each in runs.items()
    }


# --- the page ---------------------------------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        "# SmolLM2-135M on one thread", "",
        "New tokens a CPU second (of uniform work, without the prefill); in brackets the ratio to whet in float32. "
        f"Medians of {result['repeats']} turns. `{result['command']}`", "",
    ]  # fmt: skip
    for case in result["generating"]:
        base = case["per_cpu_s"]["whet, float32"]["median"]
        lines += [f"## {case['kind']}, {case['rows']} rows, {case['new_tokens']:,} new tokens", ""]
        lines += ["| side | tokens a CPU second | by the clock | prefill, CPU s |", "|---|---|---|---|"]
        for side, rate in case["per_cpu_s"].items():
            wall, prefill = (case[name][side]["median"] for name in ("per_s", "prefill_cpu_s"))
            shown = f"{prefill:.2f}" if prefill else "within"
            lines.append(f"| {side} | {rate['median']:.1f} ({rate['median'] / base:.2f}) | {wall:.1f} | {shown} |")
        lines.append("")
    if steps := result["step"]:
        lines += [f"## A GRPO step: {PROMPTS} prompts x {REPLIES} replies of at most {REPLY} tokens", ""]
        lines.append("| side | CPU s | by the clock | of it rollout, CPU s | GiB | kl/sampler |")
        lines.append("|---|---|---|---|---|---|")
        for side, numbers in steps.items():
            cells = [f"{numbers[name]['median']:.2f}" if name in numbers else "" for name in
                     ("cpu", "wall", "rollout_cpu", "gib")]  # fmt: skip
            gap = f"{numbers['kl']['median']:.1e}" if "kl" in numbers else ""
            lines.append(f"| {side} | {' | '.join(cells)} | {gap} |")
        lines.append("")
    lines += [f"Instructions: {', '.join(result['instructions'])}. "
              f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/smollm2"), help="that `whet get smollm2` wrote")
    parser.add_argument("--gguf", type=Path, help="the package's file, for llama.cpp; without it that side is left out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="*", default=list(NEW), choices=list(NEW))
    parser.add_argument("--no-grouped", action="store_true")
    parser.add_argument("--no-step", action="store_true")
    parser.add_argument("--no-trl", action="store_true")
    parser.add_argument("--name", default="smollm2_speed", help="of the result files")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.side:
        options.out.write_text(json.dumps(STEPS[options.side](options.model, options.steps)))
        return
    policy = load(options.model)
    with tempfile.TemporaryDirectory() as folder:
        int8 = converted(options.model, Path(folder))
        cases = [
            generating(policy, "uniform", rows, options.repeats, gguf=options.gguf, int8=int8) for rows in options.rows
        ]
    if not options.no_grouped:
        cases.append(generating(policy, "grouped", 64, options.repeats))
    result = {
        "command": " ".join(["python benchmarks/smollm2_speed.py", *sys.argv[1:]]), "repeats": options.repeats,
        "instructions": instructions(), "machine": machine(), "generating": cases,
        "step": {} if options.no_step else stepping(options),
    }  # fmt: skip
    write(options.name, result, text(result))


if __name__ == "__main__":
    main()
