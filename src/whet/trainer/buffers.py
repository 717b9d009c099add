"""The store: a run's named queues of rows, episodes and tasks, which later steps and phases read.

A queue is first in, first out, in batches with a key each. Every checkpoint holds the store to the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from whet.types import Episode, Grade, Row, Segment, Task

T = TypeVar("T", Row, Episode, Task)


# --- queues -----------------------------------------------------------------------------------------------------------


@dataclass
class Queue(Generic[T]):
    """Batches of records by key, oldest first."""

    batches: dict[str, list[T]] = field(default_factory=dict)

    def put(self, key: str, records: Sequence[T]) -> None:
        """Add a batch. One with the same key is replaced, and its place in the order stays."""
        self.batches[key] = list(records)

    def take(self, key: str | None = None) -> list[T]:
        """Remove and return the batch with this key. None: the oldest batch.

        Raises: KeyError where there is none.
        """
        return self.batches.pop(next(iter(self.batches), "") if key is None else key)

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.batches)

    def __iter__(self) -> Iterator[T]:
        """The records, oldest first."""
        for records in self.batches.values():
            yield from records

    def clear(self) -> None:
        self.batches.clear()


class Store:
    """The run's queues, by name. The first request for a name makes its queue."""

    def __init__(self) -> None:
        self._rows: dict[str, Queue[Row]] = {}
        self._episodes: dict[str, Queue[Episode]] = {}
        self._tasks: dict[str, Queue[Task]] = {}

    def rows(self, name: str) -> Queue[Row]:
        return self._rows.setdefault(name, Queue())

    def episodes(self, name: str) -> Queue[Episode]:
        return self._episodes.setdefault(name, Queue())

    def tasks(self, name: str) -> Queue[Task]:
        return self._tasks.setdefault(name, Queue())

    def __len__(self) -> int:
        """The number of batches in all queues."""
        return sum(len(queue) for queues in (self._rows, self._episodes, self._tasks) for queue in queues.values())

    def save(self, folder: Path) -> None:
        """Write a file a queue into an empty folder: tensors of rows, JSON lines of the others."""
        (folder / "rows").mkdir()
        for name, queue in self._rows.items():
            rows = list(queue)
            path = folder / "rows" / f"{name}.safetensors"
            save_file(pack_rows(rows), path, metadata=_row_metadata(rows, queue.batches))
        _write_lines(folder / "episodes", self._episodes, encoded)
        _write_lines(folder / "tasks", self._tasks, asdict)

    def load(self, folder: Path) -> None:
        """Read back what `save` wrote. Queues that methods already hold get the loaded batches."""
        kinds: tuple[Mapping[str, Queue[Any]], ...] = (self._rows, self._episodes, self._tasks)
        for queues in kinds:
            for queue in queues.values():
                queue.clear()
        for path in sorted(folder.glob("rows/*.safetensors")):
            self.rows(path.stem).batches.update(_read_rows(path))
        for path in sorted(folder.glob("episodes/*.jsonl")):
            episodes = {line["key"]: [decoded(record) for record in line["episodes"]] for line in _read_lines(path)}
            self.episodes(path.stem).batches.update(episodes)
        for path in sorted(folder.glob("tasks/*.jsonl")):
            tasks = {line["key"]: [Task(**record) for record in line["tasks"]] for line in _read_lines(path)}
            self.tasks(path.stem).batches.update(tasks)


def _write_lines(folder: Path, queues: Mapping[str, Queue[Any]], encode: Callable[[Any], Any]) -> None:
    folder.mkdir()
    for name, queue in queues.items():
        batches = [
            {"key": key, folder.name: [encode(record) for record in batch]} for key, batch in queue.batches.items()
        ]
        text = "".join(json.dumps(batch) + "\n" for batch in batches)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _read_lines(path: Path) -> Iterator[Any]:
    return map(json.loads, path.read_text(encoding="utf-8").split("\n")[:-1])


# --- episodes as JSON -------------------------------------------------------------------------------------------------


