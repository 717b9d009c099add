"""Do trackers get each step of a run once, and what do they cost the run?

    python benchmarks/tracking.py once tensorboard=PYTHON trackio=PYTHON wandb=PYTHON
    python benchmarks/tracking.py beside --packages FOLDER
    python benchmarks/tracking.py paired --packages FOLDER
    python benchmarks/tracking.py cost --packages FOLDER

*once*: a run of 200 steps is killed twice (SIGKILL) and resumed, while `whet track --follow` sends it to each tracker,
with the real package in an environment of its own (PYTHON). Then what each tracker holds is read back and held against
the run's metrics: every number once, at its step. Trackers are told to stay offline.

*beside*: the same run with `track=[tensorboard]`: undisturbed; with the tracker's process stopped (SIGSTOP) for 60 s;
with it killed. Each has to end in the bits of a run without trackers. The run's CPU time is its process's own, by the
kernel's count. FOLDER, where it is needed, has the tracker's packages for the run's environment.

*paired*: each of them at the same time as a run without trackers, on the machine's other core. A machine whose speed
drifts then changes both alike; a pair of runs without trackers says how much is left.

*cost*: the CPU time of what the run itself does for its trackers: it starts a process, looks at each step whether it
lives, and closes a pipe.

Trials take turns (`--repeats`), as a busy machine changes what a CPU second is worth.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from study import RESULTS, machine_now, write
from whet.tracking.beside import Beside

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (
    *("prompts_per_step=2", "group_size=2", "validate_every=20", "checkpoint_every=20", "seed=5", "num_threads=1"),
    *("data.num_train=64", "data.num_validation=4", "data.num_test=8", "learning.minibatch_rows=4"),
)
KILLED_AT = (0.35, 0.7)
"""Shares of the steps after which the run is killed. No checkpoint is there, so it makes steps again."""
STOPPED_S = 60.0
TIMES = ("time/", "throughput/")
"""Parts of names whose values differ where a step is made twice."""
COSTS = 9
"""Times that each part of the cost is measured."""
TRIALS = ("without", "beside", "stopped", "killed")


def command(out: Path, steps: int, *settings: str) -> list[str]:
    run = [sys.executable, "-m", "whet.cli", "train", "grpo", f"num_steps={steps}", *SETTINGS, *settings]
    return [*run, "--out", str(out)]


def environment(packages: Path | None = None) -> dict[str, str]:
    places = [str(ROOT / "src"), str(ROOT / "packages/mathgrade/src"), *([str(packages)] if packages else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def rows_of(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def same_bits(a: Path, b: Path) -> bool:
    """Metrics but for times, traces, weights and the table of two finished runs."""

    def state(run: Path) -> list[Any]:
        metrics = [{k: v for k, v in row.items() if not k.startswith(TIMES)} for row in rows_of(run)]
        latest = run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()
        files = [*sorted((run / "traces").glob("*.jsonl")), *sorted((latest / "policies").rglob("*.safetensors"))]
        table = json.loads((run / "summary.json").read_text())["rows"]
        return [metrics, table, [(file.name, file.read_bytes()) for file in files]]

    return state(a) == state(b)


# --- each step once ---------------------------------------------------------------------------------------------------


def once(root: Path, pythons: Mapping[str, str], steps: int) -> list[dict[str, Any]]:
    """A line of results for each tracker."""
    run = root / "once"
    shutil.rmtree(run, ignore_errors=True)
    log = (root / "once.log").open("w")
    kills = [round(share * steps) for share in KILLED_AT]
    process = subprocess.Popen(command(run, steps), env=environment(), stdout=log, stderr=log)
    wait_until(lambda: len(rows_of(run)) > 3, process)
    followers = {kind: follower(run, kind, python, root) for kind, python in pythons.items()}
    for at in kills:
        wait_until(lambda at=at: len(rows_of(run)) > at, process)
        time.sleep(3)  # the followers look every two seconds, and have sent what the run will cut
        process.kill()
        process.wait()
        process = subprocess.Popen(command(run, steps), env=environment(), stdout=log, stderr=log)
    assert process.wait() == 0, f"see {root / 'once.log'}"
    lines = []
    for kind, process in followers.items():
        code = process.wait(timeout=300)
        lines.append({"tracker": kind, "exit": code, **compared(run, read(kind, pythons[kind], root / kind))})
    return lines


def wait_until(is_time: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    while not is_time():
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.05)


def follower(run: Path, kind: str, python: str, root: Path) -> subprocess.Popen[bytes]:
    out = root / kind
    shutil.rmtree(out, ignore_errors=True)
    track = [python, "-m", "whet.cli", "track", str(run), "--to", kind, "--out", str(out), "--follow"]
    log = (root / f"{kind}.log").open("w")
    return subprocess.Popen(["nice", "-n", "10", *track], env=environment(), stdout=log, stderr=log)


def read(kind: str, python: str, folder: Path) -> dict[str, Any]:
    """What a tracker holds, by `tracking_read`."""
    reader = [python, str(ROOT / "benchmarks" / "tracking_read.py"), kind, str(folder)]
    done = subprocess.run(reader, capture_output=True, text=True, check=True)
    return json.loads(done.stdout[done.stdout.index("{") :])


def compared(run: Path, held: Mapping[str, Any]) -> dict[str, Any]:
    """What a tracker holds against the metrics of the finished run."""
    points = {(name, step): value for name, step, value in held["points"]}
    counts = Counter((name, step) for name, step, _ in held["points"])
    expected: dict[tuple[str, int], float] = {}
    before, last = 0, {"phase": "", "step": 0}
    for row in rows_of(run):
        before += last["step"] if row["phase"] != last["phase"] else 0
        last = row
        values = {name: value for name, value in row.items() if name not in ("phase", "step") and value is not None}
        expected |= {(f"{row['phase']}/{name}", before + row["step"]): value for name, value in values.items()}
    other = [
        key
        for key, value in expected.items()
        if key in points
        and not any(part in key[0] for part in TIMES)
        and not math.isclose(points[key], value, rel_tol=1e-6, abs_tol=1e-9)
    ]
    accuracies = [row["acc"] for row in json.loads((run / "summary.json").read_text())["rows"].values()]
    return {
        "numbers": len(expected),
        "once": sum(counts[key] == 1 for key in expected),
        "twice": sum(count > 1 for key, count in counts.items() if key in expected),
        "other": len(other),
        "traces": held["traces"],
        "spans": held.get("spans", 0),
        "alerts": held["alerts"],
        "has table": all(f"{value:.4g}" in held["table"] or f"{value}" in held["table"] for value in accuracies),
    }


# --- what it costs the run ------------------------------------------------------------------------------------------


def beside(root: Path, packages: Path | None, steps: int, repeats: int, trials: Sequence[str]) -> list[dict[str, Any]]:
    """A line of results for each trial; the trials take turns."""
    lines: dict[str, list[dict[str, Any]]] = {trial: [] for trial in trials}
    for repeat in range(repeats):
        for trial in trials:
            out = root / f"{trial}_{repeat}"
            lines[trial].append(one_trial(root, trial, packages, steps, out))
            lines[trial][-1]["same bits"] = same_bits(root / "without_0", out)
            print(trial, lines[trial][-1], flush=True)
    return [
        {
            "trial": trial,
            "runs": len(results),
            "same bits": sum(result["same bits"] for result in results),
            "cpu_s": median(result["cpu_s"] for result in results),
            "wall_s": median(result["wall_s"] for result in results),
            "cpu": [result["cpu_s"] for result in results],
            "wall": [result["wall_s"] for result in results],
        }
        for trial, results in lines.items()
    ]


def paired(root: Path, packages: Path | None, steps: int, trials: Sequence[str]) -> list[dict[str, Any]]:
    """A line of results for each trial, beside its twin without trackers."""
    lines = []
    with ThreadPoolExecutor(2) as both:
        for trial in trials:
            made = [
                both.submit(one_trial, root, kind, packages, steps, root / f"{trial}_{name}")
                for kind, name in (("without", "twin"), (trial, "paired"))
            ]
            twin, run = (future.result() for future in made)
            run["same bits"] = same_bits(root / f"{trial}_twin", root / f"{trial}_paired")
            ratios = {f"{name} ratio": round(run[f"{name}_s"] / twin[f"{name}_s"], 3) for name in ("cpu", "wall")}
            lines.append(
                {"trial": trial, **run, **{f"twin's {name}": twin[name] for name in ("cpu_s", "wall_s")}, **ratios}
            )
            print(lines[-1], flush=True)
    return lines


def one_trial(root: Path, trial: str, packages: Path | None, steps: int, out: Path) -> dict[str, Any]:
    """Makes one run. Returns: its CPU seconds, and those on the clock."""
    shutil.rmtree(out, ignore_errors=True)
    settings = [] if trial == "without" else ["track=[tensorboard]"]
    log = (root / f"{out.name}.log").open("w")
    started = time.monotonic()
    process = subprocess.Popen(command(out, steps, *settings), env=environment(packages), stdout=log, stderr=log)
    if trial in ("stopped", "killed"):
        wait_until(lambda: len(rows_of(out)) > steps // 4, process)
        [tracker] = children(process.pid, "whet.tracking")
        os.kill(tracker, signal.SIGSTOP if trial == "stopped" else signal.SIGKILL)
        if trial == "stopped":
            time.sleep(STOPPED_S)
            os.kill(tracker, signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # what waits for it gets its tracker's time too
    wall = time.monotonic() - started
    ticks = (Path("/proc") / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    assert process.wait() == 0, f"see {log.name}"
    return {
        "cpu_s": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
        "wall_s": round(wall, 1),
    }


def cost(root: Path, packages: Path | None) -> list[dict[str, Any]]:
    """A line for each thing that a run does for a tracker: its CPU time in this process."""
    run = root / "without_0"
    os.environ.update(environment(packages))
    sys.path += [str(packages)] if packages else []

    def fail(text: str) -> None:
        raise AssertionError(text)

    def milliseconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return 1000 * (time.process_time() - started)

    parts: dict[str, list[float]] = {"start": [], "look, 1,000 steps": [], "close": []}
    for _ in range(COSTS):
        trackers = Beside(run, ["tensorboard"], fail)
        parts["start"].append(milliseconds(trackers.start))
        parts["look, 1,000 steps"].append(milliseconds(lambda t=trackers: [t.look() for _ in range(1000)]))
        parts["close"].append(milliseconds(trackers.close))
    return [{"what": what, "CPU ms": round(median(times), 2)} for what, times in parts.items()]


def children(parent: int, module: str) -> list[int]:
    """Processes that a process has started and that run a module."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            status = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[1]) == parent and module.encode() in words:
            found.append(int(place.name))
    return found


