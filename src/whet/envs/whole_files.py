"""Files that are whole or not there: written aside, synced, and put in place."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from whet.envs.protocol import EnvError


def write_whole(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one. A link in its place is replaced, not followed.

    Raises: EnvError where the disk does not take it.
    """
    aside = write_aside(path, content)
    try:
        aside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _error(path, error) from error


def write_new(path: Path, content: bytes) -> bool:
    """As `write_whole`, but never over a file that is there: False, and nothing written, where one is."""
    aside = write_aside(path, content)
    try:
        os.link(aside, path)
        _sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise _error(path, error) from error
    finally:
        aside.unlink(missing_ok=True)
    return True


def write_aside(path: Path, content: bytes) -> Path:
    """The file beside `path` that holds the content, on the disk."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")  # of no other writer, here or elsewhere
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise _error(path, error) from error
    return aside


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _error(path: Path, error: OSError) -> EnvError:
    return EnvError(f"could not write {path}: {error.strerror or error}; make room, or name a folder that takes it")
