"""One whole reinforcement-learning step (sample, grade, credit, update) beside TRL's `GRPOTrainer`.

    .venv/bin/uv pip install --python .venv/bin/python -c constraints.txt -e '.[benchmarks]'   # TRL
    .venv/bin/python benchmarks/step.py

Both sides train the same randomly initialised model with GRPO: 32 prompts of 64 tokens, 8 responses each, one
update over all of them, credit from the group's mean and deviation, mean over tokens, no reference model, the same
AdamW. The vocabulary has 40 tokens, one of which ends a response, so lengths are geometric (mean 40, cut at 256):
long-tailed, as in practice. Each side runs in a process of its own, in turn. TRL samples everything at once and trains
in micro-batches (`--micro-batch`: of 32, 64 and 256 the smallest was as fast as any and took the least memory), with
either of its caches. Its continuous batching can be asked for (`--sides`); on a CPU it is three times slower. That both
did the same work is checked by the tokens sampled and by how far the weights moved.
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
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from side_by_side import SHAPES, machine, random_model, spread
from study import write

PROMPTS, GROUP, PROMPT, LONGEST = 32, 8, 64, 256
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-"
RATE = 1e-6


def tokenizer() -> PreTrainedTokenizerFast:
    """A token a letter; with padding and end token, 40."""
    vocabulary = {piece: i for i, piece in enumerate(["<pad>", "<end>", *LETTERS])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<end>")


def prompts(count: int) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choice(LETTERS) for _ in range(PROMPT)) for _ in range(count)]


def reward(text: str) -> float:
    """The share of letters before n."""
    return sum(letter < "n" for letter in text) / max(1, len(text))


def whet_side(size: str, steps: int) -> dict[str, Any]:
    from whet.config.parts import LearningConfig
    from whet.engines.local import LocalEngine
    from whet.models.policy import Policy
    from whet.objectives import clipped_policy_loss
    from whet.trainer.learner import Learner
    from whet.trainer.terms import Term, Update, on_tokens
    from whet.types import Request, Row, Sampling

    words = tokenizer()
    model = random_model(size, vocabulary=len(words)).requires_grad_(True)
    policy = Policy("policy", model, words, stop_ids=frozenset({words.eos_token_id}))
    engine = LocalEngine(policy)
    start_weights = weights(model)
    learning = LearningConfig(learning_rate=RATE, final_share=1.0, minibatch_rows=PROMPTS * GROUP)
    term = Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2))
    learner = Learner(policy, Update((term,), learning, num_updates=steps + 1))
    every = [tuple(words.encode(text)) for text in prompts(PROMPTS * (steps + 1))]
    before, seconds, tokens = peak(), [], []
    for step in range(steps + 1):
        start = time.perf_counter()
        contexts = [context for context in every[step * PROMPTS :][:PROMPTS] for _ in range(GROUP)]
        sampling = Sampling(temperature=1.0, max_new_tokens=LONGEST)
        completions = engine.generate(
            [Request(context=c, sampling=sampling, seed=step * 1000 + i) for i, c in enumerate(contexts)]
        )
        rewards = torch.tensor([reward(words.decode(c.tokens, skip_special_tokens=True)) for c in completions])
        groups = rewards.view(PROMPTS, GROUP)
        credit = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        rows = [
            Row(
                policy="policy",
                tokens=context + completion.tokens,
                trains=range(PROMPT, PROMPT + len(completion.tokens)),
                credit=[each] * len(completion.tokens),
                logprobs=completion.logprobs,
            )
            for context, completion, each in zip(contexts, completions, credit.flatten().tolist(), strict=True)
        ]
        learner.update(rows, seed=step)
        seconds.append(time.perf_counter() - start)
        tokens.append(sum(len(c.tokens) for c in completions))
    moved = float((weights(model) - start_weights).norm())
    return {"seconds": seconds[1:], "tokens": tokens[1:], "memory": peak() - before, "moved": moved}


def trl_side(size: str, steps: int, micro_batch: int, **options: Any) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    words = tokenizer()
    model = random_model(size, vocabulary=len(words)).requires_grad_(True)
    model.generation_config.eos_token_id = model.config.eos_token_id = words.eos_token_id
    start_weights = weights(model)
    times, tokens = [], []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            times.append(time.perf_counter())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            times[-1] = time.perf_counter() - times[-1]

    def graded(completions: list[str], completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        tokens.append(sum(map(len, completion_ids)))
        return [reward(text) for text in completions]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, fp16=False, report_to=[], disable_tqdm=True,
            logging_strategy="no", save_strategy="no", per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=PROMPTS * GROUP // micro_batch, num_generations=GROUP,
            max_completion_length=LONGEST, max_steps=steps + 1,
            learning_rate=RATE, beta=0.0, num_iterations=1, temperature=1.0, loss_type="dapo",
            gradient_checkpointing=False, shuffle_dataset=False, lr_scheduler_type="constant", adam_beta2=0.95,
            weight_decay=0.0, max_grad_norm=1.0, **options,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": prompts(PROMPTS * (steps + 1))})
        trainer = GRPOTrainer(model=model, reward_funcs=graded, args=config, train_dataset=data,
                              processing_class=words, callbacks=[Clock()])  # fmt: skip
        before = peak()
        trainer.train()
    moved = float((weights(model) - start_weights).norm())
    return {"seconds": times[1:], "tokens": tokens[1:], "memory": peak() - before, "moved": moved}


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def peak() -> int:
    """Largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


