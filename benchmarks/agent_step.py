"""One step of multi-turn RL (play, pay, credit, update) beside TRL's `GRPOTrainer` with an `environment_factory`.

    .venv/bin/uv pip install --python .venv/bin/python -c constraints.txt -e '.[benchmarks]'   # TRL
    .venv/bin/python benchmarks/agent_step.py

Both sides train the tiny agent by GRPO on the same items of a world of ours (`agent_world.py`): 16 items, 8 episodes
each, 10 turns of at most 64 tokens, one update over all of them, credit from the group's mean and deviation, mean over
the agent's tokens, no reference model, the same AdamW. What an agent reads and writes is the same on both sides, token
for token. That both did the same work is checked: turns, tokens, and how far the weights moved. Every turn is a step of
the environment, but for the few replies with two actions, which are answered without it.

Ours is the command line's own path (`whet.train`). TRL plays all episodes in lockstep, reads each anew from its
beginning at every turn, pads, and trains in micro-batches (`--micro-batch`), with either of its caches. Its loop plays
one reply more than it makes calls, so the last action is played by the reward function. A reply that was cut gets no
end mark there.

Each side runs in a process of its own, in turn. What was measured is kept under `--root`: a study that was stopped goes
on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_world import CALLS, CHAT, TURNS, Tools, Watched, data_of, items
from side_by_side import BUSY, machine, others_at_work, spread
from step import TRL, peak, weights
from study import policies_of, write
from whet.models.shipped import AGENTS

ITEMS, GROUP, WRITTEN = 16, 8, 64
AGENT = "tiny_agent_early"
RATE = 1e-6
SPACE = 4096
"""Tokens of an episode: the model's own limit, so that no side cuts one."""


def whet_side(steps: int) -> dict[str, Any]:
    """`whet.train`, as anybody runs it; its own times of a step, without the first."""
    import whet

    before, watched = peak(), Watched()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        whet.train(
            "agent_grpo", out=run, progress=watched, policy={"path": AGENT}, data=data_of(ITEMS * (steps + 1)),
            num_steps=steps + 1, prompts_per_step=ITEMS, group_size=GROUP, max_turns=TURNS, max_context=SPACE,
            sampling={"max_new_tokens": WRITTEN}, num_threads=torch.get_num_threads(),
            learning={"learning_rate": RATE, "final_share": 1.0, "minibatch_rows": ITEMS * GROUP},
            evaluation={"max_turns": 1}, validate_every=steps + 1, checkpoint_every=0, traces_per_step=0, probe_every=0,
        )  # fmt: skip
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        trained = AutoModelForCausalLM.from_pretrained(policies_of(run) / "policy")
    found = [line for line in lines if line["phase"] == "train" and line["step"] > 1]
    turns = [round(line["turns/mean"] * line["episodes/finished"]) for line in found]
    return {
        "seconds": [line["time/total"] for line in found], "play": [line["time/rollout"] for line in found],
        "cpu": [after - begun for begun, after in pairwise(watched.cpu)], "turns": turns,
        "tokens": [round(line["length/mean"] * count) for line, count in zip(found, turns, strict=True)],
        "reward": [line["reward/mean"] for line in found], "taught": [1 - line["group/no_signal"] for line in found],
        "memory": peak() - before, "peak": peak(), "moved": moved(trained),
    }  # fmt: skip


