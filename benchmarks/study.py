"""What the learning studies share: runs side by side that go on where they stopped, and result files."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.evaluation.critique import mean_interval

RESULTS = Path(__file__).parent / "results"


def arguments(
    doc: str | None, name: str, parts: Sequence[str] = (), *, seeds: Sequence[int] = (0, 1, 2, 3, 4),
    steps: int | None = None,
) -> argparse.Namespace:  # fmt: skip
    """The command line of a study: `root`, `seeds`, `collect`, `name`, `settings`, and the `command` itself.

    Args:
        parts: of the study, of which some can be chosen: `only`.
        seeds: those that it takes by default.
        steps: of training, by default, where the study has one number of them. None: it has no such option.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(f"runs/{name}"), help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if steps is not None:
        parser.add_argument("--steps", type=int, default=steps, help="of training, in all (a multiple of 4)")
    parser.add_argument("--collect", action="store_true", help="run nothing, only read what is there")
    parser.add_argument("--name", default=name, help="of the result files")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="the others' results stay")
    parser.add_argument("settings", nargs="*", help="key.sub=value for every run")
    command = " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return parser.parse_args(namespace=argparse.Namespace(command=command))


def train(method: str, settings: Sequence[str], out: Path, *, threads: int = 1) -> None:
    """Train in so many threads, or go on with the run that is there; a finished one is left as it is. What it prints is
    in a log beside its folder.

    Raises: RuntimeError where it stopped.
    """
    if (out / "summary.json").exists():
        return
    log = out.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    whet(log, "train", method, *settings, "--out", str(out), threads=threads)
    print(f"{out.parent.name} {out.name}: {time.monotonic() - begun:.0f} s", flush=True)


def evaluated(
    run: Path, critic: str, *, samples: int = 1, refinements: int = 1, rounds: int = 1, changed: Sequence[str] = ()
) -> Mapping[str, Any]:
    """What `whet eval` keeps of one critic of a run; measured now, unless it was before.

    Args:
        changed: settings other than the run's.
    Raises: RuntimeError where it stopped.
    """

    def kept() -> Mapping[str, Any] | None:
        for file in sorted((run / "eval").glob("*[!s].json")):
            record: Mapping[str, Any] = json.loads(file.read_text())
            asked, counts = record["settings"], (samples, refinements, rounds)
            episodes = record.get("evaluation", {}).get("num_rounds", 1)  # an agent's critic has one round
            was = (asked["num_samples"], asked["num_refinements"], episodes)
            if (record["critic"], was, tuple(asked["changed"])) == (critic, counts, tuple(changed)):
                return record
        return None

    if (found := kept()) is None:
        options = ["--critic", critic, "--samples", samples, "--refinements", refinements]
        options += ["--rounds", rounds] if rounds > 1 else []
        whet(run.with_suffix(".eval.log"), "eval", str(run), *changed, *map(str, options))
        found = kept()
    assert found is not None
    return found


def whet(log: Path, *arguments: str, threads: int = 1) -> None:
    """A command of ours; what it prints is added to the log.

    Raises: RuntimeError where it stopped.
    """
    with log.open("a") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "whet.cli", *arguments]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    if code:
        raise RuntimeError(f"whet {' '.join(arguments)} stopped with code {code}: see {log}")


def policies_of(run: Path) -> Path:
    """The folder of the policies in a run's last checkpoint."""
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() / "policies"


def rows_of(run: Path) -> Mapping[str, Mapping[str, float | None]]:
    """The final table of a run that has finished."""
    rows: Mapping[str, Mapping[str, float | None]] = json.loads((run / "summary.json").read_text())["rows"]
    return rows


def machine(run: Path) -> dict[str, Any]:
    """Where and with what a run was made, and at which commit."""
    found = json.loads((run / "env.json").read_text())
    kept = ("whet", "torch", "transformers", "python", "platform", "num_cores", "commit")
    return {**{name: found.get(name) for name in kept}, "processor": processor()}


def machine_now() -> dict[str, Any]:
    """Where this process runs, and at which commit."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    found = {"python": platform.python_version(), "platform": platform.platform(), "num_cores": os.cpu_count()}
    return {**found, "commit": commit or None, "processor": processor()}


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def cell(values: Sequence[float | None], *, sign: bool = False, scale: float = 100) -> str:
    """The mean over seeds and the half width of its 95 % t interval, in percent; a dash where no seed has the value."""
    known = [scale * value for value in values if value is not None]
    if not known:
        return "–"
    mean, half = mean_interval(known)
    shown = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    return shown if half is None else f"{shown} ± {half:.1f}"


def minus(left: Sequence[float | None], right: Sequence[float | None]) -> list[float | None]:
    """Paired differences, seed by seed."""
    pairs = zip(left, right, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def write(name: str, result: Mapping[str, Any], text: str) -> None:
    """Both files under `results/`, and the text on the screen."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
