"""Writes files and folders that are whole or absent: written aside, synced to the disk, and renamed into place."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ASIDE = ".tmp"
"""The end of a name while its file is written: `.NAME.xxxxxxxxxxxxxxxx.tmp`, beside its place."""


def write_atomic(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one. A link in its place is replaced, not followed. Of two processes that
    write one file, the last one's content stands there, whole.

    Raises: OSError, with nothing left aside.
    """
    with _aside(path) as aside:
        _write(aside, content)
        aside.replace(path)
    sync([path.parent])


def write_new(path: Path, content: bytes) -> bool:
    """As `write_atomic`, but never over a file that is there: False, and nothing written, where one is.

    Raises: OSError, with nothing left aside.
    """
    with _aside(path) as aside:
        _write(aside, content)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
    sync([path.parent])
    return True


def write_link(path: Path, target: Path) -> None:
    """A symbolic link to a folder, in place of the link that is there.

    Raises: OSError, with nothing left aside.
    """
    with _aside(path) as aside:
        aside.symlink_to(target, target_is_directory=True)
        aside.replace(path)
    sync([path.parent])


@contextmanager
def whole_folder(path: Path, *, over: bool = False) -> Iterator[Path]:
    """Within the block, the folder to fill; after it, `path` is that folder, and every file of it is on the disk.

    Args:
        over: whether it may take the place of a folder that is not empty, which is gone then.
    Raises: OSError. Where the block fails too, `path` is as it was and nothing is left aside.
    """
    with _aside(path) as aside:
        aside.mkdir()
        yield aside
        # Renamed before its bytes are on the disk, a folder that a power cut emptied would stand where a whole one did.
        sync([aside, *aside.rglob("*")])
        if over and path.exists():
            with _aside(path) as old:
                path.rename(old)
                aside.rename(path)
        else:
            aside.rename(path)
    sync([path.parent])


def sync(places: Iterable[Path]) -> None:
    """Returns when these files and folders (their lists of names, that is) are on the disk."""
    for place in places:
        number = os.open(place, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A hidden name beside `path` that no other writer has. A file of that name is deleted after the block."""
    aside = path.absolute().with_name(f".{path.name}.{secrets.token_hex(8)}{ASIDE}")
    try:
        yield aside
    finally:
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
