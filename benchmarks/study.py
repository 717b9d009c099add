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

RESULTS = Path(__file__).parent / "results"


def arguments(doc: str | None, name: str, parts: Sequence[str] = ()) -> argparse.Namespace:
    """The command line of a study: `root`, `seeds`, `collect`, `name`, `settings`, and the `command` itself.

    Args:
        parts: of the study, of which some can be chosen: `only`.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(f"runs/{name}"), help="where the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
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
    command = [str(Path(sys.executable).with_name("whet")), "train", method, *settings, "--out", str(out)]
    with log.open("a") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    if code:
        raise RuntimeError(f"{out} stopped with code {code}: see {log}")
    print(f"{out.parent.name} {out.name}: {time.monotonic() - begun:.0f} s", flush=True)


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


def write(name: str, result: Mapping[str, Any], text: str) -> None:
    """Both files under `results/`, and the text on the screen."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
