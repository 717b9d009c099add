"""What off-policy training keeps from step to step: batches that wait for their turn, and replies not yet ended.

Both are plain first-in-first-out queues of records, saved with every checkpoint and read back to the same bits.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from whet.types import Row, Segment


@dataclass
class ReplayQueue:
    """Batches of rows; each is trained on exactly `staleness` steps after it was sampled (as in M2PO's study,
    arXiv:2510.01161): nothing until the queue is full, then one batch in and one out."""

    staleness: int
    batches: deque[list[Row]] = field(default_factory=deque)

    def exchange(self, rows: Sequence[Row]) -> list[Row] | None:
        """Put this step's rows in and take those of `staleness` steps ago out. None: there are none yet."""
        self.batches.append(list(rows))
        return self.batches.popleft() if len(self.batches) > self.staleness else None

    def clear(self) -> None:
        self.batches.clear()

    def save(self, folder: Path) -> None:
        for number, rows in enumerate(self.batches):
            save_file(pack_rows(rows), folder / f"batch_{number:04d}.safetensors", metadata=_described(rows))

    def load(self, folder: Path) -> None:
        self.batches = deque(read_rows(path) for path in sorted(folder.glob("batch_*.safetensors")))


@dataclass
class UnfinishedQueue:
    """Groups of replies of which some have not ended, in the order in which they were begun (partial rollout)."""

    groups: dict[str, list[Segment]] = field(default_factory=dict)
    """By a key that names the group for the recipe."""

    def clear(self) -> None:
        self.groups.clear()

    def save(self, folder: Path) -> None:
        rows = [{"key": key, "segments": [asdict(s) for s in group]} for key, group in self.groups.items()]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "unfinished.jsonl").write_text(text, encoding="utf-8")

    def load(self, folder: Path) -> None:
        rows = map(json.loads, (folder / "unfinished.jsonl").read_text(encoding="utf-8").split("\n")[:-1])
        self.groups = {row["key"]: [_segment(fields) for fields in row["segments"]] for row in rows}


def _segment(fields: Mapping[str, Any]) -> Segment:
    """What `asdict` made of a segment that has no grade yet; JSON has no tuples."""
    assert fields["grade"] is None, "a reply that has not ended has no grade"
    tuples = {name: tuple(fields[name]) for name in ("context", "tokens", "logprobs")}
    return Segment(**{**fields, **tuples, "versions": tuple((a, b) for a, b in fields["versions"])})


NUMBERS = {"tokens": torch.int64, "loss_mask": torch.bool, "credit": torch.float64}
"""Per token, in every row."""
OPTIONAL = ("logprobs", "ref_logprobs")
"""Per token, where a row has them; float64, so that Python's numbers come back as they were."""


def pack_rows(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Rows as a few flat tensors. `read_rows` undoes it."""
    packed = {
        "lengths": torch.tensor([len(row.tokens) for row in rows], dtype=torch.int64),
        "weight": torch.tensor([row.weight for row in rows], dtype=torch.float64),
        "temperature": torch.tensor([row.temperature for row in rows], dtype=torch.float64),
        "num_runs": torch.tensor([len(row.versions) for row in rows], dtype=torch.int64),
        "versions": torch.tensor([run for row in rows for run in row.versions], dtype=torch.int64).reshape(-1, 2),
    }
    for name, dtype in NUMBERS.items():
        packed[name] = torch.tensor([value for row in rows for value in getattr(row, name)], dtype=dtype)
    for name in OPTIONAL:
        packed[f"has_{name}"] = torch.tensor([getattr(row, name) is not None for row in rows], dtype=torch.bool)
        values = [value for row in rows for value in getattr(row, name) or ()]
        packed[name] = torch.tensor(values, dtype=torch.float64)
    return packed


def _described(rows: Sequence[Row]) -> dict[str, str]:
    return {name: json.dumps([getattr(row, name) for row in rows]) for name in ("policy", "group")}


def read_rows(path: Path) -> list[Row]:
    """Rows from a file that holds `pack_rows` and the names of policies and groups."""
    with safe_open(path, framework="pt") as file:
        packed = {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118, it is no mapping
        names = {name: json.loads(text) for name, text in file.metadata().items()}
    rows = []
    at = dict.fromkeys((*NUMBERS, *OPTIONAL, "versions"), 0)

    def take(name: str, count: int) -> tuple[Any, ...]:
        at[name] += count
        return tuple(packed[name][at[name] - count : at[name]])

    for i, length in enumerate(packed["lengths"]):
        per_token: dict[str, Any] = {name: take(name, length) for name in NUMBERS}
        per_token |= {name: take(name, length) if packed[f"has_{name}"][i] else None for name in OPTIONAL}
        rows.append(
            Row(
                policy=names["policy"][i],
                group=names["group"][i],
                weight=packed["weight"][i],
                temperature=packed["temperature"][i],
                versions=tuple((a, b) for a, b in take("versions", packed["num_runs"][i])),
                **per_token,
            )
        )
    return rows
