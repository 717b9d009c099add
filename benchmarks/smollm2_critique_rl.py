"""Does Critique-RL help a real pretrained model of 135 million weights? Three arms of equal steps, on one GPU.

    whet get smollm2 models/smollm2
    python benchmarks/smollm2_critique_rl.py --only tuning    # a rate, on a seed of its own
    python benchmarks/smollm2_critique_rl.py --only study     # runs or goes on, then writes the results
    python benchmarks/smollm2_critique_rl.py --only study --collect

Actor and critic are SmolLM2-135M-Instruct with the settings of `examples/smollm2_critic.yaml`, but for more rows a
step (`ON_A_CARD`). The warm start teaches both the layout; every arm begins from the same two. Measured beside the
arms: how many critiques can be read at the temperature of training, and what the oracle's critiques are worth to the
actor. The rate is that of `RATES` with the highest mean reward over the last steps of stage II alone. Each run uses one
thread; `--processes` run side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from study import arguments, cell, evaluated, lines_of, machine, minus, policies_of, rows_of, train, write
from whet.config.loading import merged
from whet.config.yaml_text import dump, read_file

SEEDS = (410, 411, 412)
"""The warm starts of 400 to 402 were looked at when the rate was tuned."""
TUNING_SEED = 7
RATES = (1e-5, 2e-5, 4e-5)
TUNED = {"steps": 12, "counted": 4}
"""Steps of each rate, and the last ones, whose rewards are compared."""
EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2_critic.yaml"
STAGE = {"prompts_per_step": 16, "group_size": 8}
STAGE_LEARNING = {"learning_rate": 2e-5, "minibatch_rows": 64, "token_budget": 8192}
ON_A_CARD: Mapping[str, Mapping[str, Any]] = {
    "actor": {"device": "cuda"},
    "critic": {"device": "cuda"},
    "warm_start": {"actor_steps": 40, "critic_steps": 80, "rows_per_step": 32,
                   "learning": {"minibatch_rows": 32, "token_budget": 8192}},
    "stage1": {**STAGE, "learning": STAGE_LEARNING},
    "stage2": {**STAGE, "learning": STAGE_LEARNING},
}  # fmt: skip
"""What differs from the example: four times the demonstrations, and 128 critiques a step in place of 48."""
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


def warm_start(root: Path, seed: int, extra: Sequence[str]) -> None:
    folder = root / f"seed{seed}" / "warm"
    train("critique_rl", [_part(folder, "warm"), *_shared(seed, extra), *NO_STAGES], folder)


def run_arm(root: Path, seed: int, name: str, extra: Sequence[str], settings: Sequence[str] = ()) -> None:
    """An arm, from the two policies of the seed's warm start. `oracle`: its critiques beside those two."""
    folder = root / f"seed{seed}"
    if name == "oracle":
        evaluated(folder / "warm", "oracle")
        return
    policies = policies_of(folder / "warm")
    given = [f"actor.path={policies / 'actor'}", f"critic.path={policies / 'critic_sft'}"]
    given += ["warm_start.actor_steps=0", "warm_start.critic_steps=0"]
    arm = name.split("_")[0]
    settings = [*_shared(seed, extra), *given, *ARMS[arm][1], *settings]
    train("critique_rl", [_part(folder / name, arm), *settings], folder / name)


def _shared(seed: int, extra: Sequence[str]) -> list[str]:
    return [f"seed={seed}", "num_threads=1", *extra]


def tune(root: Path, extra: Sequence[str], processes: int) -> dict[str, Any]:
    """Stage II alone at each rate, a few steps from one warm start: what its last steps gained, and could be read."""
    warm_start(root, TUNING_SEED, extra)
    names = {rate: f"stage2_{rate:g}" for rate in RATES}
    with ThreadPoolExecutor(processes) as pool:
        for job in [
            pool.submit(
                run_arm, root, TUNING_SEED, name, ["data.num_test=60", *extra],
                [f"stage2.num_steps={TUNED['steps']}", f"stage2.learning.learning_rate={rate}"],
            )
            for rate, name in names.items()
        ]:  # fmt: skip
            job.result()
    folder = root / f"seed{TUNING_SEED}"
    wanted = {"reward": "reward/mean", "acc_refine": "critique/acc_refine", "acc_dis": "critique/acc_dis"}
    wanted |= {"unreadable": "critique/unparsed", "kl": "kl/ref", "sampler": "kl/sampler"}
    wanted |= {"rollout_s": "time/rollout", "update_s": "time/update"}
    found: dict[str, Any] = {"warm": rows_of(folder / "warm"), "first": {}, "last": {}}
    for rate, name in names.items():
        steps = [line for line in lines_of(folder / name) if line["phase"] == "stage2" and "reward/mean" in line]
        ends = {"first": steps[:1], "last": steps[-TUNED["counted"] :]}
        for end, lines in ends.items():
            values = {key: [line[metric] for line in lines if line.get(metric) is not None]
                      for key, metric in wanted.items()}  # fmt: skip
            found[end][f"{rate:g}"] = {key: fmean(some) for key, some in values.items() if some}
    best = max(RATES, key=lambda rate: found["last"][f"{rate:g}"]["reward"])
    return {"seed": TUNING_SEED, **TUNED, "machine": machine(folder / "warm"), "chosen": best, **found}


def _part(folder: Path, run: str) -> str:
    """The example's settings that act in that run, as a file beside it: what would have no effect is refused."""
    unused = {"warm": ("stage1", "stage2"), "both": ("warm_start",)}.get(run, ("warm_start", "stage1"))
    settings = {key: value for key, value in merged(read_file(EXAMPLE), ON_A_CARD).items() if key not in unused}
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_suffix(".yaml")
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


def tuning_markdown(result: Mapping[str, Any]) -> str:
    columns = ("reward", "acc_refine", "acc_dis", "unreadable", "kl", "sampler", "rollout_s", "update_s")
    lines = [
        "# A rate for Critique-RL on SmolLM2-135M-Instruct",
        "",
        f"Seed {result['seed']}: stage II alone, {result['steps']} steps; means over the last {result['counted']}. "
        f"Chosen by reward: {result['chosen']:g}.",
        "",
        "| rate | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    ends = [("first step, ", result["first"]), ("", result["last"])]
    for title, end in ends:
        for rate, values in end.items():
            shown = " | ".join(f"{values[name]:.4g}" if name in values else "–" for name in columns)
            lines.append(f"| {title}{rate} | {shown} |")
    return "\n".join([*lines, "", f"Machine: {result['machine']}.", "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "smollm2_critique_rl", ("tuning", "study"), seeds=SEEDS, processes=2)
    if "tuning" in options.only:
        found = {"command": options.command, **tune(options.root / "tuning", options.settings, options.processes)}
        write(f"{options.name}_tuning", found, tuning_markdown(found))
    if "study" not in options.only:
        return
    if not options.collect:
        jobs = [(seed, name) for name in (*ARMS, "oracle") for seed in options.seeds]
        with ThreadPoolExecutor(options.processes) as pool:
            list(pool.map(lambda seed: warm_start(options.root, seed, options.settings), options.seeds))
            list(pool.map(lambda job: run_arm(options.root, *job, options.settings), jobs))
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
