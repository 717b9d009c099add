"""Builds the wheel and the sdist, looks into them, and installs the wheel where nothing else of whet is.

python scripts/release_check.py [--keep FOLDER] [--extras NAME,NAME]

It checks the metadata, the size, that every data file of the packages is there and nothing else, and then the commands
of a first try: --version, --help, list, config and a dry run. It uploads nothing.
"""

from __future__ import annotations

import argparse
import configparser
import os
import subprocess
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from fresh import ROOT, environment_for, make_environment, torch_backend, uv

MAX_WHEEL, MAX_SDIST = 20e6, 25e6
"""Bytes. The bundled models take 11 MB. An index takes 100 MB a file."""
COMMANDS = (
    ["--version"],
    ["--help"],
    ["list"],
    ["config", "critique_rl"],
    ["train", "critique_rl", "--dry-run"],
)


def project() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings


def packaged() -> dict[str, Path]:
    """The files that a wheel has to hold, by their names in it: what git knows, or would add, of our packages."""
    places = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z", *places],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    parents = {place: Path(place).parent for place in places}
    return {
        Path(name).relative_to(parent).as_posix(): ROOT / name
        for place, parent in parents.items()
        for name in names
        if name.startswith(f"{place}/")
    }


def content_problems(wheel: zipfile.ZipFile, expected: Mapping[str, Path]) -> Iterator[str]:
    """What a wheel lacks, has too much of, or has in another form."""
    found = {name for name in wheel.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    yield from (f"the wheel lacks {name}" for name in sorted(expected.keys() - found))
    yield from (f"the wheel has {name}, which git does not know" for name in sorted(found - expected.keys()))
    for name in sorted(found & expected.keys()):
        if wheel.read(name) != expected[name].read_bytes():
            yield f"{name} differs in the wheel"


def metadata_problems(metadata: Message, entry_points: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """What an index would refuse or show wrongly, and what is not as pyproject.toml has it."""
    wanted = {
        "Name": settings["name"],
        "Version": settings["version"],
        "Summary": settings["description"],
        "Requires-Python": settings["requires-python"],
        "License-Expression": settings["license"],
        "Description-Content-Type": "text/markdown",
    }
    for key, value in wanted.items():
        if metadata[key] != value:
            yield f"{key} is {metadata[key]!r} in the wheel, not {value!r}"
    if "LICENSE" not in metadata.get_all("License-File", []):
        yield "the wheel names no License-File LICENSE"
    if len(settings["description"]) > 512 or "\n" in settings["description"]:
        yield "an index takes a summary of one line and 512 characters"
    if not str(metadata.get_payload()).strip():
        yield "the wheel has no long description"
    if missing := set(settings["optional-dependencies"]) - set(metadata.get_all("Provides-Extra", [])):
        yield f"the wheel lacks the extras {', '.join(sorted(missing))}"
    points = configparser.ConfigParser()
    points.read_string(entry_points)
    if dict(points["console_scripts"]) != settings["scripts"]:
        yield f"the wheel's commands are {dict(points['console_scripts'])}, not {settings['scripts']}"


def size_problems(wheel: Path, sdist: Path) -> Iterator[str]:
    for file, limit in ((wheel, MAX_WHEEL), (sdist, MAX_SDIST)):
        if file.stat().st_size > limit:
            yield f"{file.name} has {file.stat().st_size / 1e6:.1f} MB, and {limit / 1e6:.0f} MB is the limit"


def sdist_problems(sdist: tarfile.TarFile, expected: Mapping[str, Path]) -> Iterator[str]:
    """What is missing to build the wheel from it, and what should not be in it."""
    names = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {file.relative_to(ROOT).as_posix() for file in expected.values()} | {
        "pyproject.toml",
        "README.md",
        "LICENSE",
    }
    yield from (f"the sdist lacks {name}" for name in sorted(needed - names))
    unwanted = [name for name in names if name.split("/")[0] in (".venv", "runs", "models", ".git")]
    yield from (f"the sdist has {name}" for name in sorted(unwanted)[:5])


def build(folder: Path) -> tuple[Path, Path]:
    """Builds the sdist, and the wheel from it, as an installer without a wheel would."""
    variables = environment_for(folder)
    subprocess.run([uv(), "build", "--quiet", "--out-dir", folder, ROOT], env=variables, check=True)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def look(wheel: Path, sdist: Path) -> list[str]:
    """All that is wrong with the two files."""
    settings, expected = project()["project"], packaged()
    problems = list(size_problems(wheel, sdist))
    with zipfile.ZipFile(wheel) as archive:
        [information] = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
        entry_points = archive.read(f"{information}/entry_points.txt").decode()
        problems += [*content_problems(archive, expected), *metadata_problems(metadata, entry_points, settings)]
    with tarfile.open(sdist) as archive_of_source:
        problems += sdist_problems(archive_of_source, expected)
    return problems


def try_out(wheel: Path, extras: str, folder: Path) -> None:
    """Installs the wheel into a new environment, and runs the commands outside of the checkout.

    Raises: SystemExit where one fails.
    """
    programs = make_environment(folder / "python")
    variables = environment_for(programs)
    if backend := torch_backend(variables):
        variables.setdefault("UV_TORCH_BACKEND", backend)
    target = f"whet-rl{f'[{extras}]' if extras else ''} @ {wheel.as_uri()}"
    install = [uv(), "pip", "install", "--quiet", "--compile-bytecode", "--python", programs / "python"]
    subprocess.run([*install, "-c", ROOT / "constraints.txt", target], env=variables, check=True)
    for command in COMMANDS:
        done = subprocess.run(
            [programs / "whet", *command], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        print(f"whet {' '.join(command)}: {'ok' if not done.returncode else done.returncode}", flush=True)
        if done.returncode:
            raise SystemExit(f"{done.stdout}{done.stderr}\nwhet {' '.join(command)} failed from the installed wheel")
    code = "import mathgrade, whet; print(mathgrade.__file__, whet.__file__)"
    used = subprocess.run(
        [programs / "python", "-c", code], cwd=folder, env=variables, capture_output=True, text=True, check=True
    ).stdout.split()
    if elsewhere := [place for place in used if not Path(place).is_relative_to(folder)]:
        raise SystemExit(f"{elsewhere[0]} was imported in place of what was installed")


def main() -> None:
    parser = argparse.ArgumentParser(description="Check what would be released.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for the wheel and the sdist")
    parser.add_argument("--extras", default="", metavar="NAME,NAME", help="extras to install with the wheel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whet-release-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary) / "dist"
        if folder.exists() and os.listdir(folder):
            parser.error(f"{folder} is not empty: give a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        wheel, sdist = build(folder)
        for file in (wheel, sdist):
            print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB", flush=True)
        if problems := look(wheel, sdist):
            raise SystemExit("\n".join(problems))
        try_out(wheel, options.extras, Path(temporary))
    print("the wheel and the sdist are whole, and the wheel works in an environment of its own; nothing was uploaded")


if __name__ == "__main__":
    main()
