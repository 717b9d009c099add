"""Writes files and folders that are whole or absent: written aside, synced to the disk, and renamed into place."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ASIDE = ".tmp"
"""The end of a name while its file is written: `.NAME.xxxxxxxxxxxxxxxx.tmp`, beside its place."""


def write_atomic(path: Path, content: bytes) -> None:
    """Writes a file. A reader sees the old content or the new one, and of two writers the last one wins.

    A link in its place is replaced, not followed. What killed writers of this file left aside is deleted.

    Raises: OSError, with nothing left aside.
    """
    _delete_left(path)
    is_written = False
    while not is_written:
        with _aside(path) as aside:
            is_written = _write(aside, content, path)
    sync([path.parent])


def write_link(path: Path, target: Path) -> None:
    """Makes a symbolic link to a folder. It replaces a link that is there.

    Raises: OSError, with nothing left aside.
    """
    with _aside(path) as aside:
        aside.symlink_to(target, target_is_directory=True)
        aside.replace(path)
    sync([path.parent])


@contextmanager
def whole_folder(path: Path, *, over: bool = False) -> Iterator[Path]:
    """Yields a folder to fill. After the block, `path` is that folder, and all its files are on the disk.

    Args:
        over: replace a folder that is there, even if it is not empty.
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
    """Returns once these files, and the lists of names of these folders, are on the disk."""
    for place in places:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Yields a hidden path beside `path` that no other writer has. What is there after the block is deleted."""
    aside = path.absolute().with_name(f".{path.name}.{secrets.token_hex(8)}{ASIDE}")
    try:
        yield aside
    finally:
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


def _write(aside: Path, content: bytes, path: Path) -> bool:
    """Writes the file aside and renames it. False: another writer took it for a killed one's before it was locked."""
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        with suppress(OSError):  # some network disks have no locks: there nothing is deleted either
            fcntl.flock(file, fcntl.LOCK_EX)
        if not os.fstat(file.fileno()).st_nlink:
            return False
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        aside.replace(path)
    return True


def _delete_left(path: Path) -> None:
    """Deletes files aside whose writers live no more: a living one holds a lock."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}{re.escape(ASIDE)}")
    with os.scandir(path.absolute().parent) as entries:
        left = [entry.path for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for place in left:
        with suppress(OSError), open(place, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(place)
