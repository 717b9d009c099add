"""What does the age of rollouts cost? GRPO, BAPO and DPPO on the tiny world at ages 0, 1, 2 and 4.

    .venv/bin/python benchmarks/async_learning.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/async_learning.py --collect  # only reads what is there
    .venv/bin/python benchmarks/async_learning.py --seeds 500 --steps 8

**How an age is made.** A run repeats a log (`off_policy.log`) in which each unit is as old as the arm says, or as old
as the step allows at the start. So a clock decides nothing, and one process with one thread gives the same bits. All
arms meet the same problems in the same order. Age 0 is `off_policy.kind=none`.

**What is compared.** *Last*: the mean of the test replies sampled from the last weights. *On the way*: sampled success
of the training replies, over all steps. Differences from age 0 are paired by seed. Rates are the presets' own.

**Budget.** 12 runs a seed of some 60 s of CPU time each: about an hour for five seeds in one process. A run that was
killed goes on from its last checkpoint; seeds of earlier sittings stay in the result file (`study.accumulate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import arguments, cell, lines_of, machine, made_with, minus, rows_of, run_study, train

SEEDS = (500, 501, 502, 503, 504)
METHODS = {"GRPO": "grpo", "BAPO": "bapo", "DPPO": "dppo"}
AGES = (0, 1, 2, 4)
PROMPTS = 16
COMMON = (
    "num_threads=1", f"prompts_per_step={PROMPTS}", "group_size=8", "learning.minibatch_rows=64", "checkpoint_every=8",
    "validate_every=1000", "data.num_validation=1", "data.num_test=200", "evaluation.num_samples=4", "probe_every=0",
    "traces_per_step=0",
)  # fmt: skip
MEASURED = {
    "effective": ("ratio/effective_samples", "effective samples"),
    "age": ("staleness/mean", "age, updates"),
    "signal": ("group/no_signal", "groups without signal"),
}
"""Means over the steps of a run, and their titles."""


def log_of(age: int, num_steps: int) -> str:
    """The lines of a log in which all units of a step are so old, or as old as can be."""
    rows = []
    for step in range(1, num_steps + 1):
        begun = max(1, step - age)
        rows.append({"step": step, "units": [[(step - 1) * PROMPTS + i, begun] for i in range(PROMPTS)]})
    return "".join(json.dumps(row) + "\n" for row in rows)


def folder_of(seed_folder: Path, name: str, age: int) -> Path:
    return seed_folder / f"{METHODS[name]}-age{age}"


def run_seed(root: Path, seed: int, num_steps: int, extra: Sequence[str]) -> None:
    """Every method at every age, with one seed."""
    for age in AGES:
        settings = [f"seed={seed}", f"num_steps={num_steps}", *COMMON]
        if age:
            log = root / f"age{age}-{num_steps}.jsonl"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(log_of(age, num_steps))
            settings += ["off_policy.kind=async", f"off_policy.max_age={age}", f"off_policy.log={log.absolute()}"]
        for name, method in METHODS.items():
            train(method, [*settings, *extra], folder_of(root / f"seed{seed}", name, age))


def read_run(run: Path) -> dict[str, float | None]:
    steps = [row for row in lines_of(run) if row["phase"] == "train" and row["step"]]
    values: dict[str, float | None] = {
        "before": rows_of(run)["before"]["average"],
        "last": rows_of(run)["last"]["average"],
        "way": fmean(row["reward/correct"] for row in steps),
    }
    for key, (metric, _) in MEASURED.items():
        known = [row[metric] for row in steps if row.get(metric) is not None]
        values[key] = fmean(known) if known else None
    return values


def measure(seed_folder: Path) -> dict[str, Any]:
    values = {name: {str(age): read_run(folder_of(seed_folder, name, age)) for age in AGES} for name in METHODS}
    return {"machine": machine(folder_of(seed_folder, "GRPO", 0)), "values": values}


def markdown(result: Mapping[str, Any]) -> str:
    table = result["found"]
    lines = ["# Learning by the age of rollouts", "",
             f"Seeds {', '.join(map(str, table['seeds']))}; {table['settings']['steps']} steps. In percent, mean ± "
             "half width of a 95 % t interval over seeds; differences are paired by seed.", "",
             "| method | age | before | last | last − age 0 | on the way | effective samples | age, updates |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, by_age in table["values"].items():
        for age, values in by_age.items():
            lead = "–" if age == "0" else cell(minus(values["last"], by_age["0"]["last"]), sign=True)
            shown = [cell(values["before"]), cell(values["last"]), lead, cell(values["way"])]
            shown += [cell(values["effective"]), cell(values["age"], scale=1)]
            lines.append(f"| {name} | {age} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", *made_with(table), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "async_learning", seeds=SEEDS, steps=32, processes=1)
    run_study(
        options,
        {"common": COMMON, "ages": AGES, "methods": METHODS, "steps": options.steps},
        lambda root, seed, extra: run_seed(root, seed, options.steps, extra),
        lambda root, seed: all(
            (folder_of(root / f"seed{seed}", name, age) / "summary.json").exists() for name in METHODS for age in AGES
        ),
        measure,
        markdown,
    )


if __name__ == "__main__":
    main()