# --- results ----------------------------------------------------------------------------------------------------------


TITLES = {
    "once": "## Killed twice and resumed",
    "beside": "## What it costs the run",
    "earlier": "## What it cost on another machine",
    "paired": "## What it costs the run, at the same time as one without",
    "cost": "## What the run itself does for a tracker",
}
EXPLAINED = {
    "once": "A run of 200 steps, killed twice, while `whet track --follow` sent it to each real package, offline. "
    "`once`: numbers that the tracker holds once, at their step. `other`: those with a value that metrics.jsonl lacks.",
    "beside": "Medians. `stopped`: the tracker's process got SIGSTOP for 60 s; `killed`: SIGKILL. The bits are those "
    "of the first run without a tracker. Load of the machine: {load}. Where it is above the number of cores, "
    "`wall_s` says what else ran, and `cpu_s` varies by a tenth between equal runs.",
    "earlier": "As above, of 3,500 steps; AMD EPYC, 2 cores, commit 038c4f5. Here `cpu_s` has the tracker's time too, "
    "where the run waited for its end.",
    "paired": "Each trial ran at the same time as a run without a tracker, its twin, so a machine whose speed drifts "
    "changes both. The first line is two runs without.",
    "cost": "CPU time of the run's process, the median of nine. A run waits for nothing else.",
}


