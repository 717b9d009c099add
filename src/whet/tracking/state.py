"""What a tracker has of a run, in a small file in the run's folder. It outlives the follower, and cuts of the logs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from whet.files import write_atomic
from whet.run_folder.files import TRACKING
from whet.run_folder.logs import EVENTS
from whet.tracking.protocol import TrackError, is_folder

WAIT_S = 1.0
"""Seconds between two tries to get a lock."""


@dataclass
class Sent:
    """What one tracker has of one run."""

    run: str = ""
    """`identity_of` the run."""
    run_id: str = ""
    """See `Destination`."""
    steps: dict[str, int] = field(default_factory=dict)
    """The last step of each phase. A phase's steps are sent in order, so it has all before."""
    num_events: int = 0
    """Lines of events.jsonl that were read for alerts."""
    notes: list[str] = field(default_factory=list)
    """Keys of the health notes that became alerts."""
    summary: str = ""
    """The digest of the summary whose table was sent. Empty: none was."""

    def has(self, phase: str, step: int) -> bool:
        """Whether the tracker has a step, whatever a resumed run has written of it since."""
        return step <= self.steps.get(phase, -1)


def identity_of(run: Path) -> str:
    """Identifies a run by the first line of its events, which no resume changes. Empty: it has none yet.

    Raises: TrackError where a folder is in the place of the file.
    """
    try:
        with (run / EVENTS).open("rb") as file:
            line = file.readline(1_000_000)
    except IsADirectoryError as error:
        raise is_folder(run / EVENTS) from error
    except FileNotFoundError:
        return ""
    return sha256(line).hexdigest()[:16] if line.endswith(b"\n") else ""


def load(file: Path, run: Path) -> Sent:
    """What a tracker has of the run. Nothing, where the file is of another run that was in this folder."""
    identity = identity_of(run)
    try:
        sent = Sent(**json.loads(file.read_text(encoding="utf-8")))
        is_whole = _is_whole(sent)
    except (OSError, ValueError, TypeError, RecursionError):  # no file, or a damaged one
        is_whole = False
    if is_whole and sent.run == identity:
        return sent
    run_id = sha256(f"{identity} {run.resolve()}".encode(errors="replace")).hexdigest()[:12]
    return Sent(run=identity, run_id=run_id)


def _is_whole(sent: Sent) -> bool:
    """Whether every value has its type."""
    steps = isinstance(sent.steps, Mapping) and all(type(step) is int for step in sent.steps.values())
    texts = all(isinstance(text, str) for text in (sent.run, sent.run_id, sent.summary))
    return steps and texts and type(sent.num_events) is int and isinstance(sent.notes, list)


def save(file: Path, sent: Sent) -> None:
    """Write what a tracker has.

    Raises: OSError.
    """
    write_atomic(file, json.dumps(asdict(sent)).encode())


def state_file(run: Path, kind: str, place: str) -> Path:
    """The file of a tracker's state.

    Args:
        place: where the tracker sends to, if it is not the default. Each place has a file of its own.
    """
    suffix = f"-{sha256(place.encode(errors='replace')).hexdigest()[:8]}" if place else ""
    return run / TRACKING / f"{kind}{suffix}.json"


@contextmanager
def locked(file: Path, wait: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock beside a state file, so that no two followers send the same steps.

    Args:
        wait: whether to wait on where another process has it.
    Raises: TrackError where another process has it, or the folder cannot be written.
    """
    place = file.with_suffix(".lock")
    try:
        place.parent.mkdir(exist_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise TrackError(f"cannot write {place} ({error.strerror}): a tracker notes there what it has sent") from error
    try:
        while not _try_lock(descriptor):
            if not wait():
                raise TrackError(f"another process sends this run to {file.stem}: wait for it, or end it")
            time.sleep(WAIT_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
