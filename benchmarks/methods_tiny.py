"""The methods of one file each on the tiny world: three seeds, default settings, as it came out.

    .venv/bin/python benchmarks/methods_tiny.py             # all of them, two side by side (half an hour on two cores)
    .venv/bin/python benchmarks/methods_tiny.py --collect   # only reads what is there
    .venv/bin/python benchmarks/methods_tiny.py --only spc  # the others' rows stay as they were found before

What is asked is whether each method runs and moves what it is meant to move, not which is best: the methods differ in
how many samples and updates they take, and no setting was tuned. Seeds 100 to 102 were run once, after the settings
were committed; seed 0 was looked at while the methods were written. Runs that were stopped go on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from study import RESULTS, arguments, cell, machine, rows_of, train, write

CRITIC = ("acc", "acc_refine", "delta", "acc_dis")
SOLVER = ("acc", "average", "pass")
METHODS: dict[str, tuple[str, ...]] = {
    "ref_critic": CRITIC,
    "critique_dpo": CRITIC,
    "nft": SOLVER,
    "rltf_sd": SOLVER,
    "critique_coder": (*SOLVER, "acc_dis"),
    "spc": ("acc_dis", "acc_dis_correct", "acc_dis_incorrect"),
}
"""By name, the columns that are shown."""
TITLES = {
    "acc": "Acc", "acc_refine": "Acc@Refine", "delta": "Delta", "acc_dis": "Acc@Dis", "average": "mean of 4",
    "pass": "pass@4", "acc_dis_correct": "on right", "acc_dis_incorrect": "on wrong",
}  # fmt: skip
SEEDS = (100, 101, 102)


def main() -> None:
    chosen = arguments(__doc__, "methods_tiny", tuple(METHODS), seeds=SEEDS)
    seeds = chosen.seeds
    runs = {(name, seed): chosen.root / name / f"seed_{seed}" for seed in seeds for name in chosen.only}
    if not chosen.collect:
        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(train, name, ["num_threads=1", f"seed={seed}", *chosen.settings], out)
                for (name, seed), out in runs.items()
            ]
            for job in jobs:
                job.result()
    found = {name: _found(chosen, [runs[name, seed] for seed in seeds]) for name in chosen.only}
    before = RESULTS / f"{chosen.name}.json"
    known = json.loads(before.read_text())["methods"] if before.exists() else {}
    methods = {name: found.get(name) or known[name] for name in METHODS if name in found or name in known}
    result = {"seeds": list(seeds), "settings": chosen.settings, "methods": methods}
    write(chosen.name, result, _text(methods, len(seeds)))


def _found(chosen: argparse.Namespace, runs: Sequence[Path]) -> dict[str, Any]:
    """Of one method."""
    return {
        "command": chosen.command, "machine": machine(runs[0]), "rows": [rows_of(run) for run in runs],
        "seconds": [_summary(run)["seconds"] for run in runs],
    }  # fmt: skip


def _summary(run: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def _text(methods: Mapping[str, Any], num_seeds: int) -> str:
    lines = [
        "# Methods of one file each, on the tiny world", "",
        f"Means over {num_seeds} seeds with the half width of a 95 % Student t interval, in percent of 1,000 test "
        "problems (of SPC: of the valid games on them). Default settings; how long a run took in one thread stands "
        "behind its name. These say that each method does what it is for, not which is better: they take different "
        "numbers of samples and updates.", "",
    ]  # fmt: skip
    for name, found in methods.items():
        columns, seconds, tables = METHODS[name], found["seconds"], found["rows"]
        made_on = ", ".join(f"{key} {value}" for key, value in found["machine"].items() if value)
        lines += [f"## {name} ({min(seconds):.0f} to {max(seconds):.0f} s)", ""]
        lines += ["| | " + " | ".join(TITLES[c] for c in columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row in tables[0]:
            cells = [cell([table[row].get(column) for table in tables]) for column in columns]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines += ["", f"`{found['command']}`: {made_on}.", ""]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
