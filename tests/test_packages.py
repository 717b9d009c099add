"""whet is installed with mathgrade, a package of this repository that no index has: one wheel carries both."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import mathgrade
import whet
from whet.distribution import NAME

ROOT = Path(__file__).parents[1]
PACKAGES = sorted((ROOT / "packages").glob("*/pyproject.toml"))


def settings(file: Path) -> dict:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def test_whets_wheel_carries_every_package_and_needs_what_it_needs() -> None:
    whole = settings(ROOT / "pyproject.toml")
    wheel = whole["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert PACKAGES
    for file in PACKAGES:
        own = settings(file)
        places = own["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        folder = file.parent.relative_to(ROOT)
        assert {(folder / place).as_posix() for place in places} <= set(wheel["packages"])
        assert {(folder / place).parent.as_posix() for place in places} <= set(wheel["dev-mode-dirs"])
        assert set(own["project"]["dependencies"]) <= set(whole["project"]["dependencies"])
        for key in ("requires-python", "version", "license"):
            assert own["project"][key] == whole["project"][key], key
        assert (file.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_whet_asks_no_index_for_its_own_packages() -> None:
    """The names may be another owner's there."""
    ours = {settings(file)["project"]["name"] for file in PACKAGES} | {"mathgrade"}
    needed = {requirement.split("[")[0].split(">")[0].strip() for requirement in metadata.requires(NAME) or ()}
    assert "math-verify" in needed
    assert not ours & needed


def test_the_tests_run_this_checkout() -> None:
    """Not a copy that was installed beside it, which would come first on the path."""
    assert Path(mathgrade.__file__).is_relative_to(ROOT / "packages" / "mathgrade")
    assert Path(whet.__file__).is_relative_to(ROOT / "src")
