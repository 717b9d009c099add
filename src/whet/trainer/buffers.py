"""What a run keeps from step to step, and from phase to phase: named queues of rows, episodes and tasks.

First in, first out, in batches that have a key each; saved with every checkpoint, and read back to the same bits. What
one phase finds, the next can use.
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


@dataclass
class Queue(Generic[T]):
    """Batches of records by key, in the order in which they were put in."""

    batches: dict[str, list[T]] = field(default_factory=dict)

    def put(self, key: str, records: Sequence[T]) -> None:
        """A batch of its own; one with the same key is replaced, in its place."""
        self.batches[key] = list(records)

    def take(self, key: str | None = None) -> list[T]:
        """The batch with this key, or the oldest one, which is gone then.

        Raises: KeyError where there is none.
        """
        return self.batches.pop(next(iter(self.batches), "") if key is None else key)

    def __len__(self) -> int:
        """Of batches."""
        return len(self.batches)

    def __iter__(self) -> Iterator[T]:
        """The records, oldest first."""
        for records in self.batches.values():
            yield from records

    def clear(self) -> None:
        self.batches.clear()


class Store:
    """The run's queues, by name; one is made where it is first asked for."""

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
        """Batches in all queues."""
        return sum(len(queue) for queues in (self._rows, self._episodes, self._tasks) for queue in queues.values())

    def save(self, folder: Path) -> None:
        """Into a new folder: a file a queue, tensors of rows, JSON lines of the others."""
        (folder / "rows").mkdir()
        for name, rows in self._rows.items():
            every = list(rows)
            save_file(
                pack_rows(every), folder / "rows" / f"{name}.safetensors", metadata=_described(every, rows.batches)
            )
        _write_lines(folder / "episodes", self._episodes, encoded)
        _write_lines(folder / "tasks", self._tasks, asdict)

    def load(self, folder: Path) -> None:
        """As it was saved. A queue that was handed out before holds what was loaded: a method may keep its queues."""
        kinds: tuple[Mapping[str, Queue[Any]], ...] = (self._rows, self._episodes, self._tasks)
        for queue in (each for queues in kinds for each in queues.values()):
            queue.clear()
        for path in sorted(folder.glob("rows/*.safetensors")):
            self.rows(path.stem).batches.update(_read_rows(path))
        for path in sorted(folder.glob("episodes/*.jsonl")):
            read = {each["key"]: [decoded(episode) for episode in each["episodes"]] for each in _lines(path)}
            self.episodes(path.stem).batches.update(read)
        for path in sorted(folder.glob("tasks/*.jsonl")):
            tasks = {each["key"]: [Task(**task) for task in each["tasks"]] for each in _lines(path)}
            self.tasks(path.stem).batches.update(tasks)


def _write_lines(folder: Path, queues: Mapping[str, Queue[Any]], encode: Callable[[Any], Any]) -> None:
    folder.mkdir()
    for name, queue in queues.items():
        batches = [{"key": key, folder.name: [encode(r) for r in batch]} for key, batch in queue.batches.items()]
        text = "".join(json.dumps(batch) + "\n" for batch in batches)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _lines(path: Path) -> Iterator[Any]:
    return map(json.loads, path.read_text(encoding="utf-8").split("\n")[:-1])


# --- episodes as JSON -------------------------------------------------------------------------------------------------


def encoded(episode: Episode) -> dict[str, Any]:
    """As JSON has it; a segment's prefix is its index. `decoded` undoes it."""
    places = {id(segment): index for index, segment in enumerate(episode.segments)}
    segments = []
    for segment in episode.segments:
        prefix = None if segment.prefix is None else places.get(id(segment.prefix), -1)
        whole = segment if prefix != -1 else replace(segment, prefix=None, added=segment.context)
        shown = {each.name: getattr(whole, each.name) for each in fields(whole) if each.name != "prefix"}
        grade = None if segment.grade is None else asdict(segment.grade)
        segments.append({**shown, "grade": grade, "prefix": None if prefix == -1 else prefix})
    return {
        "task": asdict(episode.task), "segments": segments, "outcome": episode.outcome, "reason": episode.reason,
    }  # fmt: skip


def decoded(shown: Mapping[str, Any]) -> Episode:
    segments: list[Segment] = []
    for found in shown["segments"]:
        tuples = {name: tuple(found[name]) for name in ("added", "tokens", "logprobs")}
        own = {
            "grade": None if found["grade"] is None else Grade(**found["grade"]),
            "prefix": None if found["prefix"] is None else segments[found["prefix"]],
            "versions": tuple((a, b) for a, b in found["versions"]),
        }
        segments.append(Segment(**{**found, **tuples, **own}))
    return Episode(
        task=Task(**shown["task"]), segments=tuple(segments), outcome=shown["outcome"], reason=shown["reason"]
    )


# --- rows as tensors --------------------------------------------------------------------------------------------------

OPTIONAL = ("logprobs", "ref_logprobs")
NAMES = ("policy", "kind", "bundle", "group", "extra")
"""What is no tensor."""


def pack_rows(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Rows as a few flat tensors."""
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


def _described(rows: Sequence[Row], batches: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """All in one entry: several would be written in an order of chance."""
    names: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in NAMES}
    sizes = [[key, len(batch)] for key, batch in batches.items()]
    return {"about": json.dumps(names | {"batches": sizes})}


def _read_rows(path: Path) -> dict[str, list[Row]]:
    with safe_open(path, framework="pt") as file:
        packed = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118, it is no mapping
        names = json.loads(file.metadata()["about"])
    at: dict[str, int] = {}

    def take(name: str, count: int) -> Any:
        at[name] = at.get(name, 0) + int(count)
        return packed[name][at[name] - int(count) : at[name]]

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
                versions=tuple((int(a), int(b)) for a, b in take("versions", packed["num_runs"][i])),
            )
        )
    every = iter(rows)
    return {key: [next(every) for _ in range(size)] for key, size in names["batches"]}
