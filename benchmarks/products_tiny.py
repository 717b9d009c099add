"""Does a tiny model learn as much where its products are in bfloat16? GRPO on chains of sums, five seeds.

    .venv/bin/python benchmarks/products_tiny.py            # runs or goes on, then writes the results
    .venv/bin/python benchmarks/products_tiny.py --collect  # only reads what is there

It needs a processor with amx_bf16 or avx512_bf16. A run has one thread and takes a quarter of a minute. It ends before
the policy knows nearly everything, where arms could not differ (tried on seeds 60 and 61). All arms of a seed meet the
same problems in the same order, so differences are paired by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study import (
    arguments,
    cell,
    lines_of,
    machine,
    made_with,
    minus,
    paired_lead,
    rows_of,
    run_study,
    seconds_of,
    train,
)

SEEDS = (500, 501, 502, 503, 504)
PLAIN = "float32"
ENGINE = ("engine.products=bfloat16",)
ARMS = {
    PLAIN: (),
    "bfloat16 engine": ENGINE,
    "bfloat16 engine and update": (*ENGINE, "learning.products=bfloat16"),
}
COMMON = (
    "num_threads=1", "num_steps=15", "data.min_steps=5", "data.max_steps=6", "learning.learning_rate=3e-4",
    "learning.final_share=1", "data.num_test=1000", "evaluation.num_samples=4", "validate_every=15",
    "data.num_validation=64", "traces_per_step=0",
)  # fmt: skip


def folder_of(seed: Path, arm: str) -> Path:
    return seed / arm.replace(" ", "_")


def run_seed(root: Path, seed: int, extra: Sequence[str]) -> None:
    for arm, own in ARMS.items():
        train("grpo", [f"seed={seed}", *COMMON, *own, *extra], folder_of(root / f"seed{seed}", arm))


def measure(seed: Path) -> dict[str, Any]:
    """By arm: the test table before and after, the sampler's gap, the gradient's error, and the run's seconds."""
    runs = {arm: folder_of(seed, arm) for arm in ARMS}
    return {"machine": machine(runs[PLAIN]), "values": {arm: of_run(run) for arm, run in runs.items()}}


def of_run(run: Path) -> dict[str, float | None]:
    rows, lines = rows_of(run), lines_of(run)
    errors = [line["optim/products_error"] for line in lines if "optim/products_error" in line]
    return {
        "before": rows["before"]["acc"],
        "after": rows["last"]["acc"],
        "kl": fmean(line["kl/sampler"] for line in lines if "kl/sampler" in line),
        "error": errors[0] if errors else None,
        "seconds": seconds_of(run),
    }


def markdown(result: Mapping[str, Any]) -> str:
    table = result["found"]

    def gain(arm: str) -> list[float | None]:
        values = table["values"][arm]
        return minus(values["after"], values["before"])

    lines = [
        "# Products in bfloat16 on a tiny model: what is learnt", "",
        f"GRPO on chains of 5 and 6 sums, {COMMON[1].partition('=')[2]} steps. Greedy success on 1,000 test problems, "
        "percent, before and after the last step; mean ± half width of a 95 % t interval over seeds.", "",
        "| arm | before | after | gain | kl/sampler, nats a token | error of the first gradient | s a run |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for arm in ARMS:
        values = table["values"][arm]
        errors = cell(values["error"])
        cells = [cell(values["before"]), cell(values["after"]), cell(gain(arm), sign=True)]
        cells += [f"{fmean(values['kl']):.1e}", errors if errors == "–" else f"{errors} %"]
        lines.append(f"| {arm} | " + " | ".join([*cells, f"{fmean(values['seconds']):.0f}"]) + " |")
    lines += ["", f"| gain, less that of {PLAIN} | mean | by seed |", "|---|---|---|"]
    lines += [paired_lead(arm, gain(arm), gain(PLAIN)) for arm in ARMS if arm != PLAIN]
    return "\n".join([*lines, "", *made_with(table), "", f"Command: `{result['command']}`.", ""])


def main() -> None:
    options = arguments(__doc__, "products_tiny", seeds=SEEDS, processes=1)
    run_study(
        options, {"common": COMMON, "arms": ARMS}, run_seed,
        lambda root, seed: all((folder_of(root / f"seed{seed}", arm) / "summary.json").exists() for arm in ARMS),
        measure, markdown,
    )  # fmt: skip


if __name__ == "__main__":
    main()
