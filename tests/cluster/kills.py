"""Whole runs whose processes are killed at any moment end as unbroken ones: the same metrics and the same weights.

python tests/cluster/kills.py workers --kills 50        # also ranks, controller
python tests/cluster/kills.py ranks --kills 10 --out kills.jsonl

Rounds are made until as many processes were killed as asked. Each adds a line to --out, so a later call goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.outcome import outcome

SETTINGS = (
    *("num_threads=1", "num_steps=6", "checkpoint_every=1", "validate_every=3", "prompts_per_step=8", "group_size=4"),
    *("data.num_test=24", "data.num_validation=24", "evaluation.num_samples=1", "sampling.max_new_tokens=48"),
    *("cluster.unit=4", "cluster.restarts=1000"),
)
KINDS = {
    "workers": ("cluster.workers=2",),
    "ranks": ("cluster.ranks=2",),
    "controller": ("cluster.ranks=2", "cluster.workers=2"),
}
ACTORS = {"workers": "ray::WorkerProcess", "ranks": "ray::RankProcess"}
PAUSE_S = {"workers": (0.5, 4.0), "ranks": (2.0, 20.0), "controller": (0.0, 8.0)}
"""Seconds before a kill, at least and at most. A controller makes a step first."""
ENDS_S = 120.0
"""Seconds in which the processes of a killed run have to end. Ray's agents first try to reach it."""


def start(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    """Starts the run, or resumes it: the command is the same."""
    command = [sys.executable, "-m", "whet.cli", "train", "grpo", *SETTINGS, *KINDS[kind], "--out", str(folder)]
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def descendants(pid: int) -> dict[int, str]:
    """The processes below one: their command lines by number."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    children: dict[int, list[int]] = {}
    for number, parent, *_ in rows:
        children.setdefault(int(parent), []).append(int(number))
    below = set[int]()
    waiting = [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        below.update(new)
        waiting += new
    return {int(number): " ".join(words) for number, _, *words in rows if int(number) in below}


def kill_within(run: subprocess.Popen[bytes], kind: str, rng: random.Random, most: int) -> int:
    """Kills workers or ranks of a run until it ends. Returns: how many."""
    killed = set[int]()
    while len(killed) < most and run.poll() is None:
        time.sleep(rng.uniform(*PAUSE_S[kind]))
        alive = [pid for pid, words in descendants(run.pid).items() if words.startswith(ACTORS[kind])]
        if victims := sorted(set(alive) - killed):
            killed.add(victim := rng.choice(victims))
            os.kill(victim, signal.SIGKILL)
    run.wait()
    return len(killed)


def kill_controller(run: subprocess.Popen[bytes], folder: Path, rng: random.Random) -> int:
    """Kills the run's own process: now and then as it starts, else once it has made a step.

    Returns: 1, or 0 where the run had ended.
    Raises: SystemExit where its other processes live on.
    """
    metrics, is_early, started = folder / "metrics.jsonl", rng.random() < 0.2, time.time()
    while not is_early and run.poll() is None and not (metrics.exists() and metrics.stat().st_mtime > started):
        time.sleep(0.1)
    try:
        run.wait(rng.uniform(*PAUSE_S["controller"]))
        return 0
    except subprocess.TimeoutExpired:
        others = descendants(run.pid)
        run.kill()
        run.wait()
    deadline = time.monotonic() + ENDS_S
    while left := [pid for pid in others if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > deadline:
            sys.exit(f"the run was killed, and these went on: {[others[pid] for pid in left]}")
        time.sleep(0.5)
    return 1


def make_round(kind: str, folder: Path, rng: random.Random, most: int) -> int:
    """Makes a run whose processes are killed. Returns: how many were.

    Raises: SystemExit where the run ended by an error.
    """
    num_killed = 0
    run = start(folder, kind)
    while kind == "controller" and num_killed < most and kill_controller(run, folder, rng):
        num_killed += 1
        run = start(folder, kind)
    num_killed += 0 if kind == "controller" else kill_within(run, kind, rng, most)
    if run.wait():
        sys.exit(f"the run ended with {run.returncode}:\n{folder.with_suffix('.log').read_text()[-3000:]}")
    return num_killed


def lines_of(out: Path, kind: str) -> list[Mapping[str, Any]]:
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return [line for line in lines if line["kind"] == kind]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--a-round", type=int, default=10, help="kills in one run, at most")
    parser.add_argument("--out", type=Path, default=Path("kills.jsonl"))
    arguments = parser.parse_args()
    kind, out = arguments.kind, arguments.out
    place = Path(tempfile.mkdtemp(prefix="kills"))
    unbroken = place / "unbroken"
    if start(unbroken, kind).wait():
        sys.exit(f"the unbroken run ended by an error:\n{unbroken.with_suffix('.log').read_text()[-3000:]}")
    expected = outcome(unbroken)
    while (num_killed := sum(line["killed"] for line in lines_of(out, kind))) < arguments.kills:
        number, started = len(lines_of(out, kind)), time.perf_counter()
        most = min(arguments.a_round, arguments.kills - num_killed)
        folder = place / f"{number}"
        killed = make_round(kind, folder, random.Random(number), most)
        is_same = outcome(folder) == expected
        line = {"kind": kind, "killed": killed, "same": is_same, "seconds": round(time.perf_counter() - started)}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)
        if not is_same:
            sys.exit(f"the run in {folder} differs from that in {unbroken}")
        shutil.rmtree(folder)
    lines = lines_of(out, kind)
    print(f"{kind}: {num_killed} killed in {len(lines)} runs, the same bits in {sum(line['same'] for line in lines)}")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
