"""Files of a run folder: whole or absent, synced to disk, and never written through a link."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path

from whet import files
from whet.distribution import version
from whet.errors import RunError

BEST = "best"
"""The link in a finished run's folder to its best policy."""
TRACKING = "tracking"
"""The folder in a run's folder that holds what trackers write: their states, logs and, by default, their files. They
are no part of the run, which reads nothing from there."""
WATCHING = ("track", "callbacks.use", "callbacks.on_error")
"""Settings of who is told what a run does. They may change when it resumes, and make no other run of it."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_error(path: Path, error: OSError) -> RunError:
    """The error to raise where a file of a run cannot be written."""
    advice = "make room" if error.errno in DISK_FULL else "see to that"
    return RunError(
        f"could not write {path}: {error.strerror or error}; every whole checkpoint is kept: {advice}, then "
        "`whet resume` the run"
    )


def made_by(run: Path) -> str:
    """The version of whet that started a run, in words."""
    try:
        env = json.loads((run / "env.json").read_text(encoding="utf-8"))
        commit = env["commit"]
        return f"whet {env['whet']}" + (f" (commit {commit[:12]})" if isinstance(commit, str) else "")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "a whet that env.json does not name"


def older_layout(run: Path, evidence: Path) -> str:
    """The error message for a run of another layout.

    Args:
        evidence: the file or folder that shows it.
    """
    return (
        f"{evidence} has a layout that this whet ({version()}) does not read: it was written by {made_by(run)}; "
        "install that one for it, or start another run"
    )


def as_bytes(text: str) -> bytes:
    """UTF-8. A lone surrogate, which models write, becomes an escape that JSON reads back."""
    return text.encode(errors="backslashreplace")


def write_atomic(path: Path, text: str, *, of_run: bool = True) -> None:
    """`files.write_atomic` of a text.

    Args:
        of_run: False: it lies where the user said, and no run waits for it.
    Raises: RunError where it cannot be written.
    """
    try:
        files.write_atomic(path, as_bytes(text))
    except OSError as error:
        if of_run:
            raise disk_error(path, error) from error
        advice = "make room" if error.errno in DISK_FULL else "choose another file"
        raise RunError(f"could not write {path}: {error.strerror or error}; {advice}") from error


def check_places(run: Path, names: Iterable[str], folders: Iterable[str]) -> None:
    """Check that a run writes only into plain files and folders, and through no links. The run folder itself may be a
    link.

    Raises: RunError naming the first other one.
    """
    for name in names:
        _check_place(run / name, is_folder=False)
    for name in folders:
        _check_place(run / name, is_folder=True)
        for root, inner_folders, inner_files in os.walk(run / name):
            for inner in inner_folders:
                _check_place(Path(root, inner), is_folder=True)
            for inner in inner_files:
                _check_place(Path(root, inner), is_folder=False)


def _check_place(path: Path, *, is_folder: bool) -> None:
    kind = "folder" if is_folder else "file"
    if path.is_symlink():
        raise RunError(
            f"{path} is a symbolic link, and a run writes through none: put the {kind} itself there, or delete the link"
        )
    if path.exists() and not (path.is_dir() if is_folder else path.is_file()):
        raise RunError(f"{path} is no plain {kind}: move it away")
