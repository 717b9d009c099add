"""Does the Entropy-Clip Rule (BAPO, arXiv:2510.18927, eq. 6) say what an update does to the tiny model's entropy?

    .venv/bin/python benchmarks/entropy_rule.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/entropy_rule.py --collect  # only reads what is there

Runs with one update a step, each of them measured: the mean entropy of the update's own tokens before and after it,
beside the rule's prediction from one sampled token a prefix. Adam, weight sharing between prefixes and a finite step
are in the measured change and not in the rule. The base rate is how often "it falls" would have been right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import correlation
from typing import Any

from side_by_side import machine, write
from whet.evals.critique import mean_interval

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


def run_one(root: Path, seed: int, name: str) -> None:
    """Train one case with one seed, or go on with it."""
    preset, *settings = CASES[name]
    out = root / f"seed{seed}" / name.replace(", ", "-").replace(" ", "_")
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).with_name("whet")), "train", preset, f"seed={seed}", *COMMON, *settings]
    with out.with_suffix(".log").open("a") as file:
        subprocess.run(
            [*command, "--out", str(out)], check=True, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


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
    lines += ["", f"`{result['machine']['command']}`. Settings: `{' '.join(COMMON)}`. Machine: "
              f"{json.dumps(result['machine'])}.", ""]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("runs/study_entropy_rule"), help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--collect", action="store_true", help="run nothing")
    options = parser.parse_args()
    jobs = [(seed, name) for seed in options.seeds for name in CASES]
    if not options.collect:
        with ThreadPoolExecutor(2) as pool:
            for job in [pool.submit(run_one, options.root, seed, name) for seed, name in jobs]:
                job.result()
    cases = {}
    for name in CASES:
        folders = [options.root / f"seed{s}" / name.replace(", ", "-").replace(" ", "_") for s in options.seeds]
        runs = [of_run(pairs(folder)) for folder in folders]
        values = {key: [run[key] for run in runs] for key in runs[0]}
        cases[name] = {"values": values, "mean": {key: mean_interval(found) for key, found in values.items()}}
    result = {"machine": machine(), "seeds": options.seeds, "cases": cases}
    write("entropy_rule", result, markdown(result))


if __name__ == "__main__":
    main()
