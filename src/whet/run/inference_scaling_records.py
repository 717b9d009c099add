"""What `whet eval --strategy` writes into a run's `eval/`: records of strategies, and a cache of all samples."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from whet.digests import digest
from whet.errors import RunError
from whet.rollout.samples import Ledger
from whet.run.evaluate import eval_folder, keep
from whet.run_folder.files import as_bytes, disk_error
from whet.run_folder.logs import readable
from whet.trainer.checkpoint import MANIFEST, newest_whole
from whet.types import Completion, StopReason


def write_record(
    run: Path,
    name: str,
    record: Mapping[str, Any],
    traces: Sequence[Mapping[str, Any]],
    changed: Sequence[str],
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Writes a record and its traces into the run's `eval/`, merged with an earlier record.

    The two are merged where they measure the same weights in the same way: other strategies and budgets of the earlier
    record stay. An earlier record of something else is moved to `eval/earlier/`.

    Args:
        name: of the files, without their endings.
        changed: settings other than the run's, `key=value`.
        warn: called with a sentence where a file in its place holds no record. That file is moved too.
    Returns: the record as it is written.
    Raises: RunError where the disk refuses, or the run has no checkpoint.
    """
    new: dict[str, Any] = json.loads(json.dumps({"weights": _weights(run), "changed": changed, **record}))
    folder = eval_folder(run)
    old = _read_record(folder / f"{name}.json")
    if old is None:
        aside = _set_aside(folder, name)
        warn(f"{folder / name}.json holds no record of strategies: it is now {aside}, and a new one was begun")
        old = {}
    try:
        old_traces = readable((folder / f"{name}.traces.jsonl").read_bytes())
    except OSError:
        old_traces = []
    if _without_strategies(old) == _without_strategies(new):
        others = {label: curve for label, curve in old["strategies"].items() if label not in new["strategies"]}
        for label, curve in new["strategies"].items():
            curve["points"] = _merged_points(old["strategies"].get(label, {}).get("points", ()), curve["points"])
        new["strategies"] = others | new["strategies"]
        traces = [*(trace for trace in old_traces if trace.get("strategy") in others), *traces]
    elif old:
        _set_aside(folder, name)
    keep(run, name, new, traces)
    return new


def _read_record(file: Path) -> dict[str, Any] | None:
    """The record in a file. Empty: there is no file. None: it holds something else."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        points = [point for curve in record["strategies"].values() for point in curve["points"]]
        return record if all(type(point["budget"]) is int for point in points) else None
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _without_strategies(record: Mapping[str, Any]) -> dict[str, Any]:
    """How a record was measured."""
    return {key: value for key, value in record.items() if key != "strategies"}


def _merged_points(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points of both, by budget. A new point replaces an old one of its budget."""
    return [point for _, point in sorted({point["budget"]: point for point in (*old, *new)}.items())]


def _set_aside(folder: Path, name: str) -> Path:
    """Moves a record and its traces into `earlier/`, under the next free number.

    Returns: the record's new path.
    """
    earlier = folder / "earlier"
    try:
        earlier.mkdir(exist_ok=True)
        number = 1 + sum(1 for _ in earlier.glob(f"{glob.escape(name)}.*.json"))
        for ending in ("json", "traces.jsonl"):
            if (folder / f"{name}.{ending}").exists():
                (folder / f"{name}.{ending}").replace(earlier / f"{name}.{number}.{ending}")
    except OSError as error:
        raise disk_error(earlier, error) from error
    return earlier / f"{name}.{number}.json"


def _weights(run: Path) -> str:
    """Identifies the weights of a run's newest whole checkpoint."""
    saved, _ = newest_whole(run)
    if saved is None:  # `measuring` has refused it before
        raise RunError(f"{run} has no checkpoint yet")
    return digest(saved / MANIFEST)[:12]


class _File:
    """A cache of completions in a file that only grows, one a line. A torn last line is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]
            self._file = path.open("ab")
            if len(whole) < len(data):
                self._file.truncate(len(whole))
        except OSError as error:
            raise disk_error(path, error) from error
        self._known = {row["key"]: row for row in readable(whole) if _is_sample(row)}

    def get(self, key: str) -> Completion | None:
        row = self._known.get(key)
        if row is None:
            return None
        return Completion(tokens=tuple(row["tokens"]), logprobs=(), stop_reason=row["stop"], version=row["version"])

    def put(self, key: str, completion: Completion) -> None:
        row = {
            "key": key,
            "tokens": completion.tokens,
            "stop": completion.stop_reason,
            "version": completion.version,
        }
        self._known[key] = row
        try:
            self._file.write(as_bytes(json.dumps(row) + "\n"))
            self._file.flush()
        except OSError as error:
            raise disk_error(self.path, error) from error

    def close(self) -> None:
        self._file.close()


def _is_sample(row: Mapping[str, Any]) -> bool:
    tokens = row.get("tokens")
    return (
        isinstance(row.get("key"), str)
        and isinstance(tokens, list)
        and all(type(token) is int and token >= 0 for token in tokens)
        and row.get("stop") in get_args(StopReason)
        and type(row.get("version")) is int
    )


class _Memory(dict[str, Completion]):
    """A cache of completions that lasts as long as the process."""

    def put(self, key: str, completion: Completion) -> None:
        self[key] = completion


@contextmanager
def sample_cache(run: Path | None, models: Sequence[str]) -> Iterator[Ledger]:
    """The cache of a run's samples. Each checkpoint has a file of its own. Without a run, the cache is in memory.

    Args:
        models: settings that replace a model of the run, `key=value`. They have a file of their own too.
    Raises: RunError where the file cannot be opened.
    """
    if run is None:
        yield _Memory()
        return
    identity = sha256(repr((_weights(run), sorted(models))).encode()).hexdigest()[:12]
    cache = _File(eval_folder(run) / f"samples-{identity}.jsonl")
    try:
        yield cache
    finally:
        cache.close()
