"""Is this checkout slower than another one? The same runs with both, in turn, in one sitting.

    git worktree add /tmp/before COMMIT
    .venv/bin/python benchmarks/two_versions.py /tmp/before

Each run is a process of its own in one thread, with the shipped model: Critique-RL with both stages, GRPO, BAPO on
replayed data. Compared are the seconds of sampling and of updating, as the runs log them, and the whole process from
start to end, which is what `make train` takes; CPU seconds say the same on a machine that others use. Both sides make
the same bits, so they do the same work. Where this checkout has renamed settings, methods or metrics since, the other
one is asked and read by its own names, through `tests/data/renamed.json` (see `tests/same_numbers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study import machine_now, write

HERE = Path(__file__).parents[1]
sys.path.append(str(HERE / "tests"))
from support.renamed import RENAMED, Renamed  # noqa: E402

RUNS: dict[str, tuple[str, ...]] = {
    "critique_rl": (
        "critique_rl", "stage1.num_steps=15", "stage2.num_steps=15", "warm_start.actor_steps=10",
        "warm_start.critic_steps=20", "data.num_train=2000", "data.num_test=200", "data.num_validation=64",
    ),
    "grpo": ("grpo", "num_steps=20", "data.num_train=2000", "data.num_test=100", "data.num_validation=64"),
    "bapo, replay": (
        "bapo", "num_steps=20", "off_policy.kind=replay", "off_policy.staleness=2", "data.num_train=2000",
        "data.num_test=100", "data.num_validation=64",
    ),
}  # fmt: skip
PARTS = {
    "time/rollout": "sampling and credit", "time/update": "updates", "whole": "whole process",
    "cpu": "whole process, CPU seconds",
}  # fmt: skip


def once(
    checkout: Path, settings: tuple[str, ...], out: Path, former: Renamed | None = None
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Seconds of one run by part, and what it logged but for times.

    Args:
        settings: a method and its settings, by the names of this checkout.
        former: what the other checkout's names have become. None: the run is of this checkout.
    """
    if former is not None:
        settings = asked_of(former, settings)
    shutil.rmtree(out, ignore_errors=True)
    path = os.pathsep.join(str(checkout / place) for place in ("src", "packages/mathgrade/src"))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "whet.cli", "train", *settings, "num_threads=1", "seed=0", "--out", str(out)]
    start = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found: dict[str, float] = defaultdict(float, whole=time.perf_counter() - start, cpu=cpu)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    if former is not None:
        rows = [read_from(former, row) for row in rows]
    for row in rows:
        for part in ("time/rollout", "time/update"):
            found[part] += row.get(part, 0.0)
    return found, [{k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))} for row in rows]


def asked_of(former: Renamed, settings: tuple[str, ...]) -> tuple[str, ...]:
    """A method and its settings, by the former names."""
    method, *rest = settings
    back = former.back()
    return (back.method(method), *map(back.setting, rest))


def read_from(former: Renamed, row: Mapping[str, Any]) -> dict[str, Any]:
    """A logged row with former names, by the names of this checkout."""
    named = {former.metric(name): value for name, value in row.items()}
    return {**named, "phase": former.phases.get(row["phase"], row["phase"])}


def like(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether two runs logged the same numbers, wherever both logged one: a later version may log more."""
    return len(one) == len(other) and all(
        a[key] == b[key] for a, b in zip(one, other, strict=True) for key in a.keys() & b.keys()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--name", default="two_versions", help="of the result files")
    chosen = parser.parse_args()
    sides = {"before": chosen.before.resolve(), "after": HERE}
    seconds: dict[str, dict[str, dict[str, list[float]]]] = {}
    first: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in RUNS.items():
            seconds[name] = {side: {part: [] for part in PARTS} for side in sides}
            for repeat in range(chosen.repeats):
                for side in list(sides) if repeat % 2 else list(reversed(sides)):
                    former = RENAMED if side == "before" else None
                    found, logged = once(sides[side], settings, Path(folder) / "run", former)
                    if not like(first.setdefault(name, logged), logged):
                        raise SystemExit(f"{name}: the two sides log other numbers, so they do not do the same work")
                    for part in PARTS:
                        seconds[name][side][part].append(found[part])
                print(name, repeat + 1, flush=True)
    commit = subprocess.run(["git", "-C", str(chosen.before), "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=False).stdout.strip()  # fmt: skip
    result = {"before": commit, "machine": machine_now(), "repeats": chosen.repeats, "seconds": seconds}
    write(chosen.name, result, text(result))


def text(result: Mapping[str, Any]) -> str:
    lines = [
        "# This version beside the one before", "",
        f"Seconds, medians of {result['repeats']} runs (smallest to largest), in turn in one sitting; the ratio is "
        "after over before, so below 1 is faster. One thread, the shipped model, the same numbers in both logs.", "",
        f"`python benchmarks/two_versions.py CHECKOUT`, before: {result['before']}.", "",
        "| run | part | before | after | ratio |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, sides in result["seconds"].items():
        for part, title in PARTS.items():
            cells = []
            for side in ("before", "after"):
                values = sides[side][part]
                cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            ratio = statistics.median(sides["after"][part]) / statistics.median(sides["before"][part])
            lines.append(f"| {name} | {title} | {' | '.join(cells)} | {ratio:.2f} |")
    lines += ["", f"Machine: {', '.join(f'{k} {v}' for k, v in result['machine'].items() if v)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
