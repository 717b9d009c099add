"""Environments to install into from nothing, for the checks of a release. uv gets the indexes that pip is set to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make_environment(folder: Path) -> Path:
    """A virtual environment of this Python. Gives its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    return folder / "bin"


def environment_for(programs: Path) -> dict[str, str]:
    """Variables for commands that use an environment alone: no checkout on the path, and pip's settings for uv."""
    outside = {"PYTHONPATH", "VIRTUAL_ENV", "UV_PYTHON"}
    variables = {name: value for name, value in os.environ.items() if name not in outside}
    variables["PATH"] = f"{programs}{os.pathsep}{variables.get('PATH', '')}"
    variables.setdefault("HF_HUB_OFFLINE", "1")
    settings = pip_settings()
    names = {"find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    for setting, variable in names.items():
        if setting in settings:
            variables.setdefault(variable, settings[setting].replace(" ", ","))
    return variables


def torch_backend(variables: Mapping[str, str]) -> str:
    """What `UV_TORCH_BACKEND` has to be for the CPU. Empty: a wheel of the pinned torch lies in find-links."""
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    for place in variables.get("UV_FIND_LINKS", "").split(","):
        if place and list(Path(place.removeprefix("file://")).glob(f"torch-{pinned[1]}[-+]*{tag}-*.whl")):
            return ""
    return "cpu"


def pip_settings() -> dict[str, str]:
    """pip's settings by name, whether of a file or of the environment, which comes first in pip's list."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        if match := re.fullmatch(r"(?::env:|global|install)\.([\w-]+)='(.*)'", line):
            settings.setdefault(match[1], match[2])
    return settings


def uv() -> str:
    """uv's path, beside this Python or on PATH.

    Raises: SystemExit where there is none.
    """
    beside = Path(sys.executable).with_name("uv")
    if place := beside if beside.exists() else shutil.which("uv"):
        return str(place)
    raise SystemExit("uv is not here: run `make setup`, or pip install uv")
