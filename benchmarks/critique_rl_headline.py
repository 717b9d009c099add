"""What does `make train` gain? Its very settings, with ten fresh seeds, beside the seed that `make train` has.

    .venv/bin/python benchmarks/critique_rl_headline.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/critique_rl_headline.py --collect  # only reads what is there

The seeds were fixed before any was looked at. Seed 0 is the one of `make train`: the defaults were developed on it, so
it counts in no mean, and its rank among the others is told. A seed takes four minutes of one thread, and two run side
by side. A run that was killed goes on from its last checkpoint, and a finished one is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from study import arguments, cell, machine, minus, rows_of, train, write

SEEDS = tuple(range(410, 420))
DEMO = 0
"""The seed of `make train`."""
ROWS = {"sft": "sft_critic", "stage1": "stage1", "full": "stage2"}
TITLES = {"sft": "SFT critic", "stage1": "Stage I", "full": "Stage II"}
METRICS = ("acc", "acc_refine", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "unparsed")
LEADS = (
    ("full", "acc_refine", "full", "acc", "refinements over answers"),
    ("full", "acc_refine", "sft", "acc_refine", "both stages over the SFT critic, Acc@Refine"),
    ("full", "acc_refine", "stage1", "acc_refine", "stage II over stage I, Acc@Refine"),
    ("stage1", "acc_dis", "sft", "acc_dis", "stage I over the SFT critic, Acc@Dis"),
    ("full", "acc_dis", "stage1", "acc_dis", "stage II over stage I, Acc@Dis"),
)


def run_all(root: Path, seeds: Sequence[int], extra: Sequence[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(train, "critique_rl", [f"seed={seed}", "num_threads=1", *extra], root / f"seed{seed}")
            for seed in seeds
        ]
        for job in jobs:
            job.result()


def collect(root: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Each row's metrics as shares, one value a seed, and the demo's own."""
    tables = {seed: rows_of(root / f"seed{seed}") for seed in (*seeds, DEMO)}
    final = {seed: table["stage2"]["acc_refine"] for seed, table in tables.items()}
    return {
        "seeds": list(seeds),
        "machine": machine(root / f"seed{seeds[0]}"),
        "values": {
            name: {metric: [tables[seed][row].get(metric) for seed in seeds] for metric in METRICS}
            for name, row in ROWS.items()
        },
        "demo": {
            "seed": DEMO,
            "acc_refine": final[DEMO],
            "rank": 1 + sum((final[seed] or 0) > (final[DEMO] or 0) for seed in seeds),
            "of": len(seeds) + 1,
        },
    }


def markdown(result: Mapping[str, Any]) -> str:
    """The mean table, what was gained, and where the demo's seed lies."""
    values, demo = result["values"], result["demo"]
    lines = ["# `make train` with ten fresh seeds", ""]
    lines += [
        f"In percent: mean ± half width of a 95 % t interval over seeds {', '.join(map(str, result['seeds']))}. "
        "The defaults of `whet train critique_rl` on the tiny world, in one thread.",
        "",
        "| critic | " + " | ".join(METRICS) + " |",
        "|---" * (len(METRICS) + 1) + "|",
    ]
    for name, title in TITLES.items():
        lines.append(f"| {title} | " + " | ".join(cell(values[name][metric]) for metric in METRICS) + " |")
    lines += ["", "| lead, paired by seed | points | by seed |", "|---|---|---|"]
    for left, metric, right, against, title in LEADS:
        lead = minus(values[left][metric], values[right][against])
        by_seed = ", ".join("–" if value is None else f"{100 * value:+.1f}" for value in lead)
        lines.append(f"| {title} | {cell(lead, sign=True)} | {by_seed} |")
    lines += [
        "",
        f"Seed {demo['seed']}, which `make train` has, ends at an Acc@Refine of {100 * demo['acc_refine']:.1f}: rank "
        f"{demo['rank']} of {demo['of']}.",
        "",
        f"Machine: {result['machine']}.",
        "",
        f"Command: `{result['command']}`.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    options = arguments(__doc__, "critique_rl_headline", seeds=SEEDS)
    if not options.collect:
        run_all(options.root, [DEMO, *options.seeds], options.settings)
    whole = [seed for seed in options.seeds if (options.root / f"seed{seed}" / "summary.json").exists()]
    if not whole:
        raise SystemExit(f"no seed has finished in {options.root}: run without --collect")
    result = {"command": options.command, **collect(options.root, whole)}
    write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