TRL: dict[str, dict[str, Any]] = {
    "trl, dynamic cache": {},
    "trl, static cache": {"cache_implementation": "static"},
    "trl, continuous batching": {"use_transformers_continuous_batching": True},
}


def in_own_process(side: str, size: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        given = ["--side", side, "--sizes", size, "--steps", options.steps, "--threads", options.threads,
                 "--micro-batch", options.micro_batch, "--out", file.name]  # fmt: skip
        subprocess.run([sys.executable, __file__, *map(str, given)], check=True)
        return json.loads(Path(file.name).read_text())


def compare(size: str, options: argparse.Namespace) -> dict[str, Any]:
    """Every side `repeats` times in turn; a repeat's ratio is of sums over its steps."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for _ in range(options.repeats):
        for side in options.sides:
            found[side].append(in_own_process(side, size, options))
            print(size, side, found[side][-1], flush=True)
    for side, runs in found.items():
        for theirs, ours in zip(runs, found["whet"], strict=True):
            for what, allowed in (("tokens", 0.15), ("moved", 0.25)):
                one, other = (sum(run[what]) if what == "tokens" else run[what] for run in (ours, theirs))
                assert abs(one / other - 1) < allowed, f"not the same work: {what} of whet {one}, of {side} {other}"
    rate = {side: [sum(r["tokens"]) / sum(r["seconds"]) for r in runs] for side, runs in found.items()}
    step = {side: [sum(r["seconds"]) / len(r["seconds"]) for r in runs] for side, runs in found.items()}
    return {
        "size": size,
        "parameters": sum(p.numel() for p in random_model(size, vocabulary=len(tokenizer())).parameters()),
        "tokens_per_step": {
            side: sum(sum(run["tokens"]) for run in runs) / options.repeats / options.steps
            for side, runs in found.items()
        },
        "tokens_per_s": {side: spread(values) for side, values in rate.items()},
        "seconds_per_step": {side: spread(values) for side, values in step.items()},
        "weights_moved": {side: spread([run["moved"] for run in runs]) for side, runs in found.items()},
        "memory_mib": {side: spread([r["memory"] / 2**20 for r in runs]) for side, runs in found.items()},
        "times_faster": {
            side: spread([ours / theirs for ours, theirs in zip(rate["whet"], rate[side], strict=True)])
            for side in found if side != "whet"
        },
    }  # fmt: skip


def markdown(rows: list[dict[str, Any]], where: dict[str, Any]) -> str:
    lines = [
        "# One RL step: whet beside TRL's GRPOTrainer",
        "",
        "Medians over repeats. Memory: growth of the largest resident size from the model being loaded to the end.",
        "",
        "| model | side | tokens a step | s a step | tokens/s | whet is faster by, a token | a step | memory, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for side in row["tokens_per_s"]:
            times = row["times_faster"].get(side)
            steps = row["seconds_per_step"][side]["median"] / row["seconds_per_step"]["whet"]["median"]
            lines.append(
                f"| {row['parameters'] / 1e6:.1f} M | {side} | {row['tokens_per_step'][side]:,.0f} | "
                f"{row['seconds_per_step'][side]['median']:.2f} | {row['tokens_per_s'][side]['median']:,.0f} | "
                + (
                    f"{times['median']:.1f} ({times['min']:.1f} to {times['max']:.1f}) | {steps:.1f}"
                    if times
                    else "– | –"
                )
                + f" | {row['memory_mib'][side]['median']:,.0f} |"
            )
    lines += ["", f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["0.4M", "1M"], choices=list(SHAPES))
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one that is not")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--micro-batch", type=int, default=32, help="rows of one of TRL's passes")
    parser.add_argument("--sides", nargs="+", default=["whet", *list(TRL)[:2]], choices=["whet", *TRL])
    parser.add_argument("--side", choices=["whet", *TRL], help="run only this side, in this process")
    parser.add_argument("--out", type=Path, help="with --side: where its numbers go")
    parser.add_argument("--name", default="step", help="of the result files")
    options = parser.parse_args()
    if options.side and not options.out:
        parser.error("--side needs --out, where its numbers go; for a look at one side: --sides")
    torch.set_num_threads(options.threads)
    if options.side:
        size, side = options.sizes[0], options.side
        run = whet_side if side == "whet" else partial(trl_side, micro_batch=options.micro_batch, **TRL[side])
        options.out.write_text(json.dumps(run(size, options.steps)))
        return
    where = machine()
    rows = [compare(size, options) for size in options.sizes]
    write(options.name, {"machine": where, "rows": rows}, markdown(rows, where))


if __name__ == "__main__":
    main()
