"""The digest that identifies a file: of a model, a plug-in's module, a checkpoint's parts, a benchmark's data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO, TextIOWrapper
from pathlib import Path

_DIGESTS: ContextVar[dict[str, str] | None] = ContextVar("digests", default=None)
"""Where `read_bytes` records digests, if anywhere."""


def digest(path: Path) -> str:
    """Sha256 of a file, in hex.

    Raises: OSError where it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bytes(path: str | Path) -> bytes:
    """A file's bytes. Inside `recorded_reads`, their digest is recorded.

    Raises: OSError where it cannot be read.
    """
    content = Path(path).read_bytes()
    record_read(path, hashlib.sha256(content).hexdigest())
    return content


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """A file's text, with `\\n` for any kind of line end; as `read_bytes`.

    Raises: OSError; UnicodeDecodeError.
    """
    return TextIOWrapper(BytesIO(read_bytes(path)), encoding=encoding).read()


def record_read(path: str | Path, sha256: str) -> None:
    """Records the digest of a file whose bytes were read otherwise. Without effect outside of `recorded_reads`."""
    digests = _DIGESTS.get()
    if digests is not None:
        digests[str(path)] = sha256


@contextmanager
def recorded_reads(digests: dict[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Gives digests by path of the files that `read_bytes` reads meanwhile, in this thread.

    They are those of the bytes that were read. A file that changes later does not change them.

    Args:
        digests: those of earlier reads, which get the new ones too.
    """
    digests = {} if digests is None else digests
    token = _DIGESTS.set(digests)
    try:
        yield digests
    finally:
        _DIGESTS.reset(token)
