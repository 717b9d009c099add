"""Runs the RUN lines of the Dockerfile without Docker: in a fresh folder and a fresh environment, with a plain shell.

python scripts/docker_run_lines.py [--arg NAME=VALUE ...] [--keep FOLDER]

ARG lines become variables, COPY copies what git knows, WORKDIR is a folder below. Lines with apt-get are only printed,
as they would change this machine. So the base image, ENTRYPOINT and what root may do are not tried.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fresh import ROOT, environment_for, make_environment, torch_backend

KNOWN = ("ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENTRYPOINT", "CMD")


@dataclass(frozen=True)
class Line:
    """An instruction, with its continued lines joined."""

    number: int
    name: str
    rest: str


def instructions(text: str) -> Iterator[Line]:
    """The instructions of a Dockerfile.

    Raises: ValueError for one that this script would pass over.
    """
    waiting, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not waiting and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first if waiting else number
        waiting += line
        if waiting.endswith("\\"):
            waiting = waiting[:-1] + "\n"
            continue
        name, _, rest = waiting.strip().partition(" ")
        if name not in KNOWN:
            raise ValueError(f"Dockerfile, line {first}: {name} is not one of {', '.join(KNOWN)}")
        yield Line(first, name, rest.strip())
        waiting = ""


def arguments(lines: list[Line], given: Mapping[str, str]) -> dict[str, str]:
    """The build's arguments: those given, else the defaults.

    Raises: ValueError where one is given that the Dockerfile does not declare.
    """
    declared = {
        name: default for line in lines if line.name == "ARG" for name, _, default in [line.rest.partition("=")]
    }
    if unknown := sorted(given.keys() - declared.keys()):
        raise ValueError(f"the Dockerfile has no ARG {unknown[0]}: choose of {', '.join(declared)}")
    return {**declared, **given}


def copied_files() -> list[str]:
    """What git knows of, or would add."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def run(lines: list[Line], given: Mapping[str, str], folder: Path) -> int:
    """Runs the lines in a folder. Gives the number of RUN lines that were run."""
    programs = make_environment(folder / "python")
    variables = environment_for(programs)
    if "TORCH" not in given and not torch_backend(variables):
        given = {**given, "TORCH": ""}  # a wheel of torch is on this disk, and its index may be out of reach
    variables |= arguments(lines, given)
    place, num_run = folder / "root", 0
    place.mkdir()
    for line in lines:
        if line.name == "WORKDIR":
            place = folder / "root" / line.rest.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
        elif line.name == "COPY":
            for name in copied_files():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place / name)
        elif line.name == "RUN" and re.search(r"\bapt-get\b", line.rest):
            print(f"line {line.number}: not run, it would change this machine: {line.rest}", flush=True)
        elif line.name == "RUN":
            print(f"line {line.number}: {line.rest}", flush=True)
            done = subprocess.run(["sh", "-ec", line.rest], cwd=place, env=variables, check=False)
            if done.returncode:
                raise SystemExit(f"Dockerfile, line {line.number} ended with {done.returncode}: see above")
            num_run += 1
    return num_run


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the RUN lines of the Dockerfile without Docker.")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="a build argument")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder to work in, which stays")
    options = parser.parse_args()
    given = {name: value for name, _, value in (each.partition("=") for each in options.arg)}
    lines = list(instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory(prefix="whet-docker-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{run(lines, given, folder)} RUN lines were run with {sys.version.split()[0]}; no image was built")


if __name__ == "__main__":
    main()
