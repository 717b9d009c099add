"""What a tracker can do, and the trackers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from whet.distribution import how_to_install
from whet.errors import WhetError
from whet.report.records import TraceRecord

MAX_TEXT = 20_000
"""Characters of one text of a trace that are sent. The middle of a longer one is left out."""


class TrackError(WhetError):
    """A run cannot be tracked: one sentence that says why and what to do."""


def is_folder(path: Path) -> TrackError:
    """The error to raise where a folder is in the place of a run's file."""
    return TrackError(f"{path} is a folder, where a run has a file: move it away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a tracker sends a run."""

    project: str | None = None
    """The project's name. None: what the environment says, else `whet`."""
    folder: Path
    """The folder for its files."""
    is_default: bool = True
    """Whether nobody named the folder. trackio then uses its own."""
    run_id: str
    """Identifies the run: the same after each resume, another one for a run started anew in its place."""


class Tracker(Protocol):
    """Receives one run. A follower calls `begin` before anything else, and `end` last.

    Each call may raise or hang: the run is in another process.
    """

    def begin(self, config: Mapping[str, Any], name: str, next_step: int) -> None:
        """Open the run, or continue it after an earlier `end`.

        Args:
            config: the run's settings.
            next_step: the first step that comes. What the tracker has from there on was sent by a follower that was
                killed before it could note so.
        """

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers of one step by name, such as `train/reward/mean`. Steps never fall."""

    def traces(self, step: int, episodes: Sequence[TraceRecord]) -> None:
        """Some episodes of one step."""

    def table(self, name: str, rows: Sequence[Mapping[str, float | str | None]]) -> None:
        """A whole table: each row by column."""

    def alert(self, level: str, sentence: str) -> None:
        """A sentence for the user's attention. Levels: warning, error."""

    def flush(self) -> None:
        """Return once everything so far survives a kill of this process."""

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Close the run. None: it has no summary, as it has not finished."""


KINDS = {
    "tensorboard": "whet.tracking.to_tensorboard:TensorBoard",
    "trackio": "whet.tracking.to_trackio:Trackio",
    "wandb": "whet.tracking.to_wandb:WandB",
    "mlflow": "whet.tracking.to_mlflow:MLflow",
}
"""Trackers by name: each is also the name of its package and of the extra. Imported when they are needed."""


def check_kind(kind: str) -> None:
    """Raises: TrackError where there is no such tracker."""
    if kind not in KINDS:
        raise TrackError(f"there is no tracker {kind[:60]!r}: choose of {', '.join(KINDS)}")


def missing(kind: str) -> str | None:
    """A sentence on the package that a tracker needs. None: it is installed."""
    if find_spec(kind) is not None:
        return None
    return f"the tracker {kind} needs the package {kind}: {how_to_install(kind)}"


def make(kind: str, destination: Destination) -> Tracker:
    """A tracker by name.

    Raises: TrackError where there is none, or where its package is missing or cannot be imported.
    """
    check_kind(kind)
    if problem := missing(kind):
        raise TrackError(problem)
    module, _, name = KINDS[kind].partition(":")
    try:
        tracker: Tracker = getattr(import_module(module), name)(destination)
    except ImportError as error:
        raise TrackError(f"the tracker {kind} cannot be loaded ({error}): {how_to_install(kind)}") from error
    return tracker