def encoded(episode: Episode) -> dict[str, Any]:
    """An episode as JSON types; a segment's prefix becomes its index. `decoded` reverses it.

    A prefix outside of the episode is written out: its context becomes the segment's `added`.
    """
    index_of = {id(segment): index for index, segment in enumerate(episode.segments)}
    segments = []
    for segment in episode.segments:
        prefix = None if segment.prefix is None else index_of.get(id(segment.prefix), -1)
        whole = segment if prefix != -1 else replace(segment, prefix=None, added=segment.context)
        values = {part.name: getattr(whole, part.name) for part in fields(whole) if part.name != "prefix"}
        grade = None if segment.grade is None else asdict(segment.grade)
        segments.append({**values, "grade": grade, "prefix": None if prefix == -1 else prefix})
    return {
        "task": asdict(episode.task),
        "segments": segments,
        "outcome": episode.outcome,
        "reason": episode.reason,
    }


def decoded(record: Mapping[str, Any]) -> Episode:
    """The episode that `encoded` wrote."""
    segments: list[Segment] = []
    for values in record["segments"]:
        tuples = {name: tuple(values[name]) for name in ("added", "tokens", "logprobs")}
        objects = {
            "grade": None if values["grade"] is None else Grade(**values["grade"]),
            "prefix": None if values["prefix"] is None else segments[values["prefix"]],
            "versions": tuple((version, count) for version, count in values["versions"]),
        }
        segments.append(Segment(**{**values, **tuples, **objects}))
    return Episode(
        task=Task(**record["task"]), segments=tuple(segments), outcome=record["outcome"], reason=record["reason"]
    )


# --- rows as tensors --------------------------------------------------------------------------------------------------

OPTIONAL = ("logprobs", "ref_logprobs")
"""Arrays over trained tokens that a row may lack."""
NAMES = ("policy", "kind", "bundle", "group", "extra")
"""Fields that are no tensors: they go into the file's metadata."""


def pack_rows(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Rows as a few flat tensors: per-token arrays are concatenated, and `lengths` and `num_trained` split them."""
    packed = {
        "lengths": torch.tensor([len(row.tokens) for row in rows], dtype=torch.int64),
        "num_trained": torch.tensor([row.num_trained for row in rows], dtype=torch.int64),
        "weight": torch.tensor([row.weight for row in rows], dtype=torch.float64),
        "share": torch.tensor([row.share for row in rows], dtype=torch.float64),
        "temperature": torch.tensor([row.temperature for row in rows], dtype=torch.float64),
        "num_runs": torch.tensor([len(row.versions) for row in rows], dtype=torch.int64),
        "versions": torch.tensor([run for row in rows for run in row.versions], dtype=torch.int64).reshape(-1, 2),
        "tokens": _flat([row.tokens for row in rows], np.int32),
        "trains": _flat([row.trains for row in rows], np.int32),
        "credit": _flat([row.credit for row in rows], np.float32),
    }
    for name in OPTIONAL:
        values = [getattr(row, name) for row in rows]
        packed[f"has_{name}"] = torch.tensor([value is not None for value in values], dtype=torch.bool)
        packed[name] = _flat([value for value in values if value is not None], np.float32)
    return packed


def _flat(arrays: Sequence[Any], dtype: Any) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype))


def _row_metadata(rows: Sequence[Row], batches: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """`NAMES` of the rows and the batches' sizes, in one entry: safetensors writes several in a random order."""
    names: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in NAMES}
    sizes = [[key, len(batch)] for key, batch in batches.items()]
    return {"about": json.dumps(names | {"batches": sizes})}


def _read_rows(path: Path) -> dict[str, list[Row]]:
    with safe_open(path, framework="pt") as file:
        packed = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118, it is no mapping
        names = json.loads(file.metadata()["about"])
    offsets: dict[str, int] = {}

    def take(name: str, count: int) -> Any:
        offsets[name] = offsets.get(name, 0) + int(count)
        return packed[name][offsets[name] - int(count) : offsets[name]]

    rows = []
    for i, (length, count) in enumerate(zip(packed["lengths"], packed["num_trained"], strict=True)):
        per_token = {"tokens": take("tokens", length), **{n: take(n, count) for n in ("trains", "credit")}}
        per_token |= {n: take(n, count) if packed[f"has_{n}"][i] else None for n in OPTIONAL}
        rows.append(
            Row(
                **per_token,
                **{name: names[name][i] for name in NAMES},
                weight=float(packed["weight"][i]),
                share=float(packed["share"][i]),
                temperature=float(packed["temperature"][i]),
                versions=tuple((int(version), int(run)) for version, run in take("versions", packed["num_runs"][i])),
            )
        )
    remaining = iter(rows)
    return {key: [next(remaining) for _ in range(size)] for key, size in names["batches"]}