def trl_side(steps: int, micro_batch: int, **options: Any) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    before = peak()
    words = AutoTokenizer.from_pretrained(AGENTS[AGENT])
    words.chat_template, words.response_template = CHAT, CALLS
    model = AutoModelForCausalLM.from_pretrained(AGENTS[AGENT])
    times: list[float] = []
    cpu: list[float] = []
    roll_out: list[float] = []
    turns: list[int] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            times.append(time.perf_counter())
            cpu.append(time.process_time())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            times[-1] = time.perf_counter() - times[-1]
            cpu[-1] = time.process_time() - cpu[-1]

    class Timed(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            begun = time.perf_counter()
            found = super()._generate_and_score_completions(inputs)
            roll_out.append(time.perf_counter() - begun)
            return found

    def scored(completions: list[Any], environments: list[Tools], **row: Any) -> list[float]:
        written = [[each for each in messages if each["role"] == "assistant"] for messages in completions]
        turns.append(sum(map(len, written)))
        for messages, environment in zip(written, environments, strict=True):
            for call in messages[-1].get("tool_calls", []):
                environment.act(**call["function"]["arguments"])
        return [environment._paid for environment in environments]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, fp16=False, report_to=[], disable_tqdm=True,
            logging_strategy="steps", logging_steps=1, save_strategy="no", per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=ITEMS * GROUP // micro_batch, num_generations=GROUP,
            max_completion_length=SPACE, generation_kwargs={"max_new_tokens": WRITTEN}, max_steps=steps + 1,
            max_tool_calling_iterations=TURNS - 1, learning_rate=RATE, beta=0.0, num_iterations=1, temperature=1.0,
            loss_type="dapo", gradient_checkpointing=False, shuffle_dataset=False, lr_scheduler_type="constant",
            adam_beta2=0.95, weight_decay=0.0, max_grad_norm=1.0, **options,
        )  # fmt: skip
        rows = [{"prompt": [{"role": "user", "content": ""}], "item": item} for item in items(ITEMS * (steps + 1))]
        trainer = Timed(
            model=model, reward_funcs=scored, args=config, train_dataset=Dataset.from_list(rows),
            processing_class=words, callbacks=[Clock()], environment_factory=Tools,
        )  # fmt: skip
        trainer.train()
    logged = [line for line in trainer.state.log_history if "completions/mean_length" in line]
    return {
        "seconds": times[1:], "play": roll_out[1:], "cpu": cpu[1:], "turns": turns[1:],
        "tokens": [round(line["completions/mean_length"] * ITEMS * GROUP) for line in logged[1:]],
        "reward": [line["reward"] for line in logged[1:]],
        "taught": [1 - line["frac_reward_zero_std"] for line in logged[1:]],
        "memory": peak() - before, "peak": peak(), "moved": moved(trainer.model),
    }  # fmt: skip


def moved(trained: torch.nn.Module) -> float:
    """How far from where both began."""
    return float((weights(trained) - weights(AutoModelForCausalLM.from_pretrained(AGENTS[AGENT]))).norm())


