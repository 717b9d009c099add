"""The digest that identifies a file: of a model, a plug-in's module, a checkpoint's parts."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(path: Path) -> str:
    """Sha256 of a file, in hex.

    Raises: OSError where it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