def as_markdown(results: Mapping[str, Any]) -> str:
    where = results["machine"]
    made = f"{where['processor']}, {where['num_cores']} cores, Python {where['python']}, commit {where['commit']}"
    parts = ["# Trackers: each step once, and what they cost a run\n", f"`python benchmarks/tracking.py`; {made}.\n"]
    for name, title in TITLES.items():
        if lines := results.get(name):
            text = EXPLAINED[name].format(load=results.get("load", ""))
            columns = [column for column in lines[0] if not isinstance(lines[0][column], list)]
            parts += [title, "", text, "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            parts += ["| " + " | ".join(str(line[column]) for column in columns) + " |" for line in lines]
            parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[part for part in TITLES if part != "earlier"])
    parser.add_argument("pythons", nargs="*", metavar="KIND=PYTHON")
    parser.add_argument("--root", type=Path, default=Path("runs/tracking"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--packages", type=Path, help="a folder with TensorBoard for the run's environment")
    parser.add_argument("--trials", nargs="+", choices=TRIALS, default=list(TRIALS))
    given = parser.parse_intermixed_args()
    root = given.root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    if given.part == "once":
        lines = once(root, dict(pair.split("=", 1) for pair in given.pythons), given.steps)
    elif given.part == "cost":
        lines = cost(root, given.packages)
    elif given.part == "paired":
        lines = paired(root, given.packages, given.steps, given.trials)
    else:
        lines = beside(root, given.packages, given.steps, given.repeats, given.trials)
    file = RESULTS / "tracking.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    if given.part == "paired":  # trials that were not asked for stay as they are
        kept = {line["trial"]: line for line in results.get("paired", [])}
        lines = list((kept | {line["trial"]: line for line in lines}).values())
    results |= {"machine": machine_now(), given.part: lines}
    if given.part == "beside":
        results["load"] = round(os.getloadavg()[2], 1)
    write("tracking", results, as_markdown(results))
    print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