def in_own_process(side: str, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A side's run, made or read, and the work of others right before it."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        others, part = others_at_work(), place.with_suffix(".part")
        given = ["--side", side, "--steps", options.steps, "--threads", options.threads,
                 "--micro-batch", options.micro_batch, "--out", part]  # fmt: skip
        subprocess.run([sys.executable, __file__, *map(str, given)], check=True)
        place.write_text(json.dumps(json.loads(part.read_text()) | {"others": others}))
        part.unlink()
    return json.loads(place.read_text())


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Every side `repeats` times in turn; a repeat's ratio is of sums over its steps."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for repeat in range(options.repeats):
        for side in options.sides:
            place = options.root / f"{side.replace(', ', '-').replace(' ', '-')}-{repeat}.json"
            found[side].append(in_own_process(side, place, options))
            print(side, found[side][-1], flush=True)
            same_work(found["whet"][-1], found[side][-1], side)
    return {side: summed(runs, found["whet"]) for side, runs in found.items()}


def same_work(ours: Mapping[str, Any], theirs: Mapping[str, Any], side: str) -> None:
    """Raises: AssertionError where a side did more or less than ours."""
    for what, allowed in (("turns", 0.01), ("tokens", 0.1), ("moved", 0.25)):
        one, other = (sum(run[what]) if what != "moved" else run[what] for run in (ours, theirs))
        assert abs(one / other - 1) < allowed, f"not the same work: {what} of whet {one}, of {side} {other}"


def summed(runs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of one side's repeats, beside ours."""
    steps = len(runs[0]["seconds"])

    def a_step(what: str) -> dict[str, float]:
        return spread([sum(run[what]) / steps for run in runs])

    def a_second(what: str, of: Sequence[Mapping[str, Any]] = runs, by: str = "seconds") -> list[float]:
        return [sum(run[what]) / sum(run[by]) for run in of]

    def beside(what: str) -> dict[str, float]:
        return spread([sum(run[what]) / sum(own[what]) for run, own in zip(runs, ours, strict=True)])

    tokens = zip(a_second("tokens", ours), a_second("tokens"), strict=True)
    return {
        "seconds_per_step": a_step("seconds"), "cpu_seconds_per_step": a_step("cpu"), "of_them_play": a_step("play"),
        "environment_steps_per_s": spread(a_second("turns")), "tokens_per_s": spread(a_second("tokens")),
        "environment_steps_per_cpu_s": spread(a_second("turns", by="cpu")),
        "tokens_per_cpu_s": spread(a_second("tokens", by="cpu")),
        "turns_per_step": a_step("turns"), "tokens_per_step": a_step("tokens"), "reward": a_step("reward"),
        "groups_taught": a_step("taught"), "weights_moved": spread([run["moved"] for run in runs]),
        "memory_mib": spread([run["memory"] / 2**20 for run in runs]),
        "peak_mib": spread([run["peak"] / 2**20 for run in runs]),
        "whet_is_faster_a_step": beside("seconds"), "whet_takes_less_cpu_a_step": beside("cpu"),
        "whet_is_faster_a_token": spread([own / theirs for own, theirs in tokens]),
        "others": max(run["others"] for run in runs),
    }  # fmt: skip


CLOCK = {
    "s a step": ("seconds_per_step", ".2f"), "of them play": ("of_them_play", ".2f"),
    "environment steps/s": ("environment_steps_per_s", ",.0f"), "tokens/s": ("tokens_per_s", ",.0f"),
    "whet is faster by, a step": ("whet_is_faster_a_step", ".1f"), "a token": ("whet_is_faster_a_token", ".1f"),
}  # fmt: skip
PROCESSOR = {
    "CPU s a step": ("cpu_seconds_per_step", ".1f"),
    "environment steps a CPU s": ("environment_steps_per_cpu_s", ",.0f"),
    "tokens a CPU s": ("tokens_per_cpu_s", ",.0f"), "whet takes less by": ("whet_takes_less_cpu_a_step", ".1f"),
    "memory, MiB": ("memory_mib", ",.0f"), "peak, MiB": ("peak_mib", ",.0f"),
}  # fmt: skip
WORK = {
    "turns a step": ("turns_per_step", ",.0f"), "tokens a step": ("tokens_per_step", ",.0f"),
    "mean reward": ("reward", ".3f"), "groups that teach": ("groups_taught", ".0%"),
    "weights moved": ("weights_moved", ".2e"),
}  # fmt: skip


def markdown(sides: Mapping[str, Any], options: argparse.Namespace, where: Mapping[str, Any]) -> str:
    told, columns = "", {**CLOCK, **PROCESSOR}
    others = max(found["others"] for found in sides.values())
    if others > BUSY:
        told = (f" **Other work was running ({others:.1f} of {where['num_cores']} cores before a process), so times on "
                "the clock are left out: they would compare what the others did.**")  # fmt: skip
        columns = PROCESSOR
    return "\n".join([
        "# A step of multi-turn RL: whet beside TRL's GRPOTrainer with `environment_factory`", "",
        f"The tiny agent on {ITEMS} items of TextCraft x {GROUP} episodes of {TURNS} turns, one update. Medians (and "
        f"ranges) over processes, {options.repeats} a side, in turn, each of {options.steps} timed steps after one "
        f"that is not. CPU: of all of a process's threads.{told} Memory: growth of the largest resident size from "
        "before the model is loaded, and that size itself.", "", *table(sides, columns), "", "The same work:", "",
        *table(sides, WORK), "", f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", "",
    ])  # fmt: skip


def table(sides: Mapping[str, Any], columns: Mapping[str, tuple[str, str]]) -> list[str]:
    def shown(found: Mapping[str, float], form: str) -> str:
        return f"{found['median']:{form}} ({found['min']:{form}} to {found['max']:{form}})"

    rows = [f"| {side} | {' | '.join(shown(found[name], form) for name, form in columns.values())} |"
            for side, found in sides.items()]  # fmt: skip
    return [f"| side | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one that is not")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--micro-batch", type=int, default=16, help="episodes of one of TRL's passes")
    parser.add_argument("--sides", nargs="+", default=["whet", *list(TRL)[:2]], choices=["whet", *TRL])
    parser.add_argument("--side", choices=["whet", *TRL], help="run only this side, in this process")
    parser.add_argument("--out", type=Path, help="with --side: where its numbers go")
    parser.add_argument("--root", type=Path, default=Path("runs/agent_step"), help="where each process's numbers are")
    parser.add_argument("--name", default="agent_step", help="of the result files")
    options = parser.parse_args()
    if options.side and not options.out:
        parser.error("--side needs --out, where its numbers go; for a look at one side: --sides")
    torch.set_num_threads(options.threads)
    if options.side:
        theirs = partial(trl_side, micro_batch=options.micro_batch, **TRL.get(options.side, {}))
        run = whet_side if options.side == "whet" else theirs
        options.out.write_text(json.dumps(run(options.steps)))
        return
    where = machine()
    sides = compare(options)
    write(options.name, {"machine": where, "sides": sides}, markdown(sides, options, where))


if __name__ == "__main__":
    main()
