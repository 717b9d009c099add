"""The package index's `whet` is another owner's: nothing of ours leads there, and what installs ours works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import whet
from whet import distribution

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SPEAKING = ("src", "docs", "tests", "benchmarks", "examples", "scripts")
SUFFIXES = {".py", ".md", ".sh", ".txt", ".yaml", ".toml", ".j2", ".html"}
INSTALLS = re.compile(
    r"\b(?:pipx?3?|uvx?)\s+(?:tool\s+|pip\s+)?(?:install|add|download|run|wheel)\s+"  # then options
    r"(?:--?[\w-]+(?:[= ][\w./-]+)?\s+)*?[\"'`]?(?:whet)(?=[\s\"'`\[=<>~!;,.)]|$)"
)
BRACKETS = re.compile(r"(?<![\w.])whet\[[a-z]+[\],]")
NAMED = re.compile(r"EXTRAS=([a-z,]+)|-e\s+['\"]?\.\[([a-z,]+)\]|how_to_install\(['\"]([a-z]+)['\"]")


def texts() -> dict[str, str]:
    """All that we say, lines joined, so that a command that wraps is found too."""
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
    files += [file for room in SPEAKING for file in (ROOT / room).rglob("*") if file.suffix in SUFFIXES]
    return {
        str(file.relative_to(ROOT)): re.sub(r"\n[ \t]*#?[ \t]*", " ", file.read_text(encoding="utf-8"))
        for file in files
        if file != Path(__file__) and "results" not in file.parts
    }


@pytest.mark.parametrize(
    "command",
    ["pip install whet", "pip install 'whet[serve]'", "uv pip install -q whet==0.2", "pip install -U \"whet\"",
     "uv add whet", "uvx run whet", "needs `pip install whet`.", "pip install --no-deps -q whet"],
)  # fmt: skip
def test_what_would_install_the_other_whet_is_seen(command):
    assert INSTALLS.search(command)


@pytest.mark.parametrize(
    "command",
    ["pip install -e '.[serve]'", "pip install whetstone", "pip install whet-rl", "uv pip install ./whet/", "whet get"],
)
def test_what_would_not_is_not(command):
    assert not INSTALLS.search(command)
    assert not BRACKETS.search(command)


def test_nothing_we_say_installs_the_other_whet():
    found = texts()
    assert len(found) > 400
    assert not [
        (place, match.group())
        for place, text in found.items()
        for pattern in (INSTALLS, BRACKETS)
        for match in pattern.finditer(text)
    ]


def test_every_extra_that_a_hint_names_is_there():
    named = {
        extra: place
        for place, text in texts().items()
        for match in NAMED.finditer(text)
        for extra in "".join(each or "" for each in match.groups()).strip(",").split(",")
    }
    assert {"serve", "envs", "data", "endpoint", "gym", "sciworld"} <= named.keys()
    assert not {extra: place for extra, place in named.items() if extra not in EXTRAS}


def test_the_distribution_has_a_name_of_its_own_and_the_import_stays():
    assert PROJECT["name"] == distribution.NAME != "whet"
    assert PROJECT["scripts"] == {"whet": "whet.cli:main"}
    assert whet.__version__ == distribution.version() == metadata.version(distribution.NAME) == PROJECT["version"]


def test_whether_an_extra_is_installed_is_known(monkeypatch):
    assert distribution.has_extra("serve")  # the tests need what it needs
    assert not distribution.has_extra("no_such_extra")
    real = metadata.version

    def without_uvicorn(name: str) -> str:
        if name == "uvicorn":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", without_uvicorn)
    assert not distribution.has_extra("serve")
    assert distribution.how_to_install("serve", "envs") == (
        "in whet's checkout, `make setup EXTRAS=serve,envs`, or pip install -e '.[serve,envs]'"
    )


@pytest.fixture
def checkout(tmp_path):
    """What `make setup` reads, with an environment whose installer writes down what it is asked for. Its Python has a
    pip without settings, which starts in no time."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (
        ("python", f'case "$*" in "-m pip config get "*) exit 1 ;; esac\nexec "{sys.executable}" -I -S "$@"'),
        ("uv", f'echo "$@" >> "{tmp_path}/asked.txt"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def setup(checkout: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code of `make setup`, the extras that were asked for, and what it said."""
    asked = checkout / "asked.txt"
    asked.unlink(missing_ok=True)
    python = str(checkout / ".venv" / "bin" / "python")
    done = subprocess.run(
        ["make", "setup", *arguments], cwd=checkout, capture_output=True, text=True, check=False,
        env={**os.environ, "UV_TORCH_BACKEND": "", "PYTHON": python, "MAKEFLAGS": "", "MAKELEVEL": ""},
    )  # fmt: skip
    lines = asked.read_text().splitlines() if asked.exists() else []
    return done.returncode, [line.rpartition(" -e ")[2] for line in lines], done.stdout + done.stderr


def test_extras_are_installed_once_and_stay(checkout):
    assert setup(checkout)[:2] == (0, [".[envs]"])
    assert setup(checkout)[:2] == (0, [])
    assert setup(checkout, "EXTRAS=serve,envs")[:2] == (0, [".[serve,envs]"])
    assert setup(checkout, "EXTRAS=envs")[:2] == (0, [])
    assert setup(checkout)[:2] == (0, [])
    assert setup(checkout, "EXTRAS=data")[:2] == (0, [".[data,envs,serve]"])
    later = os.stat(checkout / ".venv" / ".installed").st_mtime + 10
    os.utime(checkout / "pyproject.toml", (later, later))
    assert setup(checkout)[:2] == (0, [".[envs,data,serve]"])  # a new pyproject.toml loses none


def test_the_tests_own_extra_goes_with_others(checkout):
    assert setup(checkout, "EXTRAS=dev,serve")[:2] == (0, [".[envs,dev,serve]", ".[gym]"])
    assert setup(checkout, "EXTRAS=gym")[:2] == (0, [".[gym,dev,envs,serve]"])


def test_an_extra_that_is_not_there_is_refused_by_name(checkout):
    code, asked, said = setup(checkout, "EXTRAS=serv")
    assert code != 0
    assert not asked
    assert "there is no extra 'serv': choose of dev data serve" in said
    assert setup(checkout)[:2] == (0, [".[envs]"])
