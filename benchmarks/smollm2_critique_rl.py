"""Does Critique-RL help a real pretrained model of 135 million weights? Three arms of equal steps.

    whet get smollm2 models/smollm2
    .venv/bin/python benchmarks/smollm2_critique_rl.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/smollm2_critique_rl.py --collect  # only reads what is there

Actor and critic are SmolLM2-135M-Instruct with the settings of `examples/smollm2_critic.yaml`. The warm start teaches
both the layout; every arm begins from the same two. Measured before any arm: how many critiques can be read at the
temperature of training, and what the oracle's critiques are worth to the actor. Each run uses one thread, and two run
side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from study import arguments, cell, evaluated, machine, minus, policies_of, rows_of, train, write
from whet.config.yaml_text import dump, read_file

SEEDS = (400, 401, 402)
EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2_critic.yaml"
STEPS = 40
"""Of reinforcement learning in every arm."""
NO_STAGES = ("stage1.num_steps=0", "stage2.num_steps=0")
LONG = ("stage1.num_steps=0", f"stage2.num_steps={STEPS}")
ARMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "both": ("both stages", (f"stage1.num_steps={STEPS // 2}", f"stage2.num_steps={STEPS // 2}")),
    "stage2": ("stage II alone", LONG),
    "indirect": ("indirect only, r_refine", (*LONG, "stage2.discrimination=false", "stage2.indirect=refine")),
}
METRICS = ("acc", "acc_refine", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect")
TITLES = ("Acc", "Acc@Refine", "c->i", "i->c", "Acc@Dis", "on right", "on wrong")


def run_seed(root: Path, seed: int, extra: Sequence[str]) -> None:
    """The warm start, its oracle ceiling, and the arms that go on from it."""
    folder = root / f"seed{seed}"
    shared = [f"seed={seed}", "num_threads=1", *extra]
    train("critique_rl", [_part(root, "warm"), *shared, *NO_STAGES], folder / "warm")
    evaluated(folder / "warm", "oracle")
    policies = policies_of(folder / "warm")
    given = [f"actor.path={policies / 'actor'}", f"critic.path={policies / 'critic_sft'}"]
    given += ["warm_start.actor_steps=0", "warm_start.critic_steps=0"]
    for name, (_, settings) in ARMS.items():
        train("critique_rl", [_part(root, name), *shared, *given, *settings], folder / name)


def _part(root: Path, run: str) -> str:
    """The example's settings that act in that run, as a file: what would have no effect is refused."""
    unused = {"warm": ("stage1", "stage2"), "both": ("warm_start",)}.get(run, ("warm_start", "stage1"))
    settings = {key: value for key, value in read_file(EXAMPLE).items() if key not in unused}
    file = root / f"{run}.yaml"
    root.mkdir(parents=True, exist_ok=True)
    file.write_text(dump(settings))
    return str(file)


def readable_share(run: Path) -> float | None:
    """Of the critiques that the first step sampled, those whose verdict could be read."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shares = [row["critique/unparsed"] for row in rows if row.get("critique/unparsed") is not None]
    return 1 - shares[0] if shares else None


def collect(root: Path, seeds: Sequence[int]) -> dict[str, Any]:
    folders = [root / f"seed{seed}" for seed in seeds]
    values: dict[str, Any] = {}
    for name, run, row in (("no_critic", "warm", "no_critic"), ("sft", "warm", "sft_critic"),
                           *((arm, arm, "stage2") for arm in ARMS)):  # fmt: skip
        values[name] = {metric: [rows_of(each / run)[row].get(metric) for each in folders] for metric in METRICS}
    oracle = [evaluated(each / "warm", "oracle")["metrics"]["acc_refine"] for each in folders]
    readable = [readable_share(each / "both") for each in folders]
    return {"seeds": list(seeds), "machine": machine(folders[0] / "both"), "values": values, "oracle": oracle,
            "readable": readable}  # fmt: skip


def markdown(result: Mapping[str, Any]) -> str:
    titles = {"no_critic": "no critic", "sft": "warm-started critic", **{name: arm[0] for name, arm in ARMS.items()}}
    values = result["values"]
    lines = [
        "# Critique-RL on SmolLM2-135M-Instruct",
        "",
        f"Seeds {', '.join(map(str, result['seeds']))}; {STEPS} steps in every arm. In percent: mean ± half width of a "
        "95 % t interval over seeds. Before training, of the critiques sampled at the temperature of training "
        f"{cell(result['readable'])} could be read; the oracle's critiques lead to {cell(result['oracle'])}.",
        "",
        "| critic | " + " | ".join(TITLES) + " |",
        "|---" * (len(TITLES) + 1) + "|",
    ]
    for name, title in titles.items():
        lines.append(f"| {title} | " + " | ".join(cell(values[name][metric]) for metric in METRICS) + " |")
    lines += ["", "| question | metric | difference |", "|---|---|---|"]
    for left, right in (("both", "sft"), ("stage2", "sft"), ("indirect", "sft"), ("both", "stage2"),
                        ("both", "indirect")):  # fmt: skip
        for metric in ("acc_refine", "acc_dis"):
            difference = minus(values[left][metric], values[right][metric])
            lines.append(f"| {titles[left]} − {titles[right]} | {metric} | {cell(difference, sign=True)} |")
    return "\n".join([*lines, "", f"Machine: {result['machine']}.", "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "smollm2_critique_rl", seeds=SEEDS)
    if not options.collect:
        with ThreadPoolExecutor(2) as pool:
            for job in [pool.submit(run_seed, options.root, seed, options.settings) for seed in options.seeds]:
                job.result()
    whole = [
        seed
        for seed in options.seeds
        if all((options.root / f"seed{seed}" / run / "summary.json").exists() for run in ("warm", *ARMS))
    ]
    if whole:
        result = {"command": options.command, **collect(options.root, whole)}
        write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
