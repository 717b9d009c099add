"""What `whet eval --strategy` keeps in a run's `eval/`: every completion, so that none is sampled twice, and what the
strategies came to."""

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


def keep_beside_earlier(
    run: Path,
    place: str,
    record: Mapping[str, Any],
    traces: Sequence[Mapping[str, Any]],
    changed: Sequence[str],
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Write a record and its traces into the run's `eval/`, with the strategies and budgets that were measured before
    of the same weights in the same way; what was measured otherwise is set aside.

    Args:
        place: of the files, without their endings.
        changed: settings other than the run's, `key=value`.
        warn: is told of a file that holds no record, which is set aside too.
    Returns: the record as it is written.
    Raises: RunError.
    """
    found: dict[str, Any] = json.loads(json.dumps({"weights": _weights(run), "changed": changed, **record}))
    folder = eval_folder(run)
    old = _earlier(folder / f"{place}.json")
    if old is None:
        aside = _set_aside(folder, place)
        warn(f"{folder / place}.json holds no record of strategies: it is now {aside}, and a new one was begun")
        old = {}
    try:
        rows = readable((folder / f"{place}.traces.jsonl").read_bytes())
    except OSError:
        rows = []
    if {k: v for k, v in old.items() if k != "strategies"} == {k: v for k, v in found.items() if k != "strategies"}:
        before = {name: each for name, each in old["strategies"].items() if name not in found["strategies"]}
        for name, each in found["strategies"].items():
            each["points"] = _with_points(old["strategies"].get(name, {}).get("points", ()), each["points"])
        found["strategies"] = before | found["strategies"]
        traces = [*(each for each in rows if each.get("strategy") in before), *traces]
    elif old:
        _set_aside(folder, place)
    keep(run, place, found, traces)
    return found


def _earlier(file: Path) -> dict[str, Any] | None:
    """The record in a file; empty where there is none, None where the file holds something else."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        points = [point for each in record["strategies"].values() for point in each["points"]]
        return record if all(type(point["budget"]) is int for point in points) else None
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _with_points(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By budget, the new ones before old ones of the same."""
    return [point for _, point in sorted({each["budget"]: each for each in (*old, *new)}.items())]


def _set_aside(folder: Path, place: str) -> Path:
    """Into `earlier/`, under the next free number: it was measured of other weights, or in another way.

    Returns: where the record is now.
    """
    earlier = folder / "earlier"
    try:
        earlier.mkdir(exist_ok=True)
        number = 1 + sum(1 for _ in earlier.glob(f"{glob.escape(place)}.*.json"))
        for ending in ("json", "traces.jsonl"):
            if (folder / f"{place}.{ending}").exists():
                (folder / f"{place}.{ending}").replace(earlier / f"{place}.{number}.{ending}")
    except OSError as error:
        raise disk_error(earlier, error) from error
    return earlier / f"{place}.{number}.json"


def _weights(run: Path) -> str:
    """Names the weights of a run's newest whole checkpoint."""
    saved, _ = newest_whole(run)
    if saved is None:  # `measuring` has said so
        raise RunError(f"{run} has no checkpoint yet")
    return digest(saved / MANIFEST)[:12]


class _File:
    """Completions in a file that only grows, a line each; a torn last line is cut off."""

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
            "key": key, "tokens": completion.tokens, "stop": completion.stop_reason, "version": completion.version
        }  # fmt: skip
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
    """For as long as the process lives."""

    def put(self, key: str, completion: Completion) -> None:
        self[key] = completion


@contextmanager
def ledger(run: Path | None, models: Sequence[str]) -> Iterator[Ledger]:
    """Of the weights that are measured: another checkpoint has another file.

    Args:
        models: settings that put another model in the place of one of the run's, which has another file too.
    """
    if run is None:
        yield _Memory()
        return
    which = sha256(repr((_weights(run), sorted(models))).encode()).hexdigest()[:12]
    file = _File(eval_folder(run) / f"samples-{which}.jsonl")
    try:
        yield file
    finally:
        file.close()
