"""Whet on one GPU: a model of Qwen2-0.5B's shape in bfloat16 is pretrained on the tiny world, then trained by RL.

    python benchmarks/gpu.py OUT                 # all parts; nobody has run all of them yet
    python benchmarks/gpu.py OUT --only pretrain grpo --shape tiny --device cpu   # the same code, rehearsed on a CPU

Parts, each in a process of its own: `pretrain` (the recipe of `whet tiny build`), `planned` (a dry run), `grpo`
(`--updates` steps), `ranks` (the same under torchrun, one rank with NCCL: the same bits?), `critique_rl` (in one rank,
half the steps a stage), `killed` (SIGKILL in the middle, then resumed), `generate` (tokens a second of the local engine
beside `transformers.generate`), `lora`, `again` (GRPO once more: the same bits?). All figures go to OUT/gpu.json, and
what each part printed to OUT/*.log. Models and runs lie in --work. The memory is what torch's tensors took
(`memory/gpu_gib`), and what nvidia-smi saw of the card.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

SHAPES = {
    # Qwen2-0.5B: hidden size, inner size, layers, heads, key/value heads, vocabulary.
    "qwen2_0.5b": (896, 4864, 24, 14, 2, 151_936),
    "tiny": (96, 256, 3, 4, 2, 512),
}
PARTS = ("pretrain", "planned", "grpo", "ranks", "critique_rl", "killed", "generate", "lora", "again")
PRETRAINING_S = 80
"""After so long pretraining ends, whatever its step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="of logs and gpu.json")
    parser.add_argument("--work", type=Path, default=Path("/tmp/whet_gpu"), help="of models and runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shape", choices=list(SHAPES), default="qwen2_0.5b")
    parser.add_argument("--steps", type=int, default=400, help="of pretraining")
    parser.add_argument("--updates", type=int, default=10, help="steps of each training by RL")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64, 256], help="of `generate`")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=600, help="seconds of each part")
    parser.add_argument("--inner", choices=("pretrain", "generate"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inner:
        {"pretrain": pretrain, "generate": generate}[chosen.inner](chosen)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"card": card(), "shape": chosen.shape, "command": " ".join(["python", *sys.argv])}
    for part in chosen.only:
        results[part] = run_part(part, chosen)
        (chosen.out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
        print(part, json.dumps(results[part]), flush=True)


def run_part(part: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """A part's figures, or how it failed. The others go on."""
    work: Path = chosen.work
    model = f"path={work / 'model'}"
    half = chosen.updates // 2
    common = ["num_threads=8", "data.num_test=64", "data.num_validation=64", f"validate_every={half}"]
    policy = [f"policy.{model}", "policy.dtype=bfloat16", f"policy.device={chosen.device}"]
    learning = ["prompts_per_step=32", "learning.learning_rate=1e-5"]
    grpo = ["grpo", *policy, *common, f"num_steps={chosen.updates}", *learning]
    roles = [
        setting
        for role in ("actor", "critic")
        for setting in (f"{role}.{model}", f"{role}.dtype=bfloat16", f"{role}.device={chosen.device}")
    ]
    stages = [
        f"stage{number}.{setting}"
        for number in (1, 2)
        for setting in (f"num_steps={half}", "learning.learning_rate=1e-5", f"validate_every={half}")
    ]
    critique = ["critique_rl", *roles, *common[:3], *stages, "warm_start.actor_steps=0", "warm_start.critic_steps=0"]
    inner = ["--work", str(work), "--shape", chosen.shape, "--steps", str(chosen.steps), "--device", chosen.device]
    this = [sys.executable, __file__, str(chosen.out), *inner, "--rows", *map(str, chosen.rows), "--inner", part]
    whet = [sys.executable, "-m", "whet.cli"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    ranks = [*torchrun, "-m", "whet.cluster"]
    lora = ["policy.lora.rank=16", "policy.gradient_checkpointing=true", "learning.learning_rate=1e-4"]
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "pretrain": lambda: started(this, part, chosen),
        "generate": lambda: started(this, part, chosen),
        "planned": lambda: started([*whet, "train", *grpo, "--dry-run"], "planned", chosen),
        "grpo": lambda: trained([*whet, "train", *grpo], "grpo", chosen),
        "again": lambda: compared(trained([*whet, "train", *grpo], "again", chosen), {"run": "grpo"}, work),
        "ranks": lambda: compared(trained([*ranks, "train", *grpo], "ranks", chosen), {"run": "grpo"}, work),
        "critique_rl": lambda: trained([*ranks, "train", *critique], "critique_rl", chosen),
        "lora": lambda: trained([*whet, "train", *grpo, *lora, "num_steps=4"], "lora", chosen),
        "killed": lambda: killed([*whet, "train", *grpo, "checkpoint_every=2"], [*whet, "resume"], chosen),
    }
    try:
        return runs[part]()
    except (subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


# --- processes --------------------------------------------------------------------------------------------------------


def started(command: Sequence[str], name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """A process to its end, with the most memory that the card had in use. Its last line may be JSON."""
    log = chosen.out / f"{name}.log"
    begun, peak, ended = time.monotonic(), [0.0], threading.Event()
    watch = threading.Thread(target=watch_memory, args=(peak, ended), daemon=True)
    watch.start()
    with log.open("w") as file:
        # In a group of its own: torchrun's ranks outlive a torchrun that is killed.
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = process.wait(chosen.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = "stopped at its limit"
    ended.set()
    watch.join()
    figures = {"code": code, "seconds": round(time.monotonic() - begun, 1), "card_gib": round(peak[0], 2)}
    last = (log.read_text().strip().splitlines() or [""])[-1]
    return figures | (json.loads(last) if last.startswith("{") and last.endswith("}") else {})


def watch_memory(peak: list[float], ended: threading.Event) -> None:
    while not ended.wait(0.25):
        peak[0] = max(peak[0], card().get("used_gib", 0.0))


def card() -> dict[str, Any]:
    """Name and memory of the first GPU. Empty: there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    name, used, total = (field.strip() for field in lines[0].split(","))
    return {"name": name, "used_gib": int(used) / 1024, "total_gib": int(total) / 1024}


def trained(command: Sequence[str], name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """A run's figures: each metric's values by step, the table, and the start's self-checks."""
    run = chosen.work / name
    shutil.rmtree(run, ignore_errors=True)
    return started([*command, "--out", str(run)], name, chosen) | {"run": name} | read(run)


def read(run: Path) -> dict[str, Any]:
    if not (run / "metrics.jsonl").exists():
        return {}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = ("reward/mean", "kl/sampler", "time/rollout", "time/update", "throughput/tokens_per_s", "memory/gpu_gib")
    names = [name for name in sorted({key for line in lines for key in line}) if name.endswith((*wanted, "delta"))]
    figures: dict[str, Any] = {
        name: [round(line[name], 6) for line in lines if isinstance(line.get(name), float)] for name in names
    }
    if (run / "summary.json").exists():
        figures["table"] = json.loads((run / "summary.json").read_text())["rows"]
    events = (run / "events.jsonl").read_text().splitlines() if (run / "events.jsonl").exists() else []
    figures["events"] = [line[:300] for line in events][:12]
    return figures


def compared(figures: dict[str, Any], other: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """With the steps at which two runs' metrics differ, times and memory aside. Empty: equal to the bit."""
    return figures | {"differ": differing(work / figures["run"], work / other["run"])}


def differing(first: Path, second: Path) -> dict[str, Any]:
    sides = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (first, second)]
    skipped = ("time/", "throughput/", "memory/", "cluster/", "time")
    found: dict[str, Any] = {}
    for number, (one, two) in enumerate(zip(*sides, strict=False), 1):
        for key in one.keys() | two.keys():
            if one.get(key) != two.get(key) and not key.startswith(skipped):
                found.setdefault(key, (number, one.get(key), two.get(key)))
    lengths = [len(side) for side in sides]
    return {"of_lines": lengths, "metrics": dict(sorted(found.items())[:8]), "count": len(found)}


def killed(train: Sequence[str], resume: Sequence[str], chosen: argparse.Namespace) -> dict[str, Any]:
    """SIGKILL in the middle, then resumed: do its metrics equal those of an unbroken run?"""
    run = chosen.work / "killed"
    shutil.rmtree(run, ignore_errors=True)
    with (chosen.out / "killed_first.log").open("w") as log:
        process = subprocess.Popen([*train, "--out", str(run)], stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + chosen.limit
        while process.poll() is None and time.monotonic() < deadline:
            metrics = run / "metrics.jsonl"
            if metrics.exists() and len(metrics.read_text().splitlines()) > 2 + chosen.updates // 2:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    figures = started([*resume, str(run)], "killed", chosen)
    return figures | {"run": "killed", "differ": differing(run, chosen.work / "grpo")}


# --- in a process of their own ----------------------------------------------------------------------------------------


def pretrain(chosen: argparse.Namespace) -> None:
    """The recipe of `whet tiny build`, at another shape and rate, in bfloat16 with float32 masters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from whet.config.parts import LearningConfig
    from whet.methods.warm_start import demonstration_row
    from whet.models.policy import Policy
    from whet.models.tiny import SPECIAL, tiny_tokenizer
    from whet.run.tiny_build import MAX_STEPS, MIN_STEPS, ROWS
    from whet.seeds import seed_of
    from whet.tasks.chains import sample_chains
    from whet.tasks.demonstrations import chain_demonstration
    from whet.tasks.prompts import CHAINS
    from whet.trainer.local import trainer_of
    from whet.trainer.losses import imitation
    from whet.trainer.process import gpu_memory, set_determinism

    set_determinism(8)
    torch.manual_seed(0)
    hidden, inner, layers, heads, kv_heads, vocabulary = SHAPES[chosen.shape]
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=4096,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=SPECIAL.index("<|end|>"),
        pad_token_id=SPECIAL.index("<|pad|>"),
    )  # fmt: skip
    tokenizer = tiny_tokenizer()
    model = Qwen2ForCausalLM(config).to(chosen.device, torch.bfloat16).eval()
    policy = Policy("actor", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))
    trainer = trainer_of(policy)
    learning = LearningConfig(
        learning_rate=3e-4 if chosen.shape != "tiny" else 4e-3, final_share=0.1, warmup_steps=40, weight_decay=0.01,
        minibatch_rows=sum(ROWS.values()), token_budget=16384,
    )  # fmt: skip
    trainer.begin(imitation(learning, chosen.steps))
    problems = sample_chains("train", 1, min_steps=MIN_STEPS, max_steps=MAX_STEPS)
    losses, seconds, tokens, memory = [], [], 0, 0.0
    profiler, started_at = profiled(chosen.steps > 60), time.perf_counter()
    for step in range(1, chosen.steps + 1):
        if step == 40 and profiler:
            profiler.start()
        if step == 43 and profiler:
            show(profiler, "three updates")
        rng = random.Random(seed_of(0, "gpu", step))
        kinds = [kind for kind, count in ROWS.items() for _ in range(count)]
        rows = [
            demonstration_row(chain_demonstration(kind, chain, CHAINS, rng), policy.name, tokenizer)
            for kind, chain in zip(kinds, islice(problems, len(kinds)), strict=True)
        ]
        begun = time.perf_counter()
        losses.append(trainer.update(rows, seed=step)["loss/nll"])
        seconds.append(time.perf_counter() - begun)
        tokens += sum(len(row.tokens) for row in rows)
        memory = max(memory, gpu_memory().get("memory/gpu_gib", 0.0))
        if time.perf_counter() - started_at > PRETRAINING_S:
            break
        if step % 20 == 1:
            print(step, round(losses[-1], 4), f"{seconds[-1]:.3f} s", flush=True)
    trainer.finish()
    policy.save(chosen.work / "model")
    tail = seconds[len(seconds) // 4 :]
    print(json.dumps({
        "weights": sum(p.numel() for p in model.parameters()), "nll": [round(losses[0], 3), round(losses[-1], 3)],
        "update_s": round(statistics.median(tail), 4), "tokens_a_step": tokens / len(losses), "steps": len(losses),
        "torch_gib": memory, "torch": torch.__version__,
    }))  # fmt: skip


def profiled(wanted: bool) -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) if wanted else None


def show(profiler: Any, what: str) -> None:
    """The costliest operations, on the processor and on the card."""
    profiler.stop()
    averages = profiler.key_averages()
    for order in ("self_cpu_time_total", "self_device_time_total"):
        print(f"--- {what}, by {order}")
        for event in sorted(averages, key=lambda event: -getattr(event, order))[:14]:
            print(f"{getattr(event, order) / 1e3:9.1f} ms {event.count:7d} x {event.key[:90]}", flush=True)


def generate(chosen: argparse.Namespace) -> None:
    """Tokens a second, different prompts of 48 tokens and 128 new ones, sampled at temperature 1; greedy ones alike?"""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    from whet.engines.local import LocalEngine
    from whet.models.policy import Policy
    from whet.models.tiny import tiny_tokenizer
    from whet.trainer.process import set_determinism
    from whet.types import Request, Sampling

    set_determinism(8)  # as a run does
    tokenizer = tiny_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(chosen.work / "model", dtype=torch.bfloat16).to(chosen.device).eval()
    policy = Policy("actor", model.requires_grad_(False), tokenizer, stop_ids=frozenset())
    rng, found = random.Random(0), {}
    for count in chosen.rows:
        prompts = [tuple(rng.randrange(5, len(tokenizer)) for _ in range(48)) for _ in range(count)]
        recorded, eager = (LocalEngine(policy, max_rows=count, graphs=graphs) for graphs in (True, False))

        def ours(
            prompts: Sequence[tuple[int, ...]] = prompts,
            engine: LocalEngine = recorded,
            temperature: float = 1.0,
            length: int = 128,
        ):
            sampling = Sampling(temperature=temperature, max_new_tokens=length)
            requests = [Request(context=prompt, sampling=sampling, seed=seed) for seed, prompt in enumerate(prompts)]
            return engine.generate(requests)

        def theirs(prompts: Sequence[tuple[int, ...]] = prompts, sample: bool = True):
            settings = GenerationConfig(
                do_sample=sample, top_k=0, max_new_tokens=128, min_new_tokens=128, pad_token_id=0, eos_token_id=None
            )
            return model.generate(torch.tensor(prompts, device=chosen.device), generation_config=settings)

        sides = {"whet": ours, "whet, no graphs": partial(ours, engine=eager), "generate": theirs}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for repeat in range(3):
            for name, side in sides.items():
                begun = time.perf_counter()
                side()
                if chosen.device != "cpu":
                    torch.cuda.synchronize()
                if repeat:
                    seconds[name].append(time.perf_counter() - begun)
        figures = {name: round(count * 128 / statistics.median(values), 1) for name, values in seconds.items()}
        tokens = [[done.tokens for done in ours(engine=engine)] for engine in (recorded, recorded, eager)]
        figures["again_equal"] = tokens[0] == tokens[1]
        figures["sampled_as_eager"] = share_alike(tokens[0], tokens[2])
        if chosen.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
            ours()
            figures["torch_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        greedy, other = ours(temperature=0.0), theirs(sample=False)[:, 48:].tolist()
        found[str(count)] = figures | {"greedy_equal": share_alike([done.tokens for done in greedy], other)}
        print(count, found[str(count)], flush=True)
    if profiler := profiled(chosen.device != "cpu"):
        profiler.start()
        ours(length=24)
        show(profiler, f"{count} rows of 24 tokens")
    print(json.dumps({"tokens_a_second": found}))


def share_alike(replies: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    """The share of places at which two lists of replies have the same token."""
    alike = [
        one == two for reply, other in zip(replies, others, strict=True) for one, two in zip(reply, other, strict=True)
    ]
    return round(sum(alike) / len(alike), 4)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
