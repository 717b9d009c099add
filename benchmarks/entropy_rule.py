"""Does the Entropy-Clip Rule (BAPO, arXiv:2510.18927, eq. 6) say what an update does to the tiny model's entropy?

    .venv/bin/python benchmarks/entropy_rule.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/entropy_rule.py --collect  # only reads what is there

Runs with one update a step, each of them measured: the mean entropy of the update's own tokens before and after it,
beside the rule's prediction from one sampled token a prefix. Adam, weight sharing between prefixes and a finite step
are in the measured change and not in the rule. The base rate is how often "it falls" would have been right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import correlation
from typing import Any

from study import arguments, machine, train, write
from whet.evaluation.critique import mean_interval

CASES = {
    "fresh, rate 1e-4": ("grpo", "learning.learning_rate=1e-4"),
    "fresh, rate 3e-4": ("grpo", "learning.learning_rate=3e-4"),
    "staleness 4, rate 1e-4": (
        "grpo", "learning.learning_rate=1e-4", "off_policy.kind=replay", "off_policy.staleness=4",
    ),
    "staleness 4, rate 3e-4": (
        "grpo", "learning.learning_rate=3e-4", "off_policy.kind=replay", "off_policy.staleness=4",
    ),
    "staleness 4, rate 3e-4, BAPO": (
        "bapo", "learning.learning_rate=3e-4", "off_policy.kind=replay", "off_policy.staleness=4",
    ),
}  # fmt: skip
COMMON = (
    "num_threads=1", "num_steps=60", "data.min_steps=5", "data.max_steps=6", "learning.minibatch_rows=128",
    "learning.num_epochs=1", "learning.final_share=1", "probe_every=1", "validate_every=60", "data.num_validation=64",
    "data.num_test=64", "evaluation.num_samples=0", "traces_per_step=0",
)  # fmt: skip


def folder_of(root: Path, seed: int, name: str) -> Path:
    return root / f"seed{seed}" / name.replace(", ", "-").replace(" ", "_")


def pairs(folder: Path) -> list[tuple[float, float]]:
    """Predicted and measured change of every update."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(r["entropy/predicted"], r["entropy/measured"]) for r in rows if "entropy/measured" in r]


def ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    for rank, index in enumerate(order):
        found[index] = float(rank)
    return found


def of_run(found: Sequence[tuple[float, float]]) -> dict[str, float]:
    """One run's numbers."""
    predicted, measured = zip(*found, strict=True)
    return {
        "agrees": sum(p * m > 0 for p, m in found) / len(found),
        "falls": sum(m < 0 for m in measured) / len(found),
        "predicted_falls": sum(p < 0 for p in predicted) / len(found),
        "rank_correlation": correlation(ranks(predicted), ranks(measured)),
        "updates": float(len(found)),
    }


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "# The Entropy-Clip Rule on the tiny model", "",
        f"Seeds {', '.join(map(str, result['seeds']))}; mean ± half width of a 95 % t interval over seeds, percent. ",
        "*sign agrees*: predicted and measured change have one sign; *falls*: measured, which is how often the guess "
        "'it falls' is right; *predicted to fall*; rank correlation of predicted and measured change over the updates "
        "of a run.", "",
        "| case | updates a run | sign agrees | falls | predicted to fall | rank correlation |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, row in result["cases"].items():
        shown = [row["mean"][key] for key in ("agrees", "falls", "predicted_falls")]
        cells = " | ".join(f"{100 * m:.0f} ± {100 * h:.0f}" for m, h in shown)
        mean, half = row["mean"]["rank_correlation"]
        lines.append(f"| {name} | {row['mean']['updates'][0]:.0f} | {cells} | {mean:.2f} ± {half:.2f} |")
    lines += ["", f"Command: `{result['command']}`. Settings: `{' '.join(COMMON)}`. Machine: "
              f"{json.dumps(result['machine'])}.", ""]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    options = arguments(__doc__, "entropy_rule")
    if not options.collect:
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(train, preset, [f"seed={seed}", *COMMON, *own, *options.settings],
                            folder_of(options.root, seed, name))
                for seed in options.seeds
                for name, (preset, *own) in CASES.items()
            ]  # fmt: skip
            for job in jobs:
                job.result()
    cases = {}
    for name in CASES:
        runs = [of_run(pairs(folder_of(options.root, seed, name))) for seed in options.seeds]
        values = {key: [run[key] for run in runs] for key in runs[0]}
        cases[name] = {"values": values, "mean": {key: mean_interval(found) for key, found in values.items()}}
    where = machine(folder_of(options.root, options.seeds[0], next(iter(CASES))))
    result = {"command": options.command, "machine": where, "seeds": options.seeds, "cases": cases}
    write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
