"""What a run's end says to do next works in the environment that the run was made in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from support.commands import ENVIRONMENT
from whet.cli.chat import HELP
from whet.cli.console import out, program
from whet.cli.train import _show_next
from whet.methods.registry import preset_of

SCRIPT = Path(sys.executable).with_name("whet")


def without_whet() -> str:
    """PATH, less the folders that have a whet."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(each for each in folders if not shutil.which("whet", path=each))


def shown(folder: Path, name: str) -> list[str]:
    with out.capture() as capture:
        _show_next(folder, "policy", preset_of(name).algorithm.spec)
    text = capture.get()
    return [line.strip() for line in text[text.index("next:") :].splitlines()[1:] if line.strip()]


@pytest.mark.parametrize("name", ["critique_rl", "grpo", "agent_grpo", "auto_critique"])
def test_each_line_begins_with_a_program_that_this_shell_finds(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", without_whet())
    monkeypatch.chdir(tmp_path)
    lines = shown(tmp_path / "run", name)
    assert len(lines) == 3
    for line in lines:
        who, command = line.split()[:2]
        done = subprocess.run(
            f"{who} {command} --help", shell=True, capture_output=True, text=True, env={**ENVIRONMENT, **os.environ},
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"whet {command}" in done.stdout


def test_the_program_is_called_as_this_shell_can(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", without_whet())
    monkeypatch.chdir(SCRIPT.parents[2])
    assert program() == os.path.relpath(SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert program() == str(SCRIPT)
    monkeypatch.setenv("PATH", str(SCRIPT.parent))
    assert program() == "whet"
    another = tmp_path / "whet"  # of another environment
    another.write_text("#!/bin/sh\n")
    another.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == str(SCRIPT)


def test_serving_says_what_it_needs_only_where_that_is_missing(monkeypatch, tmp_path):
    def serving() -> str:
        return next(line for line in shown(tmp_path / "run", "grpo") if " serve " in line)

    assert "EXTRAS" not in serving()
    real = metadata.version

    def version(name: str) -> str:
        if name == "fastapi":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert serving().endswith("an OpenAI-compatible endpoint; first `make setup EXTRAS=serve` in whet's checkout")


def test_the_help_of_a_chat_fits_into_80_columns():
    assert max(map(len, HELP.splitlines())) <= 80
