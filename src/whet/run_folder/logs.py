"""The logs of a run: files of lines that only grow.

Each has a running digest, so that a checkpoint can identify its bytes without reading them again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from whet.errors import RunError
from whet.files import sync
from whet.run_folder.files import as_bytes, disk_error, write_atomic

EVENTS = "events.jsonl"
"""The log of events. It belongs to no checkpoint and is never cut, as it records what happened."""
LOGS = ("metrics.jsonl", "answers.jsonl", "arrivals.jsonl", "async.jsonl")
"""The logs of steps, beside those of traces."""
Mark = Mapping[str, Any]
"""`bytes` and `sha256` of a log at a checkpoint."""


@dataclass
class Extent:
    """The length of a log in bytes, and its running digest."""

    length: int = 0
    sha: Any = field(default_factory=hashlib.sha256)

    def add(self, data: bytes) -> None:
        self.length += len(data)
        self.sha.update(data)

    def mark(self) -> Mark:
        return {"bytes": self.length, "sha256": self.sha.hexdigest()}


class Logs:
    """Appends lines to the logs, and cuts them back to a checkpoint. A cut never lengthens a log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, BinaryIO] = {}
        self._extents: dict[str, Extent] = {}

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one line of JSON.

        Raises: RunError where it cannot be written.
        """
        line = as_bytes(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        try:
            if name not in self._files:
                self._files[name] = self._open(name)
            _write(self._files[name], line)
        except OSError as error:
            raise disk_error(self.root / name, error) from error
        self._extents[name].add(line)

    def put(self, name: str, text: str) -> None:
        """Write a whole file, which belongs to checkpoints like the others."""
        write_atomic(self.root / name, text)
        self._extents[name] = _extent(as_bytes(text))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log. Lines that are no JSON object are left out; only logs accepted with changes have them.

        Raises: RunError where the file was altered since this run wrote it.
        """
        path = self.root / name
        data = path.read_bytes() if path.exists() else b""
        extent = self._extents.get(name)
        if extent is not None and _extent(data).mark() != extent.mark():
            raise RunError(f"{path} was altered while the run wrote it: `whet resume` goes on from what is whole")
        return readable(data)

    def marks(self) -> dict[str, Mark]:
        """Sync every log to disk, and return its mark."""
        try:
            for name, file in self._files.items():
                if name != EVENTS:
                    os.fsync(file.fileno())
            sync([self.root, self.root / "traces"])
        except OSError as error:
            raise disk_error(self.root, error) from error
        return {name: self._extents[name].mark() for name in sorted(self._extents) if name != EVENTS}

    def misfit(self, marks: Mapping[str, Mark]) -> str | None:
        """The first difference of the logs from a checkpoint's marks. None: they begin with just those bytes."""
        for name, mark in marks.items():
            path = self.root / name
            if not path.exists():
                return f"{name} is gone"
            data = _start(path, mark["bytes"])
            if len(data) < mark["bytes"]:
                return f"{name} is shorter than it was ({len(data)} of {mark['bytes']} bytes)"
            if _extent(data).mark() != mark:
                return f"{name} was altered (its first {mark['bytes']} bytes are others)"
        return None

    def rewind(self, marks: Mapping[str, Mark]) -> None:
        """Cut the logs back to these marks. Logs without a mark did not exist then, and are deleted. One that does not
        reach its mark is cut to its last whole line."""
        self.close()
        for path in [*(self.root / name for name in LOGS), *(self.root / "traces").glob("*.jsonl")]:
            name = str(path.relative_to(self.root))
            try:
                if name not in marks:
                    path.unlink(missing_ok=True)
                elif path.exists():
                    data = _start(path, marks[name]["bytes"])
                    data = data[: data.rfind(b"\n") + 1]
                    os.truncate(path, len(data))
                    self._extents[name] = _extent(data)
            except OSError as error:
                raise disk_error(path, error) from error

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._extents.clear()

    def _open(self, name: str) -> BinaryIO:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        file: BinaryIO = os.fdopen(os.open(self.root / name, flags, 0o666), "a+b", buffering=0)
        if name not in self._extents:
            file.seek(0)
            self._extents[name] = _extent(file.read())
            if name == EVENTS and not _ends_a_line(file):  # a kill or a full disk cut its last line
                _write(file, b"\n")
        return file


def readable(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects among the lines."""
    rows = []
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _write(file: BinaryIO, data: bytes) -> None:
    """Write all of it: an unbuffered file may take less at a time. A buffer would be written at closing."""
    while data:
        data = data[file.write(data) :]


def _start(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        return file.read(length)


def _extent(data: bytes) -> Extent:
    extent = Extent()
    extent.add(data)
    return extent


def _ends_a_line(file: BinaryIO) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
